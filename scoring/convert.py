"""Conversion of third-party models: pretrained visual uncertainties, and timm weights.

A PyTorch file is a pickle in a zip archive. It is read with torch's restricted unpickler, which makes tensors, plain
containers and, here, ``argparse.Namespace``; anything else in it is an error. Tensors are mapped from the file, not
copied, until their names and shapes are known to be the model's.
"""

import argparse
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from scoring.backbones import canonical_name, classifier_names, create_backbone, published_preprocessing
from scoring.errors import InputError
from scoring.file_digest import file_sha256
from scoring.heads import UncertaintyHeadSpec
from scoring.model import ModelSpec, ScoringModel

HEAD = "losspred"  # name of the converted head
MODULE = re.compile(r"unc_module\.unc_module\.([0-9]{1,3})\.(weight|bias)")
MOST_ENTRIES = 100_000
LONGEST_NAME = 200  # maximal length of an architecture's name
LARGEST = 1e15  # largest number copied into a card; integers in a file are unbounded
MOST_PICKLE = 64 << 20  # bytes of a file's pickle; a model's with thousands of tensors is below one megabyte


def convert(
    path: str | Path, backbone: str | None = None, *, option: str = "--backbone"
) -> tuple[ScoringModel, dict[str, Any]]:
    """Convert a model file of another project; return the model and facts for its card.

    Args:
        path: a ``.pth.tar`` of the pretrained visual uncertainties, or the weights of a timm model as ``.pth``
            or ``.safetensors``.
        backbone: timm's name of the architecture; needed if the file does not state it.
        option: the option that error messages suggest to set the architecture.

    Returns:
        The model on the CPU, with the head ``losspred`` where the file has one, and facts for its card.

    Raises:
        InputError: if the file cannot be trusted or read, or its weights are not the architecture's.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"expected a file of weights, got none at {path}")
    contents = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    weights, arch, facts = _weights(path, contents)
    name = backbone or arch
    if name is None:
        raise InputError(f"{path} does not record which model it holds; pass its timm name as {option}")
    head = _head_shape(path, weights)
    with torch.device("meta"):  # no memory before the weights are checked
        empty = create_backbone(name)
        name = canonical_name(empty) or name
        preprocessing = published_preprocessing(empty)
    spec = ModelSpec(name, {}, {} if head is None else {HEAD: head}, preprocessing)
    with torch.device("meta"):
        expected = {key: value.shape for key, value in ScoringModel(spec, backbone=empty).state_dict().items()}
    chosen = _fit(path, name, weights, expected, classifier_names(empty), option)
    _require_room(path, chosen)
    model = ScoringModel(spec, backbone=create_backbone(name))
    plain = {key: value.float() if value.is_floating_point() else value.clone() for key, value in chosen.items()}
    broken = [key for key, value in plain.items() if value.is_floating_point() and not value.isfinite().all()]
    if broken:
        raise InputError(f"{path} holds numbers that are not finite, first in {broken[0]!r}; fetch it again")
    model.load_state_dict(plain)
    return model.eval(), {**facts, "architecture": name, "file": path.name, "sha256": file_sha256(path)}


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        with safe_open(path, "pt") as file:
            if "curate" in (file.metadata() or {}):
                raise InputError(f"{path} is a curate checkpoint already; there is nothing to convert")
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is not a safetensors file ({error}); fetch it again") from None


def _read_torch(path: Path) -> dict[str, Any]:
    """Return the content of a PyTorch file, with memory-mapped tensors."""
    _check_archive(path)
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            contents = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # of any kind: the bytes are untrusted
        text = str(error).replace("\n", " ")
        wants = re.search(r"(?:Unsupported global: GLOBAL|Unsupported class|GLOBAL) ([\w.]+)", text)
        reason = f"it would call {wants[1]}" if wants else (text.split(". ")[0][:200] or type(error).__name__)
        raise InputError(
            f"{path} cannot be read safely ({reason}); expected tensors and plain values: save its 'state_dict' alone"
        ) from None
    if not isinstance(contents, dict):
        raise InputError(f"{path} holds a {type(contents).__name__}; expected a dictionary of weights")
    return contents


def _check_archive(path: Path) -> None:
    """Raise ``InputError`` unless the file is an uncompressed archive, as ``torch.save`` has written since 2020."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, UnicodeDecodeError):
        raise InputError(
            f"{path} is not a file of PyTorch 1.6 or later (a zip archive); expected .safetensors, or what torch.save "
            "writes: load it in the program that made it, and save it again"
        ) from None
    packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
    pickle_bytes = sum(entry.file_size for entry in entries if entry.filename.endswith(".pkl"))
    total = sum(entry.file_size for entry in entries)
    if packed or len(entries) > MOST_ENTRIES or pickle_bytes > MOST_PICKLE or total > path.stat().st_size:
        raise InputError(
            f"{path} is not what torch.save writes: its content would be larger than the file; it was not read"
        )


