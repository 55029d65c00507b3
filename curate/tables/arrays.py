"""Conversion of a column of a batch to an array: numbers, codes, text, missing values, and comparable types."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import OK, QUALITY, QUALITY_COLUMNS
from curate.tables.digests import is_text, plain
from scoring.errors import InputError

EXACT_DIGITS = 15  # of decimals that all differ as float64
TRUE, FALSE, UNKNOWN = 1, 0, -1  # of a condition on a row


def exact_numbers(column: pa.Array, name: str = "a column") -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return values in the column's precision (float32 for float16), and a mask of those neither null nor NaN.

    Raises InputError for decimals of more than 15 digits, since distinct ones may be equal as float64.
    """
    if pa.types.is_decimal(column.type):
        column = _as_double(column, name)
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    valid = np.array(column.is_valid().to_numpy(zero_copy_only=False), bool)
    filled = pc.fill_null(column, 0) if column.null_count else column
    values = filled.to_numpy(zero_copy_only=False)
    if np.issubdtype(values.dtype, np.floating):
        valid &= ~np.isnan(values)
    return values, valid


def quality_values(images: Iterable[Any]) -> dict[str, NDArray[np.float64]]:
    """Return the columns ``quality_*`` of measured images, each a ``Quality`` or None, NaN for no value."""
    measured = list(images)
    return {
        name: np.array([getattr(each, name.removeprefix(QUALITY), None) for each in measured], np.float64)
        for name in QUALITY_COLUMNS
    }


def _as_double(column: pa.Array, name: str) -> pa.Array:
    """Return the nearest float64 of decimals, which preserves comparisons for at most 15 digits."""
    scale = column.type.scale
    for places in range(scale, min(scale, 0) - 1, -1):  # zeros at the end of all of them are no digits
        with suppress(pa.ArrowInvalid):
            column.cast(pa.decimal128(EXACT_DIGITS, places))
            return column.cast(pa.string()).cast(pa.float64())  # without the text Arrow multiplies by 0.1, which rounds
    raise InputError(
        f"expected at most {EXACT_DIGITS} digits in a decimal that ranks, or is compared with a bound, got more in "
        f"{name} of type {column.type}; cast it to double, which rounds"
    )


def nan_as_null(column: pa.Array) -> pa.Array:
    """Return the values without dictionary encoding, null instead of NaN."""
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    return plain(column)


def coded(
    column: pa.Array, seen: dict[Any, int], values: Callable[[pa.Array], pa.Array] = nan_as_null
) -> NDArray[np.int32]:
    """Return integer codes for ``values`` of a column, consistent over all batches; null has a code."""
    is_coded = pa.types.is_dictionary(column.type)
    encoded = (column.indices if is_coded else column).dictionary_encode(null_encoding="encode")
    distinct = values(column.dictionary.take(encoded.dictionary) if is_coded else encoded.dictionary)
    codes = [seen.setdefault(value, len(seen)) for value in distinct.to_pylist()]
    return np.asarray(np.array(codes, np.int32)[encoded.indices.to_numpy(zero_copy_only=False)])


def is_ok(status: pa.Array) -> NDArray[np.bool_]:
    """Return a mask of the statuses that are ``ok``, shape (N,); False for null."""
    is_coded = pa.types.is_dictionary(status.type)
    same = pc.equal(status.dictionary, OK).take(status.indices) if is_coded else pc.equal(status, OK)
    return np.asarray(pc.fill_null(same, False).to_numpy(zero_copy_only=False), bool)


def has_value(column: pa.Array) -> pa.BooleanArray:
    """Return a mask of the values that are not null, NaN or blank text, such as an empty CSV cell."""
    values = plain(column)
    if is_text(values.type):
        return pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(values), ""), False)
    return pc.invert(pc.is_null(values, nan_is_null=True))


def texts(column: pa.Array) -> pa.Array:
    """Return values as text; null if missing, so that two missing values are not equal."""
    return pc.if_else(has_value(column), plain(column).cast(pa.large_string()), pa.scalar(None, pa.large_string()))


def unequal(left: pa.Array | pa.ChunkedArray, right: pa.Array | pa.ChunkedArray, *, close: float = 0.0) -> list[int]:
    """Return the rows in which two columns differ, lists by all their values; NaN equals NaN.

    Floating numbers may differ by ``close``, absolutely or relative to the second.
    """
    if close and pa.types.is_floating(left.type):
        same = np.isclose(np.asarray(left), np.asarray(right), rtol=close, atol=close, equal_nan=True)
        return [int(row) for row in np.flatnonzero(~same)]
    pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return [row for row, (a, b) in enumerate(pairs) if a != b and repr(a) != repr(b)]


NUMBER, TEXT, BOOL, TIME, OTHER = "number", "text", "bool", "time", "other"
MOST_DIGITS = 38  # of a decimal


def common_type(*kinds: pa.DataType) -> Any:
    """Return the type for comparing two numeric columns: exact for integers and decimals if possible."""
    if all(map(pa.types.is_integer, kinds)):
        return pl.Int128
    if all(pa.types.is_integer(kind) or is_exact(kind) for kind in kinds):
        places = [0 if pa.types.is_integer(kind) else kind.scale for kind in kinds]
        before = [20 if pa.types.is_integer(kind) else min(kind.precision, MOST_DIGITS) - kind.scale for kind in kinds]
        if max(before) + max(places) <= MOST_DIGITS:
            return pl.Decimal(MOST_DIGITS, max(places))
    return pl.Float64


def is_exact(kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type are compared as decimals, with all digits."""
    return bool(pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind)) and 0 <= kind.scale <= MOST_DIGITS


def kind_of(kind: pa.DataType) -> str:
    """Return the type by which values of an Arrow type are compared."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return NUMBER
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return TIME
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return TEXT
    return BOOL if pa.types.is_boolean(kind) else OTHER


def values_of(column: pa.Array) -> pa.Array:
    """Return values for Polars: null for NaN and blank text, and times as integers in their units.

    Raises InputError for a decimal with more digits than Polars supports.
    """
    values = nan_as_null(column)
    kind = kind_of(values.type)
    if kind == TEXT:
        return texts(values)
    if kind == TIME:
        return values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    if pa.types.is_float16(values.type):
        return values.cast(pa.float32())
    if pa.types.is_decimal256(values.type) and is_exact(values.type):
        try:
            return values.cast(pa.decimal128(MOST_DIGITS, values.type.scale))
        except pa.ArrowInvalid:
            raise InputError(
                f"expected at most {MOST_DIGITS} digits of a decimal in a condition, got more in a column of "
                f"{values.type}; cast it to double, which rounds"
            ) from None
    if pa.types.is_decimal(values.type) and not is_exact(values.type):
        return values.cast(pa.float64(), safe=False)
    return pc.if_else(values.is_valid(), True, pa.scalar(None, pa.bool_())) if kind == OTHER else values


def numbers_of(column: pa.ChunkedArray | pa.Array) -> NDArray[np.float64]:
    """Return a numeric column, NaN for null."""
    wide = pc.fill_null(pc.cast(column, pa.float64(), safe=False), float("nan"))
    return np.asarray(wide.to_numpy() if isinstance(wide, pa.ChunkedArray) else wide.to_numpy(zero_copy_only=False))
