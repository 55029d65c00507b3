"""Subsets with added columns or another row order: written in bounded memory, and verified."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY
from curate.policies.decided import Differ, Problem
from curate.policies.findings import OTHER_COLUMNS, RANK, VALUE, Difference, Finding
from curate.tables.arrays import unequal
from curate.tables.digests import key_array, shown_keys, tie_breaks
from curate.tables.keys import places, row_hashes
from curate.tables.table import Table
from scoring.errors import InputError

CHUNK_ROWS = 16_384
CHUNK_BYTES = 64 << 20
SOURCE = "source_"
CLOSE = 1e-5  # numbers of another machine may differ by their last bits
N_LOOKED_AT = 16_384  # differing rows at a time


class Ranked:
    """Receives kept rows in table order and yields them in the order of the picks; an ``Arranged``.

    If the orders differ, rows are buffered in a temporary file, so a batch may be larger than memory.

    Args:
        schema: of the table.
        picks: table row of each pick, in the order picked, shape (K,).
        of_picks: added columns of the picks, K rows in the order of the picks.
        meanings: of these columns.

    Raises:
        InputError: if the table has both an added column's name and the name that its own would be renamed to.
    """

    def __init__(
        self, schema: pa.Schema, picks: NDArray[np.int64], of_picks: pa.Table, meanings: Mapping[str, str]
    ) -> None:
        self._own = passed_through(schema, of_picks.schema.names)
        self.schema = pa.schema([*self._own, *of_picks.schema])
        self.meanings = meanings
        self._of_picks = of_picks
        self._waiting_at = np.argsort(np.argsort(picks))  # rank of each pick among the kept rows
        self._is_table_order = bool((self._waiting_at == np.arange(len(picks))).all())
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._writer: pa.RecordBatchFileWriter | None = None
        self._starts = [0]

    def add(self, kept: pa.RecordBatch) -> list[pa.Table]:
        """Add the next kept rows, in table order; return the parts that can be written already."""
        start = self._starts[-1]
        self._starts.append(start + kept.num_rows)
        if self._is_table_order:
            return [self._joined(kept.columns, start, kept.num_rows)]
        with _disk_errors():
            if self._writer is None:
                self._folder = tempfile.TemporaryDirectory(prefix="curate-")
                self._path = Path(self._folder.name) / "kept.arrow"
                self._writer = pa.ipc.new_file(str(self._path), kept.schema)
            self._writer.write_batch(kept)
        return []

    def _joined(self, columns: list[pa.ChunkedArray] | list[pa.Array], start: int, n_rows: int) -> pa.Table:
        """Return columns of the table with the added columns of the n picks from ``start`` on."""
        added = self._of_picks.slice(start, n_rows)
        return pa.Table.from_arrays([*columns, *added.columns], schema=self.schema)

    def finish(self) -> Iterator[pa.Table]:
        """Yield the other rows in the order of the picks, in parts."""
        if self._writer is None:
            return
        with _disk_errors():
            self._writer.close()
        size = max(1, min(CHUNK_ROWS, CHUNK_BYTES * self._starts[-1] // max(1, self._path.stat().st_size)))
        with pa.memory_map(str(self._path)) as file:
            batches = pa.ipc.open_file(file)
            for start in range(0, len(self._waiting_at), size):
                ranked = self._take(batches, self._waiting_at[start : start + size])
                yield self._joined(ranked.columns, start, ranked.num_rows)

    def _take(self, batches: pa.RecordBatchFileReader, places: NDArray[np.int64]) -> pa.Table:
        """Return buffered rows, in the given order."""
        order = np.argsort(places)
        rows = places[order]
        pieces = []
        for number in np.unique(np.searchsorted(self._starts, rows, side="right") - 1).tolist():
            first, last = np.searchsorted(rows, [self._starts[number], self._starts[number + 1]])
            pieces.append(batches.get_batch(number).take(pa.array(rows[first:last] - self._starts[number])))
        taken = pa.Table.from_batches(pieces).combine_chunks()
        return taken.take(pa.array(np.argsort(order)))

    def close(self) -> None:
        """Remove the temporary file."""
        if self._folder is not None:
            self._folder.cleanup()


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Raise InputError, naming the temporary folder, if its disk is full inside the block."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise InputError(
            f"{tempfile.gettempdir()} has no room for the rows to be sorted ({reason}); set the environment "
            "variable TMPDIR to a folder on a larger disk"
        ) from None


def passed_through(schema: pa.Schema, taken: list[str]) -> list[pa.Field]:
    """Return the table's columns; conflicting names become ``source_<name>``; InputError if that name exists too."""
    names = set(schema.names)
    fields = []
    for field in schema:
        name = SOURCE + field.name if field.name in taken else field.name
        if name != field.name and name in names:
            raise InputError(
                f"the batch gets a column {field.name!r}, and the table has both that and {name!r}; rename one of them"
            )
        fields.append(field.with_name(name))
    return fields


