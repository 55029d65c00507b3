"""Kept rows in the order of their ranks, with what the choice reports for each, in bounded memory."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scoring.errors import InputError

CHUNK_ROWS = 16_384
CHUNK_BYTES = 64 << 20
SOURCE = "source_"


class Ranked:
    """Takes kept rows in the order of the table, gives them back in the order picked; an ``Arranged``.

    Rows wait in their own file that is gone at the end, so a batch may be larger than memory.

    Args:
        schema: of the table.
        picks: table row of each pick, in the order picked, shape (K,).
        of_picks: columns about the picks, K rows in the order picked.
        meanings: of these columns.

    Raises:
        InputError: if the table has a column of that name, and another that its own would be renamed to.
    """

    def __init__(
        self, schema: pa.Schema, picks: NDArray[np.int64], of_picks: pa.Table, meanings: Mapping[str, str]
    ) -> None:
        self._own = passed_through(schema, of_picks.schema.names)
        self.schema = pa.schema([*self._own, *of_picks.schema])
        self.meanings = meanings
        self._of_picks = of_picks
        self._waiting_at = np.argsort(np.argsort(picks))  # where each pick stands among the kept rows of the table
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._writer: pa.RecordBatchFileWriter | None = None
        self._starts = [0]

    def add(self, kept: pa.RecordBatch) -> None:
        """Take the next kept rows, in the order of the table."""
        with _room():
            if self._writer is None:
                self._folder = tempfile.TemporaryDirectory(prefix="curate-")
                self._path = Path(self._folder.name) / "kept.arrow"
                self._writer = pa.ipc.new_file(str(self._path), kept.schema)
            self._writer.write_batch(kept)
        self._starts.append(self._starts[-1] + kept.num_rows)

    def finish(self) -> Iterator[pa.Table]:
        """Yield the rows in the order picked, in pieces."""
        if self._writer is None:
            return
        with _room():
            self._writer.close()
        size = max(1, min(CHUNK_ROWS, CHUNK_BYTES * self._starts[-1] // max(1, self._path.stat().st_size)))
        with pa.memory_map(str(self._path)) as file:
            batches = pa.ipc.open_file(file)
            for start in range(0, len(self._waiting_at), size):
                ranked = self._take(batches, self._waiting_at[start : start + size])
                of_picks = self._of_picks.slice(start, ranked.num_rows)
                yield pa.Table.from_arrays([*ranked.columns, *of_picks.columns], schema=self.schema)

    def _take(self, batches: pa.RecordBatchFileReader, places: NDArray[np.int64]) -> pa.Table:
        """Return some of the waiting rows, in the order wanted."""
        order = np.argsort(places)
        rows = places[order]
        pieces = []
        for number in np.unique(np.searchsorted(self._starts, rows, side="right") - 1).tolist():
            first, last = np.searchsorted(rows, [self._starts[number], self._starts[number + 1]])
            pieces.append(batches.get_batch(number).take(pa.array(rows[first:last] - self._starts[number])))
        taken = pa.Table.from_batches(pieces).combine_chunks()
        return taken.take(pa.array(np.argsort(order)))

    def close(self) -> None:
        """Remove the file in which rows waited."""
        if self._folder is not None:
            self._folder.cleanup()


@contextmanager
def _room() -> Iterator[None]:
    """Say which folder has no room for the rows that wait: it is not the one that the user named."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise InputError(
            f"{tempfile.gettempdir()} has no room for the rows that wait for their order ({reason}); name a folder on "
            "a larger disk in the environment variable TMPDIR"
        ) from None


def passed_through(schema: pa.Schema, taken: list[str]) -> list[pa.Field]:
    """Return a table's own columns, those whose name is taken as ``source_<name>``.

    Raises:
        InputError: if that name is taken too.
    """
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
