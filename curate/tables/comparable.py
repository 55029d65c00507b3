"""The types in which values of columns are compared in a condition, and their types in Polars."""

from decimal import Context, Decimal, InvalidOperation
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from curate.tables.arrays import nan_as_null, texts
from scoring.errors import InputError

NUMBER, TEXT, BOOL, TIME, OTHER = "number", "text", "bool", "time", "other"
MOST_DIGITS = 38  # of a decimal


def decimal_of(value: float | Decimal, scale: int) -> pl.Expr | None:
    """Return a value as a decimal of some places after the point, or None if it has more digits."""
    try:
        exact = Context(prec=MOST_DIGITS).quantize(Decimal(value), Decimal(1).scaleb(-scale))
    except InvalidOperation:
        return None
    return pl.lit(exact, dtype=pl.Decimal(MOST_DIGITS, scale)) if exact == value else None


def common_type(*kinds: pa.DataType) -> Any:
    """Return the type in which two columns of numbers compare: exact for integers and decimals if possible."""
    if all(map(pa.types.is_integer, kinds)):
        return pl.Int128
    if all(pa.types.is_integer(kind) or is_exact(kind) for kind in kinds):
        places = [0 if pa.types.is_integer(kind) else kind.scale for kind in kinds]
        before = [20 if pa.types.is_integer(kind) else min(kind.precision, MOST_DIGITS) - kind.scale for kind in kinds]
        if max(before) + max(places) <= MOST_DIGITS:
            return pl.Decimal(MOST_DIGITS, max(places))
    return pl.Float64


def is_exact(kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type are compared as decimals, all digits of which count."""
    return bool(pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind)) and 0 <= kind.scale <= MOST_DIGITS


def kind_of(kind: pa.DataType) -> str:
    """Return the type as which values of an Arrow type compare."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return NUMBER
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return TIME
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return TEXT
    return BOOL if pa.types.is_boolean(kind) else OTHER


def values_of(column: pa.Array) -> pa.Array:
    """Return values for Polars: null instead of NaN and of blank text, and times as numbers of their units.

    Raises:
        InputError: for a decimal of more digits than Polars holds.
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
