"""Scores that need the embeddings of all rows: computed when every shard is there, before the table gets its name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.counted import counted
from curate.engines.junk import Corrupter, find_junk
from curate.tables.dataset import Dataset, column_array, read_dataset
from curate.tables.grouped import group_facts, with_groups
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.relative.columns import JUNK, UNLIKE
from scoring.relative.fit import FEW_ROWS, fit_dataset
from scoring.scorers import Scorer, scored

LONG = 10_000  # images whose comparison takes more than some seconds


@dataclass
class DatasetScores:
    """What is added to a table when all its rows are there.

    Attributes:
        columns: by name, N rows each, float32; null for a row without embedding.
        metadata: of the table, by name.
        notes: notes for the user.
    """

    columns: dict[str, pa.Array] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def compute_dataset_scores(
    parts: Sequence[Path],
    scorers: Mapping[str, Scorer],
    *,
    fit: bool,
    corrupter: Corrupter | None = None,
    announce: Callable[[str], None] = lambda text: None,
) -> DatasetScores:
    """Return what needs the whole table.

    Args:
        parts: files of the table's rows, in order.
        scorers: each is given the embeddings as stored, shape (M, D), of the M rows that have one, in the order of
            the hashes of their keys.
        fit: whether to fit a score to the dataset as well, where it is large enough.
        corrupter: reads and scores images again, for ``p_junk``; None to leave that out.
        announce: called with a line on what takes a while.
    """
    if not scorers and not fit:
        return DatasetScores()
    table = Table(parts[0].parent, parts)
    scores = DatasetScores()
    if fit:
        scores = _fitted(read_dataset(table), table, corrupter, announce)
    missing = {name: scorer for name, scorer in scorers.items() if not scorer.columns.keys() <= scores.columns.keys()}
    if missing:
        dataset = read_dataset(table, once=False)
        for name, scorer in missing.items():
            scores.columns |= dataset.in_table(scored(name, scorer, dataset.embeddings, len(dataset)))
    return scores


def _fitted(
    dataset: Dataset, table: Table, corrupter: Corrupter | None, announce: Callable[[str], None]
) -> DatasetScores:
    """Return the columns of a score that is fitted to the dataset; none, and why, where that cannot be."""
    copies = dataset.copies.words()
    notes = [copies] if copies else []
    if len(dataset) < FEW_ROWS:
        few = f"{counted(len(dataset), 'different image')} with an embedding, and fewer than {FEW_ROWS} are too few"
        return DatasetScores(notes=[*notes, f"no unc_fitted: {few}; score more together"])
    junk = None
    if corrupter is not None:
        announce("scoring corrupted copies of some images, for p_junk")
        junk = find_junk(dataset, table, corrupter)
        notes += junk.notes
    if len(dataset) > LONG:
        announce(f"comparing {counted(len(dataset), 'image')} with one another")
    try:
        fit, said = fit_dataset(dataset.embeddings, None if junk is None else junk.log_odds(dataset))
    except InputError as error:
        return DatasetScores(notes=[*notes, f"no unc_fitted: {error}"])
    fit, said, groups = with_groups(dataset, table, fit, said)
    columns = dataset.in_table(said.columns)
    probability = np.full(table.n_rows, np.nan, np.float32) if junk is None else junk.probability
    columns = {JUNK: column_array(probability, np.zeros(table.n_rows, bool)), **columns, **dataset.n_copies()}
    facts = group_facts(groups, columns[UNLIKE])
    known = {"rows": len(dataset.at), "images": len(dataset), "digest": dataset.rows.digest}
    about = {**known, "groups": facts, **({} if junk is None else {"junk": junk.about})}
    return DatasetScores(columns, {"fit": about}, notes)
