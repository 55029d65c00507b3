"""The finished parts of a run become its table."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import describe_all
from curate.counted import counted
from curate.engines.job import corrupter_of
from curate.engines.journal import Part
from curate.engines.junk import find_junk
from curate.engines.setup import RunSetup
from curate.tables.dataset import Dataset, column_array, group_facts, read_dataset, with_groups
from curate.tables.table import Table, open_table
from curate.tables.writer import TableWriter
from scoring.errors import InputError
from scoring.relative.columns import FEW_ROWS, JUNK, UNLIKE
from scoring.relative.fit import fit_dataset
from scoring.scorers import scored

LONG = 10_000  # number of images whose comparison takes more than a few seconds


@dataclass
class DatasetScores:
    """Scores added to a table once all its rows are scored.

    Attributes:
        columns: by name, N rows each, float32; null for a row without embedding.
        metadata: of the table, by name.
        notes: for the user.
    """

    columns: dict[str, pa.Array] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def compute_dataset_scores(
    parts: Sequence[Path], setup: RunSetup, places: NDArray[np.int64] | None = None
) -> DatasetScores:
    """Return scores that need the whole table: fitted to it if it is large enough, and scorers of all rows.

    Scorers get the stored embeddings, shape (M, D), of the M rows that have one, in the order of key hashes.

    Args:
        parts: files of the table's rows, in order.
        setup: of the run.
        places: row of the source of each row of the table; None if they are equal.
    """
    opened = setup.opened
    if not opened.of_table and not opened.fits:
        return DatasetScores()
    table = Table(parts[0].parent, parts)
    scores = _fitted(read_dataset(table), table, setup, places) if opened.fits else DatasetScores()
    named = opened.of_table.items()
    missing = {name: scorer for name, scorer in named if not scorer.columns.keys() <= scores.columns.keys()}
    if missing:
        dataset = read_dataset(table, once=False)
        for name, scorer in missing.items():
            scores.columns |= dataset.in_table(scored(name, scorer, dataset.embeddings, len(dataset)))
    return scores


def _fitted(dataset: Dataset, table: Table, setup: RunSetup, places: NDArray[np.int64] | None) -> DatasetScores:
    """Return the columns of a score fitted to the dataset; empty, with the reason, if it is impossible."""
    announce = setup.request.options.announce
    copies = dataset.copies.words()
    notes = [copies] if copies else []
    if len(dataset) < FEW_ROWS:
        few = f"{counted(len(dataset), 'different image')} with an embedding, fewer than the {FEW_ROWS} needed"
        return DatasetScores(notes=[*notes, f"no unc_fitted: {few}; score more images together"])
    announce("scoring corrupted copies of some images, for p_junk")
    corrupter = corrupter_of(setup.opened, setup.settings, setup.request.options.workers, places)
    junk = find_junk(dataset, table, corrupter)
    notes += junk.notes
    if len(dataset) > LONG:
        announce(f"comparing {counted(len(dataset), 'image')} with one another")
    try:
        fit, scores = fit_dataset(dataset.embeddings, junk.log_odds(dataset))
    except InputError as error:
        return DatasetScores(notes=[*notes, f"no unc_fitted: {error}"])
    fit, scores, groups = with_groups(dataset, table, fit, scores)
    columns = dataset.in_table(scores.columns)
    columns = {JUNK: column_array(junk.probability, np.zeros(table.n_rows, bool)), **columns, **dataset.n_copies()}
    facts = group_facts(groups, columns[UNLIKE])
    known = {"rows": len(dataset.at), "images": len(dataset), "digest": dataset.rows.digest}
    return DatasetScores(columns, {"fit": {**known, "groups": facts, "junk": junk.about}}, notes)


def publish(setup: RunSetup, shards: dict[int, Part], *, overwrite: bool) -> list[str]:
    """Publish all finished shards, as one ``.parquet`` file or a folder of parts; return notes for the user."""
    work, out = setup.work, setup.request.out
    if out.suffix != ".parquet":
        work.become(overwrite=overwrite)
        note = f"a folder of parts gets no unc_fitted on its own; curate fit {out} --apply NAME.parquet"
        return [note] if setup.opened.fits else []
    parts = work.files(shards)
    scores = compute_dataset_scores(parts, setup)
    write_joined(parts, work.target, scores, overwrite=overwrite or work.target != out)
    work.deliver(overwrite=overwrite)
    work.remove()
    return scores.notes


def write_joined(parts: Sequence[Path], out: Path, scores: DatasetScores, *, overwrite: bool) -> None:
    """Write the shards to one file, in order, with the columns that need them all."""
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
