"""The columns `signature` and `thumbnail`: fixed-size binary, and conversion to matrices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import SIGNATURE, THUMBNAIL
from curate.tables.table import Table
from scoring.arrays import zeros_or_memmap
from scoring.errors import InputError
from scoring.images.signature import STORED_WIDTH, WIDTH
from scoring.images.thumbnail import WIDTH as THUMBNAIL_WIDTH

SIGNATURE_TYPE = pa.binary(STORED_WIDTH)
WIDTHS = (STORED_WIDTH, WIDTH)  # with the colours, and as tables had it before they were stored


def signature_array(signatures: Sequence[NDArray[np.int8] | None]) -> pa.FixedSizeBinaryArray:
    """Return signatures, int8 of shape (287,) each, as a column; None becomes null; ValueError for another length."""
    try:
        return pa.array(
            [None if signature is None else signature.tobytes() for signature in signatures], SIGNATURE_TYPE
        )
    except pa.ArrowInvalid as error:
        raise ValueError(f"signatures have {STORED_WIDTH} numbers of type int8: {error}") from None


def signature_matrix(column: pa.ChunkedArray | pa.Array) -> NDArray[np.int8]:
    """Return the grey part of a signature column, (N, 255) int8; null becomes zeros; InputError for another type.

    Values have 287 or 255 bytes, of fixed or variable size (as other tools may have written them).
    """
    return stored_matrix(column)[:, :WIDTH]


def stored_matrix(column: pa.ChunkedArray | pa.Array) -> NDArray[np.int8]:
    """Return a whole signature column, int8, (N, 287), or (N, 255) without colours; InputError for another type.

    A read-only view if it is one fixed-size chunk without nulls.
    """
    chunks = [_fixed(chunk) for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])]
    widths = {chunk.type.byte_width for chunk in chunks if len(chunk)} or {STORED_WIDTH}
    if len(widths) > 1:
        raise InputError(f"`{SIGNATURE}` holds signatures of {sorted(widths)} bytes; score the images again together")
    matrices = [_matrix(chunk) for chunk in chunks if len(chunk)]
    return matrices[0] if len(matrices) == 1 else np.concatenate([np.empty((0, *widths), np.int8), *matrices])


def _matrix(fixed: pa.FixedSizeBinaryArray) -> NDArray[np.int8]:
    width, data = fixed.type.byte_width, fixed.buffers()[1]
    if data is None:
        return np.zeros((len(fixed), width), np.int8)
    matrix = np.frombuffer(data, np.int8, count=len(fixed) * width, offset=fixed.offset * width).reshape(-1, width)
    if fixed.null_count:
        matrix = matrix.copy()
        matrix[fixed.is_null().to_numpy(zero_copy_only=False)] = 0
    return matrix


def _fixed(array: pa.Array) -> pa.FixedSizeBinaryArray:
    kind = array.type
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width in WIDTHS:
        return array
    expected = f"expected `{SIGNATURE}` to hold {STORED_WIDTH} bytes a row"
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)):
        raise InputError(f"{expected}, got {kind}; score the images again")
    plain = array.cast(pa.large_binary())
    lengths = pc.binary_length(plain)
    width = pc.max(lengths).as_py()
    width = width if width in WIDTHS else STORED_WIDTH
    wrong = pc.fill_null(pc.not_equal(lengths, width), False)
    if pc.any(wrong).as_py():
        row = pc.index(wrong, True).as_py()
        raise InputError(f"{expected}, got {lengths[row]} (row {row} of a batch); score the images again")
    return plain.cast(pa.binary(width))


THUMBNAIL_TYPE = pa.binary(THUMBNAIL_WIDTH)
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
        values = zeros_or_memmap((len(rows) if has_column else 0, THUMBNAIL_WIDTH), np.dtype(np.uint8))
        known = np.zeros(len(rows), bool)
        for start in range(0, len(rows) if has_column else 0, AT_ONCE):
            column = table.take(rows[start : start + AT_ONCE], [THUMBNAIL]).column(0)
            places = start + np.flatnonzero(column.is_valid().to_numpy())
            images = column.drop_null().to_pylist()
            if not all(isinstance(each, bytes) and len(each) == THUMBNAIL_WIDTH for each in images):
                raise InputError(
                    f"expected `{THUMBNAIL}` to hold {THUMBNAIL_WIDTH} bytes a row, got others in {table.path}; score "
                    "the images again, or use --finder bytes"
                )
            values[places] = np.frombuffer(b"".join(images), np.uint8).reshape(-1, THUMBNAIL_WIDTH)
            known[places] = True
        return cls(rows, values, known)

    def at(self, rows: Places) -> Places:
        """Return the indices of rows (P,) among these rows, which must include them."""
        return np.searchsorted(self.rows, rows)
