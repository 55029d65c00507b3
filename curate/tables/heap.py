"""A table as a heap: the embeddings and head columns that a score is fitted to, and its columns back in the table."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import EMBEDDING
from curate.tables.needs import EMBEDDINGS, Needs
from curate.tables.rows import Rows, read_rows
from curate.tables.table import Table
from curate.tables.vectors import rows_of
from scoring.errors import InputError
from scoring.heap.junk import columns_for_junk


@dataclass(frozen=True)
class Heap:
    """The M rows of a table that have an embedding, in the order of the hashes of their keys.

    Attributes:
        rows: of the table, all N.
        at: which of them these are, shape (M,), ascending.
        embeddings: shape (M, D), float16 or float32.
        columns: of the heads that tell junk, by name, shape (M,) each.
        missing: what is wrong with other rows' embeddings -> how many.
    """

    rows: Rows
    at: NDArray[np.int64]
    embeddings: NDArray
    columns: Mapping[str, NDArray[np.float64]]
    missing: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.at)

    def in_table(self, columns: Mapping[str, NDArray[np.float32]]) -> dict[str, pa.Array]:
        """Return columns of the M rows as columns of the table, in its order; null for the other rows."""
        place = self.rows.place[self.at]
        absent = np.ones(len(self.rows), bool)
        absent[place] = False
        found = {}
        for name, values in columns.items():
            whole = np.zeros(len(self.rows), np.float32)
            whole[place] = values
            found[name] = pa.array(whole, mask=absent)
        return found


def read_heap(table: Table, *, names: tuple[str, ...] = (), heads: tuple[str, ...] | None = None) -> Heap:
    """Read what a score is fitted to; the same whatever the order of the table.

    Args:
        table: scored, with embeddings.
        names: columns of classes to read as well, into ``rows.names``.
        heads: columns of the heads to read; None for those that tell junk.

    Raises:
        InputError: for a table without embeddings, or a column that it lacks.
    """
    if EMBEDDING not in table.schema.names:
        raise InputError(
            f"{table.path} has no column {EMBEDDING!r}, which a score is fitted to; score the images again without "
            "--no-embedding, or name a column of your own with --embedding"
        )
    of_heads = columns_for_junk(table.schema.names) if heads is None else heads
    rows = read_rows(table, Needs(numbers=of_heads, names=names, representations=EMBEDDINGS), by_hash=True)
    at = rows.compared()
    if rows.embedding is None:
        raise ValueError("the rows were read with embeddings")
    columns = {name: rows.numbers[name][at] for name in of_heads}
    return Heap(rows, at, rows_of(rows.embedding, at), columns, rows.not_compared())
