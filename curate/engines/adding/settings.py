"""The settings by which a table was scored, as options of a run that adds to it."""

from collections.abc import Mapping, Set
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from curate.columns import LABEL
from curate.engines.settings import MADE, OF_ANOTHER_VERSION, ScoreSettings, difference
from curate.manifest.contract import SourceOptions
from curate.manifest.schemes import scheme_of
from curate.tables.provenance import READ_AGAIN, REQUEST
from curate.tables.table import Table
from scoring.cards import read_header, shipped_models
from scoring.errors import InputError
from scoring.model_names import DEFAULT, is_published

LABELLING = "label_from_folder"
READING = (*READ_AGAIN, LABELLING)
MOVABLE = {"root"}  # images may have been moved
# Recorded settings of a table: name there -> field of `ScoreSettings`.
NOTED = {
    "device": "device",
    "precision": "precision",
    "backend": "backend",
    "batch-size": "batch_size",
    "shard-size": "shard_size",
    "embedding dtype": "dtype",
    "max-pixels": "max_pixels",
    "decode-timeout": "decode_timeout",
    "allow-truncated": "allow_truncated",
    "white": "white",
}
# Releases that affect last digits at most: additions by other ones are recorded, not refused.
RELEASES = {"curate", "torch", "pillow", "torchvision", "openvino", "compiler", "cuda", "gpu"}


def request_of(model: str | Path, options: SourceOptions) -> dict[str, Any]:
    """Return a request as a table records it, as JSON: the model as named, and options that are not defaults."""
    default = SourceOptions()
    noted = {name: getattr(options, name) for name in READING if getattr(options, name) != getattr(default, name)}
    if options.root is not None and scheme_of(options.root) is None:
        noted["root"] = str(Path(options.root).absolute())
    return {"model": str(model), **noted}


def settings_as_scored(table: Table, settings: ScoreSettings, typed: Set[str]) -> ScoreSettings:
    """Return the settings of a table, overridden by the typed ones; ``refuse_contradiction`` compares them.

    Raises:
        InputError: for a table whose settings cannot be used.
    """
    before = table.metadata["settings"]
    kept = {name: before[noted] for noted, name in NOTED.items() if noted in before}
    scorers = before.get("scorers", [])
    changes = {name: getattr(settings, name) for name in typed if getattr(settings, name) not in ("auto", None)}
    if "dtype" in typed:
        changes["dtype"] = settings.dtype
    try:
        as_before = ScoreSettings(
            **kept,
            scorers=tuple(scorers),
            fit=before.get("fit") is True,
            quality="quality" in before,
            decode="gpu" if before.get("decoder") == "gpu" else "cpu",
        )
        return replace(as_before, **changes)
    except (TypeError, ValueError) as error:
        raise InputError(f"the settings in {table.path} cannot be used ({error}); score to another --out") from None


def options_as_scored(table: Table, options: SourceOptions, typed: Set[str]) -> SourceOptions:
    """Return the options with which the source of a table was read.

    Raises:
        InputError: for a typed option that contradicts them, or a limit.
    """
    if options.limit is not None:
        raise InputError("--add reads the whole source: leave out --limit")
    request = table.metadata.get(REQUEST)
    if not isinstance(request, Mapping):
        return options
    default, chosen = SourceOptions(), {}
    for name in READING:
        was, now = request.get(name, getattr(default, name)), getattr(options, name)
        may_differ = name in MOVABLE or (name == LABELLING and is_labelled_first(table, options))
        if name in typed and now != was and not may_differ:
            raise InputError(
                f"{table.path} was scored with {_option(name, was)}, got {_option(name, now)}: leave it out with "
                "--add, or score to another --out"
            )
        chosen[name] = now if name in typed else was
    try:
        return replace(options, **chosen)
    except TypeError as error:
        raise InputError(f"the request in {table.path} cannot be used ({error}); score to another --out") from None


def is_labelled_first(table: Table, options: SourceOptions) -> bool:
    """Return whether classes come from folders now, but a table was scored without classes."""
    request = table.metadata.get(REQUEST)
    was = isinstance(request, Mapping) and request.get(LABELLING, False)
    return options.label_from_folder and not was and LABEL not in table.stored.schema.names


def model_as_scored(table: Table, model: str | Path | None) -> str | Path:
    """Return the model of a table: the given one, the one that the table names, or a shipped one.

    Raises:
        InputError: if none is given and the table's is not found.
    """
    if model is not None:
        return model
    digest = table.metadata["settings"].get("model")
    request = table.metadata.get(REQUEST)
    named = request.get("model") if isinstance(request, Mapping) else None
    if isinstance(named, str) and is_published(named):
        return named
    places = {DEFAULT: None, **shipped_models()}
    if isinstance(named, str) and named not in places and Path(named).is_file():
        places = {named: Path(named), **places}
    for name, path in places.items():
        if path is not None and read_header(path)["digest"] == digest:
            return name
    raise InputError(
        f"{table.path} was scored by the model {named or str(digest)[:12]}, which is not found: pass it as --model"
    )


def typed_fields(options: SourceOptions | ScoreSettings) -> set[str]:
    """Return the fields that are not defaults."""
    default = type(options)()
    return {each.name for each in fields(options) if getattr(options, each.name) != getattr(default, each.name)}


def refuse_contradiction(table: Table, fingerprint: Mapping[str, Any]) -> dict[str, str]:
    """Return the releases in which a run differs from the first run of a table: name -> current release.

    Raises:
        InputError: for any other difference, except the input.
    """
    passed = {"input", *RELEASES}
    before, now = (
        {name: value for name, value in each.items() if name not in passed}
        for each in (table.metadata["settings"], fingerprint)
    )
    if differs := difference(before, now):
        name, then, today = differs
        if name in MADE:
            raise InputError(
                f"{table.path} has another {name}, {then} there, {today} here: {OF_ANOTHER_VERSION}; score again with "
                "--overwrite, or to another --out"
            )
        raise InputError(
            f"{table.path} was scored with another {name}, {then} there, {today} here: leave options such as "
            "--model out with --add, or score to another --out"
        )
    was = table.metadata["settings"]
    return {
        name: str(fingerprint.get(name))
        for name in sorted(RELEASES)
        if fingerprint.get(name) != was.get(name) and (name in fingerprint or name in was)
    }


def _option(name: str, value: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool) or value is None:
        return flag if value else f"no {flag}"
    return f"{flag} {value}"
