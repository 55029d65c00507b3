"""The finished parts of a run become its table."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from curate.columns import describe_all
from curate.engines.dataset_scores import DatasetScores, compute_dataset_scores
from curate.engines.journal import Part
from curate.engines.setup import RunSetup
from curate.tables.table import open_table
from curate.tables.writer import TableWriter


def publish(setup: RunSetup, shards: dict[int, Part], *, overwrite: bool) -> list[str]:
    """Put the finished shards in place: joined in one ``.parquet`` file, or as a folder of parts.

    Args:
        setup: of the run.
        shards: all of them.
        overwrite: replace what is there.

    Returns:
        Notes for the user.
    """
    work, out = setup.work, setup.request.out
    if out.suffix != ".parquet":
        work.become(out, overwrite=overwrite)
        note = f"a folder of parts gets no unc_fitted on its own; curate fit {out} --apply NAME.parquet"
        return [note] if setup.opened.fits else []
    parts = work.files(shards)
    scores = compute_dataset_scores(parts, setup)
    target = work.target(out)
    write_joined(parts, target, scores, overwrite=overwrite or target != out)
    work.deliver(target, out, overwrite=overwrite)
    work.remove()
    return scores.notes


def write_joined(parts: Sequence[Path], out: Path, scores: DatasetScores, *, overwrite: bool) -> None:
    """Write the shards into one file, in order, with the columns that need them all."""
    first = open_table(parts[0])
    added = scores.columns
    schema, metadata = first.schema, {**first.metadata, **scores.metadata}
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
