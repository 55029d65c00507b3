"""Embeddings in a user column: read as ``embedding``, each scaled to unit length."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import EMBEDDING
from curate.tables.digests import is_list, numpy_type
from scoring.errors import InputError

UNIT = 1e-3  # a row whose length is this near 1 stays as it is stored: float16 is no finer
BLOCK = 8_192  # rows at a time, in float64
KINDS = (pa.float16(), pa.float32(), pa.float64())


def unit_field(field: pa.Field, where: object) -> pa.Field:
    """Return the field of a user's embedding column as read: ``embedding``, float32 instead of float64.

    The column has lists of float16, float32 or float64, of fixed size or not; InputError for another type.
    """
    kind = field.type
    if not is_list(kind) or kind.value_type not in KINDS:
        raise InputError(
            f"--embedding: expected lists of float16, float32 or float64 in column {field.name!r} of {where}, "
            f"got {kind}; choose another column, or cast it"
        )
    number = pa.float16() if kind.value_type == pa.float16() else pa.float32()
    if pa.types.is_fixed_size_list(kind):
        return pa.field(EMBEDDING, pa.list_(number, kind.list_size))
    return pa.field(EMBEDDING, pa.large_list(number) if pa.types.is_large_list(kind) else pa.list_(number))


def as_embeddings(
    batches: Iterator[pa.RecordBatch], names: Sequence[str], column: str, field: pa.Field, where: object
) -> Iterator[pa.RecordBatch]:
    """Yield batches with the requested columns ``names``, ``embedding`` computed from the user's column.

    ``batches`` have the user's column instead of ``embedding``; ``field`` is from ``unit_field``. Raises InputError for
    vectors of several lengths.
    """
    width = 0
    for batch in batches:
        made, n_numbers = _as_units(batch.column(column), field.type, column, where)
        if width and n_numbers and n_numbers != width:
            raise _ragged([width, n_numbers], column, where)
        width = width or n_numbers
        columns = [made if name == EMBEDDING else batch.column(name) for name in names]
        fields = [field if name == EMBEDDING else batch.schema.field(name) for name in names]
        yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _as_units(column: pa.Array, kind: pa.DataType, name: str, where: object) -> tuple[pa.Array, int]:
    """Return lists scaled to unit length, and their number of elements; 0 if all rows are null."""
    lengths = np.unique(column.drop_null().value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) > 1:
        raise _ragged(lengths.tolist(), name, where)
    width = int(lengths[0]) if len(lengths) else 0
    if not width:
        return pa.nulls(len(column), kind), 0
    has_value = column.is_valid().to_numpy(zero_copy_only=False)
    matrix = np.full((len(column), width), np.nan, numpy_type(column.type.value_type))
    matrix[has_value] = column.drop_null().flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    values = units(matrix).reshape(-1)
    number = pa.float16() if values.itemsize == 2 else pa.float32()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values, number), width, mask=pa.array(~has_value))
    return lists.cast(kind), width


def units(matrix: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return rows (N, D) at unit length; float16 stays, else float32; zeros, NaN and infinities are unchanged.

    A row that already has unit length is unchanged to the bit.

    >>> units(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    scaled_rows = np.empty(matrix.shape, np.float16 if matrix.itemsize == 2 else np.float32)
    for start in range(0, len(matrix), BLOCK):
        wide = matrix[start : start + BLOCK].astype(np.float64)
        largest = np.abs(wide).max(1, initial=0)
        with np.errstate(all="ignore"):
            scaled = wide / largest[:, None]  # or squares of large numbers are infinite, and of small ones zero
            length = np.sqrt(np.einsum("nd,nd->n", scaled, scaled))
            other = np.isfinite(largest) & (largest > 0) & (np.abs(length * largest - 1) > UNIT)
            wide[other] = scaled[other] / length[other, None]
            scaled_rows[start : start + BLOCK] = wide
    return scaled_rows


def _ragged(lengths: Sequence[int], column: str, where: object) -> InputError:
    return InputError(
        f"--embedding: expected equally many numbers in every row of column {column!r} of {where}, got "
        f"{', '.join(map(str, sorted(lengths)[:5]))}; remove the rows of another model"
    )