@dataclass(frozen=True)
class Expected:
    """The columns that a subset adds to its K rows.

    Attributes:
        columns: the added columns, K rows.
        hashes: of their keys, shape (K,) uint64.
        rows: indices in the table, shape (K,) int64.
        ordered: whether the order of the rows must match.
        file: its name in messages: ``subset`` or ``batch``.
    """

    columns: pa.Table
    hashes: NDArray[np.uint64]
    rows: NDArray[np.int64]
    ordered: bool
    file: str = "subset"


def compare_arranged(source: Table, expected: Expected, subset: Table, differ: Differ, problem: Problem) -> None:
    """Compare a subset with a repeated decision: its added columns and the table's columns.

    Args:
        source: the input, its rows in any order.
        expected: the repeated decision.
        subset: as written.
        differ: called for each different row.
        problem: called for each other difference.
    """
    source, columns = source.stored, expected.columns
    fields = passed_through(source.schema, columns.schema.names)
    if [(field.name, field.type) for field in subset.schema] != [(f.name, f.type) for f in (*fields, *columns.schema)]:
        problem(Finding(OTHER_COLUMNS, expected.file))
        return
    noted = subset.read([KEY, *columns.schema.names])
    keys = shown_keys(noted.column(KEY))
    rows = places(tie_breaks(key_array(noted.column(KEY).combine_chunks())), expected.hashes)
    if expected.ordered:
        for at in np.flatnonzero((rows >= 0) & (rows != np.arange(len(rows)))).tolist():
            differ(Difference(RANK, keys[at], int(rows[at]) + 1, at + 1))
    for name in columns.schema.names:
        for at in unlike(columns.column(name), noted.column(name), rows).tolist():
            differ(Difference(VALUE, keys[at], column=name, file=expected.file))
    names = dict(zip(source.schema.names, (field.name for field in fields), strict=True))
    _compare_columns(source, expected, subset, names, rows, differ)


def unlike(now: pa.ChunkedArray, then: pa.ChunkedArray, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of a subset whose value differs from the table's, up to rounding.

    Args:
        now: the column of the table.
        then: the column of the subset, shape (M,).
        rows: index into ``now`` for each of ``then``, shape (M,); -1 for rows to skip.
    """
    places = np.flatnonzero(rows >= 0)
    return places[unequal(now.take(pa.array(rows[places])), then.take(pa.array(places)), close=CLOSE)]


def _compare_columns(
    source: Table, expected: Expected, subset: Table, names: Mapping[str, str], rows: NDArray[np.int64], differ: Differ
) -> None:
    """Compare the table's columns of shared rows: by the hashes of the rows, then the values of those that differ.

    ``names`` maps the table's columns to the subset's; ``rows`` is the row of ``expected`` of each row of the subset.
    """
    kept = np.zeros(source.n_rows, bool)
    kept[expected.rows] = True
    shared = np.flatnonzero(rows >= 0)
    at = expected.rows[rows[shared]]
    now = row_hashes(source, names, kept)[np.searchsorted(np.flatnonzero(kept), at)]
    differs = now != row_hashes(subset, {name: name for name in names.values()})[shared]
    for start in range(0, int(differs.sum()), N_LOOKED_AT):
        part = slice(start, start + N_LOOKED_AT)
        mine = source.take(at[differs][part], list(names))
        old = subset.take(shared[differs][part], list(names.values()))
        keys = shown_keys(old.column(KEY))
        differing = [(row, new) for name, new in names.items() for row in unequal(mine.column(name), old.column(new))]
        for row, name in sorted(differing, key=lambda each: each[0]):
            differ(Difference(VALUE, keys[row], column=name, file=expected.file))
