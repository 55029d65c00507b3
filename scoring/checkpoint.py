"""One model in one file: safetensors with a JSON header; nothing is unpickled."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from scoring.atomic import AtomicFile, commit_together
from scoring.backbone_options import require_options
from scoring.backbones import published_shapes
from scoring.cards import (
    FIT,
    FORMAT,
    OF_PARTS,
    digest_of,
    find_checkpoint,
    listed_parts,
    read_header,
    require_digest,
    why_unreadable,
)
from scoring.errors import InputError
from scoring.heads import head_from_json, head_to_json
from scoring.images import Preprocessing
from scoring.joined_backbone import require_parts
from scoring.model import ModelSpec, ScoringModel, side_by_side
from scoring.model_names import DEFAULT, is_published
from scoring.packaged import COUNTER, packaged_weights, stored
from scoring.published import load_published


def stored_names(model: ScoringModel) -> dict[str, Tensor]:
    """Return the tensors that a checkpoint stores: all except backbones inside other packages."""
    elsewhere = tuple(f"backbone.parts.{at}." for at, part in enumerate(model.spec.parts) if part.packaged)
    return {name: value for name, value in model.state_dict().items() if not name.startswith(elsewhere or "\0")}


def stored_tensors(model: ScoringModel) -> dict[str, Tensor]:
    """Return ``stored_names``; ValueError if other weights differ from the package that provides them on reading."""
    tensors = model.state_dict()
    for name, value in packaged_tensors(model.spec, model).items():
        if not name.endswith(COUNTER) and not torch.equal(tensors[name].cpu(), value):
            raise ValueError(
                f"{name} is not what its package holds; leave `packaged` out of a backbone that was trained"
            )
    return stored_names(model)


def packaged_tensors(spec: ModelSpec, model: ScoringModel) -> dict[str, Tensor]:
    """Return the tensors of backbones that packages hold, by the names of the model's state dict.

    Only names and shapes of the model's weights are read. Raises InputError if a package is missing, or its file is
    another one or does not fit.
    """
    tensors: dict[str, Tensor] = {}
    for at, part in enumerate(spec.parts):
        if part.packaged is None:
            continue
        weights = packaged_weights(part.packaged, published_shapes(part.name, part.options))
        for name, like in model.backbone.parts[at].state_dict().items():  # type: ignore[index, union-attr]
            if not name.endswith(COUNTER) and (name not in weights or weights[name].shape != like.shape):
                raise InputError(f"{part.packaged.package} does not hold the weights of {part.name!r}: {name} differs")
            counter = torch.zeros(like.shape, dtype=like.dtype)
            tensors[f"backbone.parts.{at}.{name}"] = counter if name.endswith(COUNTER) else weights[name]
    return tensors


def save_checkpoint(
    path: Path,
    model: ScoringModel,
    card: Mapping[str, Any],
    *,
    dtype: torch.dtype = torch.float32,
    exact: Sequence[str] = (),
    record_outcome: Callable[[str], None] = lambda digest: None,
    overwrite: bool = True,
) -> str:
    """Write a model and its card atomically.

    Args:
        path: of the file.
        model: what to save; floating weights are stored as ``dtype``.
        card: ``method``, ``training`` (data, recipe), ``metrics``, ``data_licence`` and other facts.
        dtype: float16 halves the file; the weights are read back as float32.
        exact: prefixes of the names of weights that stay float32 if ``dtype`` would round them.
        record_outcome: called with the digest before the complete file is renamed.
        overwrite: replace an existing file.

    Returns:
        The digest that identifies the model in the tables it scores.
    """
    tensors = {}
    for name, value in stored_tensors(model).items():
        stored = value.to(dtype) if value.is_floating_point() else value
        keeps = not name.startswith(tuple(exact)) or torch.equal(stored.to(value.dtype), value)
        tensors[name] = (stored if keeps else value).detach().cpu().contiguous()
    lost = [name for name, value in tensors.items() if value.is_floating_point() and not value.isfinite().all()]
    if lost:
        raise InputError(f"{path} was not written: {lost[0]} ({len(lost)} in all) does not fit {dtype}; store float32")
    spec = model.spec
    header = {
        **card,
        "format": OF_PARTS if spec.parts else FORMAT,
        "backbone": _backbone_to_json(model),
        "heads": {name: head_to_json(head) for name, head in spec.heads.items()},
        "preprocessing": spec.preprocessing.to_json(),
        **({"embedding": spec.embedding} if spec.embedding else {}),
    }
    return write_checkpoint(path, tensors, header, record_outcome=record_outcome, overwrite=overwrite)


def write_checkpoint(
    path: Path,
    tensors: dict[str, Tensor],
    card: Mapping[str, Any],
    *,
    companions: Sequence[AtomicFile] = (),
    commit: Callable[[Sequence[AtomicFile]], None] = commit_together,
    record_outcome: Callable[[str], None] = lambda digest: None,
    overwrite: bool,
) -> str:
    """Write tensors by name and a card with their digest; return the digest.

    Args:
        path: of the file.
        tensors: by name.
        card: as of ``save_checkpoint``.
        companions: written files that are renamed together with the checkpoint.
        commit: renames all files, the checkpoint last.
        record_outcome: called with the digest before the complete file is renamed.
        overwrite: replace an existing file.
    """
    header = {name: value for name, value in card.items() if name != "digest"}
    header["digest"] = digest_of(header, stored(tensors))
    file = AtomicFile(path, overwrite=overwrite)
    try:
        file.write(save(tensors, {"curate": json.dumps(header, sort_keys=True)}))
        file.seal()
        record_outcome(str(header["digest"]))
        commit([*companions, file])
    finally:
        file.discard()
    return str(header["digest"])


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the card and all tensors as stored; InputError as ``read_header``, or if the digest does not match."""
    header = read_header(path)
    try:
        with safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (not a mapping)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is not a checkpoint: {why_unreadable(path, error)}") from None
    require_digest(path, header, stored(tensors))
    return header, tensors


