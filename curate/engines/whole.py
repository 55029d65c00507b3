"""Scores that need the embeddings of all rows: computed when every shard is there, before the table gets its name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.counted import counted
from curate.tables.heap import Heap, read_heap
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.heap.fit import FEW_ROWS, fit_heap
from scoring.scorers import Scorer, scored

LONG = 10_000  # rows whose comparison takes more than some seconds


@dataclass
class Whole:
    """What is added to a table when all its rows are there.

    Attributes:
        columns: by name, N rows each, float32; null for a row without embedding.
        metadata: of the table, by name.
        notes: notes for the user.
    """

    columns: dict[str, pa.Array] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def of_whole(
    parts: Sequence[Path],
    scorers: Mapping[str, Scorer],
    *,
    fit: bool,
    announce: Callable[[str], None] = lambda text: None,
) -> Whole:
    """Return what needs the whole table.

    Args:
        parts: files of the table's rows, in order.
        scorers: each is given the embeddings as stored, shape (M, D), of the M rows that have one, in the order of
            the hashes of their keys.
        fit: whether to fit a score to the heap as well, where it is large enough.
        announce: told in words what takes a while.
    """
    if not scorers and not fit:
        return Whole()
    heap = read_heap(Table(parts[0].parent, parts))
    if len(heap) > LONG:
        announce(f"comparing {counted(len(heap), 'row')} with one another")
    found = _fitted(heap) if fit else Whole()
    for name, scorer in scorers.items():
        if not scorer.columns.keys() <= found.columns.keys():  # the fit has it already
            found.columns |= heap.in_table(scored(name, scorer, heap.embeddings, len(heap)))
    return found


def _fitted(heap: Heap) -> Whole:
    """Return the columns of a score that is fitted to the heap; none, and why, where that cannot be."""
    if len(heap) < FEW_ROWS:
        few = f"{counted(len(heap), 'image')} with an embedding, and fewer than {FEW_ROWS} tell too little"
        return Whole(notes=[f"no unc_fitted: {few}; score more together"])
    try:
        _, said = fit_heap(heap.embeddings, heap.columns)
    except InputError as error:
        return Whole(notes=[f"no unc_fitted: {error}"])
    return Whole(heap.in_table(said.columns), {"fit": {"rows": len(heap), "digest": heap.rows.digest}})
