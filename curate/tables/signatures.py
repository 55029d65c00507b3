"""The `signature` column: images' signatures as fixed-size binary, and back as a matrix."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import SIGNATURE
from scoring.errors import InputError
from scoring.images.signature import WIDTH

SIGNATURE_TYPE = pa.binary(WIDTH)


def signature_array(signatures: Sequence[NDArray[np.int8] | None]) -> pa.FixedSizeBinaryArray:
    """Return signatures, each int8 of shape (255,), as a column; None becomes null.

    Raises:
        ValueError: if one has another length.
    """
    try:
        return pa.array(
            [None if signature is None else signature.tobytes() for signature in signatures], SIGNATURE_TYPE
        )
    except pa.ArrowInvalid as error:
        raise ValueError(f"signatures have {WIDTH} numbers of type int8: {error}") from None


def signature_matrix(column: pa.ChunkedArray | pa.Array) -> NDArray[np.int8]:
    """Return a signature column as a matrix; a null row becomes zeros, which compare with nothing.

    Args:
        column: N values of 255 bytes, of fixed or of varying size (as other tools may have written them).

    Returns:
        int8, shape (N, 255), contiguous; of one fixed-size chunk without nulls a read-only view.

    Raises:
        InputError: if the column holds something else.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if len(chunks) == 1:
        return _matrix(chunks[0])
    out = np.empty((len(column), WIDTH), np.int8)
    start = 0
    for chunk in chunks:
        out[start : start + len(chunk)] = _matrix(chunk)
        start += len(chunk)
    return out


def _matrix(array: pa.Array) -> NDArray[np.int8]:
    fixed = _fixed(array)
    data = fixed.buffers()[1]
    if data is None or not len(fixed):
        return np.zeros((len(fixed), WIDTH), np.int8)
    flat = np.frombuffer(data, np.int8, count=len(fixed) * WIDTH, offset=fixed.offset * WIDTH)
    matrix = flat.reshape(len(fixed), WIDTH)
    if fixed.null_count:
        matrix = matrix.copy()
        matrix[fixed.is_null().to_numpy(zero_copy_only=False)] = 0
    return matrix


def _fixed(array: pa.Array) -> pa.FixedSizeBinaryArray:
    kind = array.type
    if kind == SIGNATURE_TYPE:
        return array
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)):
        raise InputError(f"expected `{SIGNATURE}` to hold {WIDTH} bytes a row, got {kind}; score the images again")
    plain = array.cast(pa.large_binary())
    lengths = pc.binary_length(plain)
    wrong = pc.fill_null(pc.not_equal(lengths, WIDTH), False)
    if pc.any(wrong).as_py():
        row = pc.index(wrong, True).as_py()
        raise InputError(
            f"expected `{SIGNATURE}` to hold {WIDTH} bytes a row, got {lengths[row]} (row {row} of a batch); "
            "score the images again"
        )
    return plain.cast(SIGNATURE_TYPE)
