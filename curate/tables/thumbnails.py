"""The `thumbnail` column, and the thumbnails of rows of a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import THUMBNAIL
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.images.thumbnail import WIDTH
from scoring.room import space

THUMBNAIL_TYPE = pa.binary(WIDTH)
AT_ONCE = 16_384  # rows
Places = NDArray[np.int64]


def thumbnail_array(thumbnails: Sequence[NDArray[np.uint8] | None]) -> pa.FixedSizeBinaryArray:
    """Return thumbnails, each uint8 of shape (4096,), as a column; None becomes null."""
    return pa.array([None if each is None else each.tobytes() for each in thumbnails], THUMBNAIL_TYPE)


@dataclass(frozen=True)
class Thumbnails:
    """The thumbnails of K rows of a table.

    Attributes:
        rows: indices, ascending, shape (K,).
        values: shape (K, 4096) uint8, in a file if above 2 GB; zeros if absent.
        known: mask of rows with a thumbnail, shape (K,).
    """

    rows: Places
    values: NDArray[np.uint8]
    known: NDArray[np.bool_]

    @classmethod
    def read(cls, table: Table, rows: Places) -> Self:
        """Return the thumbnails of ascending rows, none without the column; InputError if it has another type."""
        has_column = THUMBNAIL in table.schema.names
        values = space((len(rows) if has_column else 0, WIDTH), np.dtype(np.uint8))
        known = np.zeros(len(rows), bool)
        for start in range(0, len(rows) if has_column else 0, AT_ONCE):
            column = table.take(rows[start : start + AT_ONCE], [THUMBNAIL]).column(0)
            places = start + np.flatnonzero(column.is_valid().to_numpy())
            images = column.drop_null().to_pylist()
            if not all(isinstance(each, bytes) and len(each) == WIDTH for each in images):
                raise InputError(
                    f"expected `{THUMBNAIL}` to hold {WIDTH} bytes a row, got others in {table.path}; score the images "
                    "again, or use --finder bytes"
                )
            values[places] = np.frombuffer(b"".join(images), np.uint8).reshape(-1, WIDTH)
            known[places] = True
        return cls(rows, values, known)

    def at(self, rows: Places) -> Places:
        """Return the indices of rows (P,) among these rows, which must include them."""
        return np.searchsorted(self.rows, rows)