def _weights(path: Path, contents: dict[str, Any]) -> tuple[dict[str, Tensor], str | None, dict[str, Any]]:
    """Return the tensors by name, the architecture if the file states it, and facts for the card."""
    inner = next(
        (contents[k] for k in ("state_dict_ema", "state_dict", "model") if isinstance(contents.get(k), dict)), contents
    )
    weights = {str(name).removeprefix("module."): value for name, value in inner.items() if isinstance(value, Tensor)}
    if not weights:
        raise InputError(f"{path} holds no weights; expected tensors by name, or a 'state_dict' of them")
    strange = [name for name, value in weights.items() if value.layout != torch.strided or value.is_quantized]
    if strange or any(value.device.type != "cpu" for value in weights.values()):
        raise InputError(f"{path} holds tensors that are not plain weights, such as {(strange or ['meta'])[0]!r}")
    arch = contents.get("arch")
    numbers = {name: contents[name] for name in ("epoch", "metric") if isinstance(contents.get(name), (int, float))}
    facts = {name: value for name, value in numbers.items() if -LARGEST < value < LARGEST}
    return weights, arch if isinstance(arch, str) and len(arch) <= LONGEST_NAME else None, facts


def _head_shape(path: Path, weights: Mapping[str, Tensor]) -> UncertaintyHeadSpec | None:
    """Return the shape of the uncertainty module in a file; None if absent.

    Its linear layers are 0, 2, 4, ... of a sequence; the last has one output.
    """
    if not any(name.startswith("unc_module.") for name in weights):
        return None
    matrices = {int(m[1]): weights[m[0]] for m in map(MODULE.fullmatch, weights) if m and m[2] == "weight"}
    last = 2 * len(matrices) - 2
    regular = bool(matrices) and sorted(matrices) == list(range(0, last + 1, 2)) and matrices[last].ndim == 2
    widths = {value.shape[0] for at, value in matrices.items() if at != last and value.ndim == 2}
    if not regular or len(widths) > 1:
        raise InputError(
            f"{path} has an uncertainty module of a shape that is not known here: expected linear layers at "
            f"unc_module.unc_module.0, 2, ..., all hidden ones equally wide, got {sorted(matrices)}"
        )
    return UncertaintyHeadSpec(hidden=next(iter(widths), 1), depth=len(matrices) - 1)


def _fit(
    path: Path,
    name: str,
    weights: Mapping[str, Tensor],
    expected: Mapping[str, torch.Size],
    classifiers: tuple[str, ...],
    option: str,
) -> dict[str, Tensor]:
    """Return the weights by our names, without the classifier; other missing or extra weights are refused."""
    has_head = any(key.startswith(f"heads.{HEAD}.") for key in expected)
    prefix = "model." if has_head or all(key.startswith("model.") for key in weights) else ""
    ours: dict[str, Tensor] = {}
    extra = []
    for key, value in weights.items():
        module = MODULE.fullmatch(key)
        if module and f"heads.{HEAD}.layers.{module[1]}.{module[2]}" in expected:
            ours[f"heads.{HEAD}.layers.{module[1]}.{module[2]}"] = value
        elif key.startswith(prefix) and f"backbone.{key.removeprefix(prefix)}" in expected:
            ours[f"backbone.{key.removeprefix(prefix)}"] = value
        elif not key.removeprefix(prefix).startswith(tuple(f"{classifier}." for classifier in classifiers)):
            extra.append(key)
    missing = [key.removeprefix("backbone.") for key in expected if key not in ours]
    if missing or extra:
        what = f"{len(missing)} are missing, first {missing[0]!r}" if missing else f"{extra[0]!r} is not its"
        raise InputError(f"{path} does not hold the weights of {name!r}: {what}; pass the right one as {option}")
    wrong = [key for key in expected if ours[key].shape != expected[key]]
    if wrong:
        sizes = f"{tuple(ours[wrong[0]].shape)}, expected {tuple(expected[wrong[0]])}"
        raise InputError(
            f"{path} does not hold the weights of {name!r}: {wrong[0].removeprefix('backbone.')!r} has shape "
            f"{sizes}; pass the right one as {option}"
        )
    return ours


def _require_room(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Raise ``InputError`` if weights need more memory than their file has bytes (a crafted file of repeated views)."""
    claimed = sum(value.numel() * value.element_size() for value in weights.values())
    if claimed > path.stat().st_size:
        raise InputError(f"{path} claims {claimed:,} bytes of weights in {path.stat().st_size:,}; it was not read")
