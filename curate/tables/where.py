"""Conditions on columns as people write them: ``label == "cat" and width >= 200``.

A condition is parsed into a small tree and evaluated with Arrow; no text of it is ever run as code.
Logic is SQL's, with three values: where a column has no value (null or NaN) a comparison has none either.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from scoring.errors import InputError
from scoring.lookup import closest

MAX_LENGTH = 10_000  # characters of a condition
MAX_DEPTH = 50  # nested brackets and nots
TOKEN = re.compile(
    r"""\s*(?:(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |`(?P<quoted>[^`]+)`
    |(?P<symbol>==|!=|<>|<=|>=|=|<|>|\(|\)|,)
    |(?P<word>[^\W\d]\w*))""",
    re.VERBOSE,
)
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": pc.equal,
    "=": pc.equal,
    "!=": pc.not_equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
KEYWORDS = frozenset({"and", "or", "not", "in", "is", "null", "like", "true", "false"})
EXAMPLE = "write it like: label == \"cat\" and width >= 200, format in ('jpeg', 'png'), label is not null"

Evaluate = Callable[[pa.RecordBatch], Any]


@dataclass(frozen=True)
class Condition:
    """A parsed condition.

    Attributes:
        text: as typed.
        columns: the columns that it reads, in order of appearance.
    """

    text: str
    columns: tuple[str, ...]
    _evaluate: Evaluate

    def __call__(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true, false or null for each of the N rows; ``batch`` must hold ``columns``."""
        result = self._evaluate(batch)
        if isinstance(result, pa.Scalar):
            return pa.repeat(result, batch.num_rows)
        return result


def parse_condition(text: str, schema: pa.Schema, *, flag: str = "--where") -> Condition:
    """Parse ``text`` and check it against the columns of a table.

    Args:
        text: comparisons (``== != < <= > >=``), ``in (...)``, ``like "a%"``, ``is [not] null``, joined by
            ``and``, ``or``, ``not`` and brackets. Text stands in single or double quotes; a column whose name
            is not a plain word in backticks.
        schema: the columns that may be named.
        flag: of the option, for messages.

    Raises:
        InputError: if the text cannot be understood, names a column that is not there, or compares values of
            different kinds.
    """
    if len(text) > MAX_LENGTH:
        raise InputError(f"{flag} takes at most {MAX_LENGTH:,} characters, got {len(text):,}")
    return _Parser(text, schema, flag).parse()


@dataclass(frozen=True)
class _Operand:
    """A column or a literal: its kind decides what it may be compared with."""

    kind: str  # number, text, bool, time
    name: str  # as in the condition, for messages
    value: Any  # the literal; None for a column
    type: pa.DataType | None  # of the column; None for a literal

    def array(self, batch: pa.RecordBatch) -> Any:
        column = batch.column(self.name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_float16(column.type):
            column = column.cast(pa.float32())
        if pa.types.is_floating(column.type):
            return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        return column


class _Parser:
    """Recursive descent: or > and > not > comparison."""

    def __init__(self, text: str, schema: pa.Schema, flag: str) -> None:
        self.text, self.flag = text, flag
        self.schema = schema
        self.columns: list[str] = []
        self.tokens = self._tokens()
        self.at = 0
        self.depth = 0

    def _fail(self, what: str) -> InputError:
        shown = self.text if len(self.text) <= 120 else f"{self.text[:80]} ... ({len(self.text):,} characters)"
        return InputError(f"cannot understand {self.flag} {shown!r}: {what}; {EXAMPLE}")

    def _tokens(self) -> list[tuple[str, str]]:
        tokens, at, end = [], 0, len(self.text.rstrip())
        while at < end:
            match = TOKEN.match(self.text, at)
            if match is None:
                raise self._fail(f"unexpected {self.text[at:].strip()[:20]!r} at character {at + 1}")
            kind = str(match.lastgroup)
            word = match.group(kind)
            if kind == "word" and word.lower() in KEYWORDS:
                kind, word = "keyword", word.lower()
            tokens.append((kind, word))
            at = match.end()
        return [*tokens, ("end", "")]

    def _take(self, *words: str) -> bool:
        """Step over the next token if it is one of these symbols or keywords."""
        kind, word = self.tokens[self.at]
        if kind in ("symbol", "keyword") and word in words:
            self.at += 1
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._fail(f"expected {word!r} before {self.tokens[self.at][1] or 'the end'!r}")

    def parse(self) -> Condition:
        evaluate = self._or()
        if self.tokens[self.at][0] != "end":
            raise self._fail(f"expected 'and', 'or' or the end, got {self.tokens[self.at][1]!r}")
        return Condition(self.text, tuple(dict.fromkeys(self.columns)), evaluate)

    def _or(self) -> Evaluate:
        parts = [self._and()]
        while self._take("or"):
            parts.append(self._and())
        return _joined(pc.or_kleene, parts)

    def _and(self) -> Evaluate:
        parts = [self._not()]
        while self._take("and"):
            parts.append(self._not())
        return _joined(pc.and_kleene, parts)

    def _not(self) -> Evaluate:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._fail(f"more than {MAX_DEPTH} nested brackets")
        if self._take("not"):
            inner = self._not()
            result = _inverted(inner)
        elif self._take("("):
            result = self._or()
            self._expect(")")
        else:
            result = self._comparison()
        self.depth -= 1
        return result

    def _comparison(self) -> Evaluate:
        left = self._operand()
        if self._take("is"):
            negated = self._take("not")
            self._expect("null")
            column = self._column_only(left, "is null")
            return (lambda b: pc.is_valid(column.array(b))) if negated else (lambda b: pc.is_null(column.array(b)))
        negated = self._take("not")
        if self._take("in"):
            result = self._membership(left)
        elif self._take("like"):
            result = self._like(left)
        elif negated:
            raise self._fail("expected 'in' or 'like' after 'not'")
        else:
            return self._compared(left)
        return _inverted(result) if negated else result

    def _compared(self, left: _Operand) -> Evaluate:
        kind, word = self.tokens[self.at]
        if kind != "symbol" or word not in COMPARISONS:
            if left.kind == "bool" and left.type is not None:
                return left.array  # a true/false column stands for itself
            raise self._fail(f"expected a comparison after {left.name!r}")
        self.at += 1
        right = self._operand()
        compare = COMPARISONS[word]
        if left.type is None and right.type is None:
            raise self._fail(f"{left.name!r} and {right.name!r} are both values; name a column")
        if left.type is None:
            scalar = self._literal(left, right)
            return lambda b: compare(scalar, _widened(right.array(b), scalar))
        if right.type is None:
            scalar = self._literal(right, left)
            return lambda b: compare(_widened(left.array(b), scalar), scalar)
        if left.kind != right.kind or left.kind == "time":
            raise self._fail(f"columns {left.name!r} ({left.type}) and {right.name!r} ({right.type}) do not compare")
        return lambda b: compare(_as_double(left.array(b)), _as_double(right.array(b)))

    def _membership(self, left: _Operand) -> Evaluate:
        column = self._column_only(left, "in")
        self._expect("(")
        scalars = [self._literal(self._operand(), column)]
        while self._take(","):
            scalars.append(self._literal(self._operand(), column))
        self._expect(")")

        def evaluate(batch: pa.RecordBatch) -> Any:
            values = column.array(batch)
            found: Any = pc.equal(_widened(values, scalars[0]), scalars[0])
            for scalar in scalars[1:]:
                found = pc.or_kleene(found, pc.equal(_widened(values, scalar), scalar))
            return found

        return evaluate

    def _like(self, left: _Operand) -> Evaluate:
        column = self._column_only(left, "like")
        pattern = self._operand()
        if column.kind != "text" or pattern.kind != "text" or pattern.type is not None:
            raise self._fail("'like' takes a text column and a pattern in quotes (% any text, _ one character)")
        return lambda b: pc.match_like(column.array(b), pattern.value)

    def _column_only(self, operand: _Operand, verb: str) -> _Operand:
        if operand.type is None:
            raise self._fail(f"{verb!r} needs a column on its left, got the value {operand.name!r}")
        return operand

    def _operand(self) -> _Operand:
        kind, word = self.tokens[self.at]
        self.at += 1
        if kind in ("word", "quoted"):
            return self._column(word)
        if kind == "number":
            number = int(word) if re.fullmatch(r"[+-]?[0-9]{1,19}", word) else float(word)
            return _Operand("number", word, number, None)
        if kind == "text":
            return _Operand("text", word, re.sub(r"\\(.)", r"\1", word[1:-1]), None)
        if kind == "keyword" and word in ("true", "false"):
            return _Operand("bool", word, word == "true", None)
        if word == "null":
            raise self._fail("compare with null by 'is null' or 'is not null'")
        raise self._fail(f"expected a column or a value, got {word or 'the end'!r}")

    def _column(self, name: str) -> _Operand:
        if name not in self.schema.names:
            raise InputError(
                f"{self.flag} {self.text!r} names a column {name!r} that the table does not have"
                f"{closest(name, self.schema.names)} (text is written in quotes; columns: "
                f"{', '.join(self.schema.names)})"
            )
        self.columns.append(name)
        kind = self.schema.field(name).type
        value_type = kind.value_type if pa.types.is_dictionary(kind) else kind
        return _Operand(self._kind(name, value_type), name, None, value_type)

    def _kind(self, name: str, kind: pa.DataType) -> str:
        tests = {
            "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
            "number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
            "bool": (pa.types.is_boolean,),
            "time": (pa.types.is_date, pa.types.is_timestamp),
        }
        for word, checks in tests.items():
            if any(check(kind) for check in checks):
                return word
        if self.tokens[self.at] == ("keyword", "is"):
            return "other"
        raise self._fail(f"column {name!r} is {kind}, which can only be asked 'is null' or 'is not null'")

    def _literal(self, literal: _Operand, column: _Operand) -> pa.Scalar:
        """The literal as a scalar that compares exactly with the column's type."""
        if literal.type is not None:
            raise self._fail(f"expected a value in the list, got the column {literal.name!r}")
        try:
            if column.kind == "time" and literal.kind == "text":
                return pa.scalar(literal.value).cast(column.type)
            if literal.kind == column.kind:
                return _number(literal.value, column.type) if literal.kind == "number" else pa.scalar(literal.value)
        except (pa.ArrowException, OverflowError):
            raise self._fail(f"{literal.name} is not a value of column {column.name!r} ({column.type})") from None
        raise self._fail(f"column {column.name!r} is {column.type}, which does not compare with {literal.name}")


def _number(value: float, kind: pa.DataType | None) -> pa.Scalar:
    """A number in the column's own precision, so that 0.1 equals a float32 column's 0.1."""
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        if pa.types.is_float16(kind):
            value = pa.scalar(float(value), pa.float16()).as_py()
        return pa.scalar(float(value), pa.float32())
    if pa.types.is_integer(kind) and isinstance(value, int):
        whole = pa.uint64() if pa.types.is_uint64(kind) and value >= 0 else pa.int64()
        return pa.scalar(value, whole) if value.bit_length() <= 63 or whole == pa.uint64() else pa.scalar(float(value))
    return pa.scalar(float(value), pa.float64())


def _widened(values: Any, scalar: pa.Scalar) -> Any:
    """Column values in a type that Arrow compares with the scalar without overflow."""
    decimal = pa.types.is_decimal(values.type)
    if decimal or (pa.types.is_uint64(values.type) and pa.types.is_int64(scalar.type)):
        return values.cast(pa.float64(), safe=False)
    if pa.types.is_integer(values.type) and pa.types.is_floating(scalar.type):
        return values.cast(pa.float64(), safe=False)
    return values


def _as_double(values: Any) -> Any:
    number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_decimal(values.type)
    return values.cast(pa.float64(), safe=False) if number else values


def _joined(join: Callable[[Any, Any], Any], parts: list[Evaluate]) -> Evaluate:
    return parts[0] if len(parts) == 1 else lambda batch: reduce(join, (part(batch) for part in parts))


def _inverted(inner: Evaluate) -> Evaluate:
    return lambda batch: pc.invert(inner(batch))