def checkpoint_of(name: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the card and tensors of a model by any of its names, as in a checkpoint; InputError as ``load_model``."""
    if not is_published(name):
        return read_checkpoint(find_checkpoint(name))
    model, card = load_published(str(name))
    return {**card, "format": FORMAT}, {key: value.contiguous() for key, value in stored_tensors(model).items()}


def load_model(name: str | Path = DEFAULT) -> tuple[ScoringModel, dict[str, Any]]:
    """Return a model, ready to score on the CPU in float32, and its card.

    Args:
        name: a shipped model's name, the path of a checkpoint, or a model of timm's (``scoring.published``).

    Raises:
        InputError: if the checkpoint is missing or damaged, or its weights do not fit its card.
    """
    if is_published(name):
        return load_published(str(name))
    path = find_checkpoint(name)
    header, tensors = read_checkpoint(path)
    tensors = {key: value for key, value in tensors.items() if not key.startswith(f"{FIT}.")}
    spec = _spec(path, header)
    with torch.device("meta"):  # no memory for a huge network in an untrusted card before its weights are checked
        empty = ScoringModel(spec)
    expected = {key: value.shape for key, value in stored_names(empty).items()}
    shapes = {key: value.shape for key, value in tensors.items()}
    if expected != shapes:
        wrong = sorted(key for key in expected.keys() | shapes.keys() if expected.get(key) != shapes.get(key))
        raise InputError(f"{path}: the weights do not fit {spec.backbone!r} ({len(wrong)} differ, first {wrong[0]!r})")
    for key, value in tensors.items():
        if value.is_floating_point() and not value.float().isfinite().all():
            raise InputError(
                f"{path}: the weights {key!r} are not all finite, so its scores would not be; train it again"
            )
    tensors |= packaged_tensors(spec, empty)
    model = ScoringModel(spec)
    model.load_state_dict(
        {key: value.float() if value.is_floating_point() else value for key, value in tensors.items()}
    )
    return model.eval(), header


def _backbone_to_json(model: ScoringModel) -> dict[str, Any]:
    spec = model.spec
    record = {"name": spec.backbone, "options": spec.backbone_options, "width": model.width}
    if not spec.parts:
        return record
    of_all = {"projection": spec.projection, "cpu_precision": spec.cpu_precision}
    return {**record, "parts": [part.to_json() for part in spec.parts], **of_all}


def _spec(path: Path, header: Mapping[str, Any]) -> ModelSpec:
    try:
        heads = {str(name): head_from_json(head) for name, head in header["heads"].items()}
        preprocessing, backbone = Preprocessing.from_json(header["preprocessing"]), header["backbone"]
        embedding = str(header.get("embedding", ""))
        if header["format"] == OF_PARTS:
            parts, projection = listed_parts(header), backbone["projection"]
            require_parts(parts, preprocessing.size, projection)
            spec = side_by_side(parts, preprocessing, projection)
            if spec.preprocessing != preprocessing:
                raise ValueError("backbones side by side normalise on their own, and the card normalises before them")
            precision = backbone.get("cpu_precision", "fp32")
            if precision not in ("fp32", "bf16"):
                raise ValueError(f"cpu_precision is fp32 or bf16, got {precision!r}")
            return replace(spec, heads=heads, cpu_precision=precision, embedding=embedding)
        options = dict(backbone.get("options", {}))
        require_options(options)
        return ModelSpec(str(backbone["name"]), options, heads, preprocessing, embedding=embedding)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{path} is a damaged checkpoint: its card cannot be read ({error})") from None
