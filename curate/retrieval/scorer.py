"""The model that scored a table, ready to score other images."""

from pathlib import Path
from typing import Any

from curate.engines.settings import ScoreSettings
from curate.tables.provenance import model_of, white_of
from curate.tables.table import Table
from scoring.checkpoint import find_checkpoint, load_model, read_header, shipped_models
from scoring.errors import InputError
from scoring.relative.model import DatasetFit
from scoring.relative.stored import FIT, read_fit
from scoring.runner import Runner, select_device, select_precision


def scorer_of(table: Table, *, model: str | Path | None = None, device: str = "auto") -> tuple[Runner, ScoreSettings]:
    """Return the model that scored a table, ready to run, and the settings of that scoring.

    Args:
        table: that ``curate score`` wrote.
        model: a shipped model or a checkpoint; by default the shipped one that the table names.
        device: to run on.

    Raises:
        InputError: if the table names no model that ships and none is given, or another than the one given.
    """
    digest = model_of(table)
    model = model_named_by(table, digest) if model is None else model
    network, card = load_model(model)
    if digest and card.get("base", card["digest"]) != digest:  # a fitted model's embeddings are its base model's
        raise InputError(
            f"expected the model that scored {table.path} ({digest[:12]}), got {model} ({card['digest'][:12]}); "
            "edited copies must be scored as the table was: pass that model as --model"
        )
    chosen = select_device(device)
    before = table.metadata.get("settings")
    before = before if isinstance(before, dict) else {}
    settings = ScoreSettings(device=device, **_settings_of(table, before))
    return Runner(network, chosen, select_precision(settings.precision, chosen, network.spec.cpu_precision)), settings


def model_named_by(table: Table, digest: str) -> str:
    """Return the shipped model with the digest recorded in a table; InputError if there is none."""
    digests = {read_header(path)["digest"]: name for name, path in shipped_models().items()}
    if digest not in digests:
        which = f"a model that does not ship ({digest[:12]})" if digest else "no model that it names"
        raise InputError(f"{table.path} was scored by {which}; pass its checkpoint as --model")
    return digests[digest]


def fit_of(model: str | Path | None) -> DatasetFit | None:
    """Return the dataset fit of a model made by ``curate fit``; None if it has none, or no model is named.

    Raises:
        InputError: if there is no such checkpoint, or its fit cannot be used.
    """
    return None if model is None else read_fit(model, read_header(find_checkpoint(model)))


def is_fitted(model: str | Path | None) -> bool:
    """Return whether a model was fitted to a dataset; InputError if the checkpoint is missing."""
    return model is not None and FIT in read_header(find_checkpoint(model))


def _settings_of(table: Table, before: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded settings of a table's scoring; defaults for values of another type."""
    kinds: dict[str, tuple[str, type | tuple[type, ...]]] = {
        "precision": ("precision", str),
        "dtype": ("embedding dtype", (str, type(None))),
        "max_pixels": ("max-pixels", int),
        "allow_truncated": ("allow-truncated", bool),
    }
    return {"white": white_of(table)} | {
        name: before[setting]
        for name, (setting, kind) in kinds.items()
        if setting in before and _is(before[setting], kind)
    }


def _is(value: object, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
