"""What conditions compare: columns, literals, and what is computed of them row by row, evaluated with Arrow.

Arithmetic and functions of numbers are in double precision. A row without a value (null, NaN or blank text)
in any part has none in the whole, nor has a division by zero.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from curate.tables.arrays import has_value
from curate.tables.digests import is_text

NUMBER, TEXT, BOOL, TIME, OTHER = "number", "text", "bool", "time", "other"
KINDS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    TEXT: (pa.types.is_string, pa.types.is_large_string),
    NUMBER: (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    BOOL: (pa.types.is_boolean,),
    TIME: (pa.types.is_date, pa.types.is_timestamp),
}
Evaluate = Callable[[pa.RecordBatch], Any]


@dataclass(frozen=True)
class Operand:
    """A column, a literal, or what is computed of some.

    Attributes:
        kind: what it may be compared with.
        name: as in the condition, for messages.
        type: of its values; None for a literal.
        value: the literal.
        read: its values for the rows of a batch; None for a literal.
    """

    kind: str
    name: str
    type: pa.DataType | None = None
    value: Any = None
    read: Evaluate | None = None

    def array(self, batch: pa.RecordBatch) -> Any:
        """Return the values for the rows of a batch, null instead of NaN; a literal is a scalar."""
        return pa.scalar(self.value) if self.read is None else self.read(batch)

    @property
    def with_type(self) -> str:
        """The name, and the type of what is no literal."""
        return self.name if self.type is None else f"{self.name!r} ({self.type})"


@dataclass(frozen=True)
class Function:
    """A function of the values of one row: kinds of its arguments and of its result, and how many it takes."""

    takes: str
    gives: str
    compute: Callable[..., Any]
    most: int | None = 1  # arguments; None for any number from 2 on


FUNCTIONS: dict[str, Function] = {
    "abs": Function(NUMBER, NUMBER, pc.abs),
    "sqrt": Function(NUMBER, NUMBER, pc.sqrt),
    "ln": Function(NUMBER, NUMBER, pc.ln),
    "floor": Function(NUMBER, NUMBER, pc.floor),
    "ceil": Function(NUMBER, NUMBER, pc.ceil),
    "least": Function(NUMBER, NUMBER, lambda *values: pc.min_element_wise(*values, skip_nulls=False), None),
    "greatest": Function(NUMBER, NUMBER, lambda *values: pc.max_element_wise(*values, skip_nulls=False), None),
    "length": Function(TEXT, NUMBER, pc.utf8_length),
    "lower": Function(TEXT, TEXT, pc.utf8_lower),
    "upper": Function(TEXT, TEXT, pc.utf8_upper),
    "trim": Function(TEXT, TEXT, pc.utf8_trim_whitespace),
}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "/": lambda left, right: pc.divide(left, pc.if_else(pc.equal(right, 0.0), pa.scalar(None, pa.float64()), right)),
}


def column_operand(name: str, kind: pa.DataType) -> Operand:
    """Return a column of a table; of the kind ``other`` if it can only be requested whether it has a value."""
    value_type = kind.value_type if pa.types.is_dictionary(kind) else kind
    word = next((word for word, checks in KINDS.items() if any(check(value_type) for check in checks)), OTHER)
    return Operand(word, name, value_type, read=lambda batch: _values(batch.column(name)))


def _values(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    if pa.types.is_floating(column.type):
        return _without_nan(column)
    if is_text(column.type):  # an empty cell is no value, as everywhere
        return pc.if_else(has_value(column), column, pa.scalar(None, column.type))
    return column


def _without_nan(values: Any) -> Any:
    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)


def combined(first: Operand, rest: Sequence[tuple[str, Operand]]) -> Operand:
    """Return a sum or a product of numbers, from left to right; each of ``rest`` with the sign before it."""
    name = " ".join([first.name, *(f"{sign} {each.name}" for sign, each in rest)])

    def read(batch: pa.RecordBatch) -> Any:
        value = as_double(first.array(batch))
        for sign, each in rest:
            value = _without_nan(ARITHMETIC[sign](value, as_double(each.array(batch))))
        return value

    return Operand(NUMBER, name, pa.float64(), read=read)


def called(name: str, arguments: Sequence[Operand]) -> Operand:
    """Return a function of operands, which are of the kind that it takes."""
    function = FUNCTIONS[name]

    def read(batch: pa.RecordBatch) -> Any:
        values = [each.array(batch) for each in arguments]
        if function.takes == NUMBER:
            return _without_nan(function.compute(*map(as_double, values)))
        result = function.compute(*(value.cast(pa.large_string()) for value in values))
        return as_double(result) if function.gives == NUMBER else result

    kind = pa.float64() if function.gives == NUMBER else pa.large_string()
    return Operand(function.gives, f"{name}({', '.join(each.name for each in arguments)})", kind, read=read)


def as_double(values: Any) -> Any:
    """Return numbers as float64, and other values as they are."""
    number = any(check(values.type) for check in KINDS[NUMBER])
    return values.cast(pa.float64(), safe=False) if number else values


def literal(value: Operand, column: Operand) -> pa.Scalar:
    """Return a literal as a scalar that compares exactly with the values of ``column``.

    Raises:
        pa.ArrowException | OverflowError: if it is not a value of that type.
        TypeError: if values of the two kinds do not compare.
    """
    if column.kind == TIME and value.kind == TEXT:
        return pa.scalar(value.value).cast(column.type)
    if value.kind != column.kind:
        raise TypeError(f"{column.kind} does not compare with {value.kind}")
    return _number(value.value, column.type) if value.kind == NUMBER else pa.scalar(value.value)


def _number(value: float, kind: pa.DataType | None) -> pa.Scalar:
    """A number in the column's own precision, so that 0.1 equals a float32 column's 0.1."""
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        if pa.types.is_float16(kind):
            value = pa.scalar(float(value), pa.float16()).as_py()
        return pa.scalar(float(value), pa.float32())
    if pa.types.is_integer(kind) and isinstance(value, int):
        unsigned = pa.types.is_uint64(kind) and value >= 0
        if unsigned or value.bit_length() <= 63:
            return pa.scalar(value, pa.uint64() if unsigned else pa.int64())
        return pa.scalar(float(value))
    return pa.scalar(float(value), pa.float64())


def widened(values: Any, scalar: pa.Scalar) -> Any:
    """Return column values in a type that Arrow compares with the scalar without overflow."""
    decimal = pa.types.is_decimal(values.type)
    if decimal or (pa.types.is_uint64(values.type) and pa.types.is_int64(scalar.type)):
        return values.cast(pa.float64(), safe=False)
    if pa.types.is_integer(values.type) and pa.types.is_floating(scalar.type):
        return values.cast(pa.float64(), safe=False)
    return values
