"""Where a run's table goes, and what it must not take the place of."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.columns import describe_all
from curate.engines.journal import JOURNAL, RUN, Part, WorkFolder
from curate.engines.junk import Corrupter
from curate.engines.whole import Whole, of_whole
from curate.manifest.store_path import UNFINISHED, StorePath
from curate.tables.table import open_table
from curate.tables.writer import TableWriter
from scoring.atomic import require_folder
from scoring.errors import InputError
from scoring.lock import LOCK
from scoring.scorers import Scorer

# Names of files of another kind, which nobody means as the name of a folder of parts.
OTHER_FILES = {
    *(".arrow", ".csv", ".db", ".feather", ".gz", ".html", ".jpg", ".json", ".jsonl", ".ndjson", ".npy", ".npz"),
    *(".pkl", ".png", ".pq", ".safetensors", ".tar", ".tsv", ".txt", ".xlsx", ".zip"),
}


def check_out(out: Path | StorePath, source: Any, *, overwrite: bool) -> None:
    """Refuse an output that cannot be made, or that would take the place of something of the user's."""
    if not out.name or out.name in (".", ".."):
        raise InputError(f"expected a name for --out, such as scores.parquet, got {str(out)!r}")
    if out.suffix.lower() in OTHER_FILES:
        raise InputError(
            f"scores are Parquet: expected --out NAME.parquet for one file, or a folder's name, got {out}; take "
            f"{out.with_suffix('.parquet')}"
        )
    if isinstance(out, Path):
        require_folder(out)
    if not out.exists():
        return
    for one in source if isinstance(source, (list, tuple)) else [source]:
        if isinstance(one, (str, Path)) and _holds(out, one):
            raise InputError(f"--out {out} is what is to be scored, or holds it; choose another name")
    if overwrite:
        names = _names(out) if out.is_dir() else None
        ours = {RUN, JOURNAL, LOCK, UNFINISHED}
        if names and any(name not in ours and not fnmatch(name, "part-*.parquet") for name in names):
            raise InputError(f"{out} holds more than scores, and is left alone; choose another --out")
        if names != [] and not holds_scores(out):
            raise InputError(f"{out} is not a table of scores, and is left alone; choose another --out")


def _names(out: Path | StorePath) -> list[str]:
    """Return the names directly in a folder."""
    return [each.name for each in out.iterdir()] if isinstance(out, Path) else out.names()


def _holds(out: Path | StorePath, source: str | Path) -> bool:
    """Whether an output is a source, or a folder around it."""
    if isinstance(out, StorePath):
        return f"{str(source).rstrip('/')}/".startswith(f"{out.url}/")
    path = Path(source)
    return path.exists() and out.resolve() in (path.resolve(), *path.resolve().parents)


def holds_scores(out: Path | StorePath) -> bool:
    """Return whether what is at ``out`` is a table that `curate score` wrote."""
    try:
        metadata = open_table(out).metadata
    except InputError:
        return False
    return metadata.get("kind") == "scores" and isinstance(metadata.get("settings"), dict)


def publish(
    work: WorkFolder,
    shards: dict[int, Part],
    out: Path | StorePath,
    *,
    scorers: Mapping[str, Scorer],
    fit: bool,
    corrupter: Corrupter | None,
    overwrite: bool,
    announce: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Give the finished shards their place: joined in one ``.parquet`` file, or as a folder of parts.

    Args:
        work: the folder of the run.
        shards: all of them.
        out: the table.
        scorers: that need all rows; only where the table is one file.
        fit: whether to fit a score to the dataset, where the table is one file.
        corrupter: reads and scores images again, for ``p_junk``; None to leave that out.
        overwrite: replace what is there.
        announce: called with a line on what takes a while.

    Returns:
        Notes for the user.
    """
    if out.suffix != ".parquet":
        work.become(out, overwrite=overwrite)
        return (
            [f"a folder of parts gets no unc_fitted on its own; curate fit {out} --apply NAME.parquet"] if fit else []
        )
    parts = work.files(shards)
    whole = of_whole(parts, scorers, fit=fit, corrupter=corrupter, announce=announce)
    target = work.target(out)
    write_joined(parts, target, whole, overwrite=overwrite or target != out)
    work.deliver(target, out, overwrite=overwrite)
    work.remove()
    return whole.notes


def write_joined(parts: Sequence[Path], out: Path, whole: Whole, *, overwrite: bool) -> None:
    """Write the shards into one file, in order, with the columns that need them all."""
    first = open_table(parts[0])
    added = whole.columns
    schema, metadata = first.schema, {**first.metadata, **whole.metadata}
    if added:
        schema = pa.schema([*schema, *(pa.field(name, values.type) for name, values in added.items())], schema.metadata)
        metadata = {**metadata, "columns": describe_all(schema.names)}
    start = 0
    with TableWriter(out, schema, metadata, overwrite=overwrite) as writer:
        for part in parts:
            for batch in open_table(part).batches():
                more = [values.slice(start, len(batch)) for values in added.values()]
                writer.write(pa.RecordBatch.from_arrays([*batch.columns, *more], schema=schema) if more else batch)
                start += len(batch)
