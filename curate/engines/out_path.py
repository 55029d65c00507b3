"""Where a run's table may be written, and files that it must not replace."""

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from curate.engines.journal import JOURNAL, RUN
from curate.manifest.store_path import UNFINISHED, StorePath
from curate.tables.table import open_table
from scoring.atomic import require_folder
from scoring.errors import InputError
from scoring.lock import LOCK

# Names of files of another kind, never meant as the name of a folder of parts.
OTHER_FILES = {
    *(".arrow", ".csv", ".db", ".feather", ".gz", ".html", ".jpg", ".json", ".jsonl", ".ndjson", ".npy", ".npz"),
    *(".pkl", ".png", ".pq", ".safetensors", ".tar", ".tsv", ".txt", ".xlsx", ".zip"),
}


def check_out(out: Path | StorePath, source: Any, *, overwrite: bool) -> None:
    """Raise ``InputError`` for an output that cannot be created, or that would replace the user's files."""
    if not out.name or out.name in (".", ".."):
        raise InputError(f"expected a name for --out, such as scores.parquet, got {str(out)!r}")
    if out.suffix.lower() in OTHER_FILES:
        raise InputError(
            "scores are Parquet: expected --out NAME.parquet for one file, or the name of a folder, got "
            f"{out}; for example "
            f"{out.with_suffix('.parquet')}"
        )
    if isinstance(out, Path):
        require_folder(out)
    if not out.exists():
        return
    for part in source if isinstance(source, (list, tuple)) else [source]:
        if isinstance(part, (str, Path)) and _contains_source(out, part):
            raise InputError(f"--out {out} is the source, or contains it; choose another name")
    if overwrite:
        names = _names(out) if out.is_dir() else None
        ours = {RUN, JOURNAL, LOCK, UNFINISHED}
        if names and any(name not in ours and not fnmatch(name, "part-*.parquet") for name in names):
            raise InputError(f"{out} holds more than scores, and was not changed; choose another --out")
        if names != [] and not holds_scores(out):
            raise InputError(f"{out} is not a table of scores, and was not changed; choose another --out")


def _names(out: Path | StorePath) -> list[str]:
    """Return the names directly in a folder."""
    return [each.name for each in out.iterdir()] if isinstance(out, Path) else out.names()


def _contains_source(out: Path | StorePath, source: str | Path) -> bool:
    """Return whether an output is a source, or a folder around it."""
    if isinstance(out, StorePath):
        return f"{str(source).rstrip('/')}/".startswith(f"{out.url}/")
    path = Path(source)
    return path.exists() and out.resolve() in (path.resolve(), *path.resolve().parents)


def holds_scores(out: Path | StorePath) -> bool:
    """Return whether ``out`` is a table written by `curate score`."""
    try:
        metadata = open_table(out).metadata
    except InputError:
        return False
    return metadata.get("kind") == "scores" and isinstance(metadata.get("settings"), dict)
