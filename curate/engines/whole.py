"""Scores that need the embeddings of all rows: computed when every shard is there, before the table gets its name."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.columns import EMBEDDING
from curate.tables.table import open_table
from curate.tables.vectors import Embeddings, rows_of
from scoring.scorers import Scorer, scored


def table_columns(parts: Sequence[Path], scorers: Mapping[str, Scorer]) -> dict[str, pa.Array]:
    """Return the columns of scorers that need the whole table, N rows each, float32; null for a row without embedding.

    Args:
        parts: files of the table's rows, in order.
        scorers: each is given the embeddings as stored, shape (M, D), of the M rows that have one.
    """
    n_rows = sum(open_table(path).n_rows for path in parts)
    gathered, start = Embeddings(n_rows, parts[0]), 0
    for path in parts:
        for batch in open_table(path).batches([EMBEDDING]):
            gathered.add(batch.column(0), slice(start, start + len(batch)))
            start += len(batch)
    matrix, problem = gathered.done()
    there = np.flatnonzero(problem == 0)
    given, columns = rows_of(matrix, there), {}
    for name, scorer in scorers.items():
        for column, values in scored(name, scorer, given, len(there)).items():
            whole = np.zeros(n_rows, np.float32)
            whole[there] = values
            columns[column] = pa.array(whole, mask=problem != 0)
    return columns
