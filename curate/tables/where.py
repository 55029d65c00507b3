"""Conditions on columns, as in ``label == "cat" and width * height >= 40000``.

Conditions are parsed by Python's parser, which only sees operators and placeholders; the tree becomes a Polars
expression. No text of a condition is run, neither as code nor as SQL. Logic is three-valued as in SQL: comparisons with
a missing value (null, NaN or blank text) are null. Sums, products and functions are in double precision; a division by
zero is null.
"""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from functools import reduce
from math import floor
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from curate.tables.arrays import BOOL, NUMBER, OTHER, TEXT, TIME, UNKNOWN, common_type, is_exact, kind_of, values_of
from curate.tables.digests import value_type
from scoring.errors import InputError
from scoring.lookup import closest, name_list

MAX_LENGTH = 10_000  # characters of a condition
SCALED = Context(prec=MAX_LENGTH, Emax=MAX_EMAX, Emin=MIN_EMIN)  # exact for every number in a condition
BEYOND = 11 * 10**37  # larger than all values of integer and decimal columns, in an int128
MAX_STEPS = 100  # signs, nots and functions; the time that Polars needs for nested ones grows with their cube
TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |`(?P<quoted>[^`]+)`
    |(?P<keyword>(?i:is\s+not\s+null|is\s+null|not\s+like|like|and|or|not|in|is|null)(?!\w))
    |(?P<sign>==|!=|<>|<=|>=|=|<|>|\(|\)|,|\+|-|\*|/)
    |(?P<word>[^\W\d]\w*))""",
    re.VERBOSE | re.DOTALL,
)
IN_PYTHON = {  # ``is`` with a pattern stands for ``like``
    **{"=": "==", "<>": "!=", "is null": "is None", "is not null": "is not None", "null": "None"},
    **{"like": "is", "not like": "is not"},
}
COMPARED = (NUMBER, TEXT, BOOL, TIME)
EXAMPLE = "write it like: label == \"cat\" and width >= 200, format in ('jpeg', 'png'), label is not null"
COMPARISONS: dict[type[ast.cmpop], Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    **{ast.Eq: pl.Expr.eq, ast.Lt: pl.Expr.lt, ast.Gt: pl.Expr.gt},
    **{ast.NotEq: pl.Expr.ne, ast.LtE: pl.Expr.le, ast.GtE: pl.Expr.ge},
}
ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[..., pl.Expr]]] = {
    **{ast.Add: ("'+'", pl.Expr.add), ast.Sub: ("'-'", pl.Expr.sub), ast.Mult: ("'*'", pl.Expr.mul)},
    ast.Div: ("'/'", lambda left, right: left / right.replace(0.0, None)),
}


def _of_all(choose: np.ufunc) -> Callable[..., pl.Expr]:
    """Return a function of numbers that is null if any argument is null, unlike in Polars."""

    def chosen(values: Sequence[pl.Series]) -> pl.Series:
        return pl.Series(reduce(choose, [np.broadcast_to(each.to_numpy(), len(values[0])) for each in values[1:]]))

    return lambda *values: pl.map_batches([pl.col("rows"), *values], chosen, return_dtype=pl.Float64)


FUNCTIONS: dict[str, tuple[str, str, Callable[..., pl.Expr]]] = {  # kinds of the arguments and of the result
    "abs": (NUMBER, NUMBER, pl.Expr.abs),
    "sqrt": (NUMBER, NUMBER, pl.Expr.sqrt),
    "ln": (NUMBER, NUMBER, pl.Expr.log),
    "floor": (NUMBER, NUMBER, pl.Expr.floor),
    "ceil": (NUMBER, NUMBER, pl.Expr.ceil),
    "least": (NUMBER, NUMBER, _of_all(np.minimum)),
    "greatest": (NUMBER, NUMBER, _of_all(np.maximum)),
    "length": (TEXT, NUMBER, lambda value: value.str.len_chars()),
    "lower": (TEXT, TEXT, lambda value: value.str.to_lowercase()),
    "upper": (TEXT, TEXT, lambda value: value.str.to_uppercase()),
    "trim": (TEXT, TEXT, lambda value: value.str.strip_chars()),
}


@dataclass(frozen=True)
class Condition:
    """A parsed condition.

    Attributes:
        text: as typed.
        columns: its columns, in order of appearance.
        expression: true, false or null; columns are named by their index in ``columns``.
    """

    text: str
    columns: tuple[str, ...]
    expression: pl.Expr

    def __call__(self, batch: pa.RecordBatch) -> NDArray[np.int8]:
        """Return 1 (true), 0 (false) or -1 (null) for each of the N rows; ``batch`` must have ``columns``.

        A condition on one column in dictionary encoding is evaluated once for each distinct value.
        """
        arrays = [batch.column(name) for name in self.columns]
        if len(arrays) == 1 and pa.types.is_dictionary(arrays[0].type):
            values, codes = arrays[0].dictionary, arrays[0].indices.cast(pa.int64())
            truth = self._evaluated([pa.concat_arrays([values, pa.nulls(1, values.type)])], len(values) + 1)
            return np.asarray(truth[codes.fill_null(len(values)).to_numpy(zero_copy_only=False)])
        return self._evaluated(arrays, batch.num_rows)

    def _evaluated(self, arrays: list[pa.Array], n: int) -> NDArray[np.int8]:
        """Return the truth of each of n rows of the columns, shape (n,)."""
        values = {str(at): pl.Series(values_of(array)) for at, array in enumerate(arrays)}
        rows = pl.Series(pa.nulls(n, pa.bool_()))  # from Arrow: Polars takes 20 ms to learn of NumPy's
        frame = pl.DataFrame({"rows": rows, **values})
        return frame.with_columns(truth=self.expression.cast(pl.Int8).fill_null(UNKNOWN))["truth"].to_numpy()


@dataclass(frozen=True)
class _Operand:
    """A column, a value or a computation; ``type`` is None for a value, ``value`` is None for the others."""

    kind: str
    name: str
    expression: pl.Expr
    type: pa.DataType | None = None
    value: Any = None

    @property
    def with_type(self) -> str:
        return self.name if self.type is None else f"{self.name!r} ({self.type})"


def _as_integers(column: pl.Expr, value: Decimal, scale: int) -> tuple[pl.Expr, pl.Expr]:
    """Return a column, of integers or of decimals with ``scale`` places, and a value, so that both compare exactly."""
    integers = column.to_physical().cast(pl.Int128)
    scaled = max(min(SCALED.scaleb(value, scale), Decimal(BEYOND)), Decimal(-BEYOND))
    below = floor(scaled)
    if below == scaled:
        return integers, pl.lit(below, dtype=pl.Int128)
    return (integers > below).cast(pl.Int8), pl.lit(0.5)  # no integer is equal: 1 if larger, 0 if smaller


def parse_condition(text: str, schema: pa.Schema, *, flag: str = "--where") -> Condition:
    """Parse ``text`` and check it against the columns of a table.

    Args:
        text: comparisons (``== != < <= > >=``), ``in (...)``, ``like "a%"``, ``is [not] null``, joined by
            ``and``, ``or``, ``not`` and brackets; of columns, values, sums and products (``+ - * /``) and functions
            (``FUNCTIONS``). Text is in single or double quotes; a column name that is no identifier in backticks.
        schema: the columns.
        flag: of the option, for messages.

    Raises:
        InputError: for a syntax error, a missing column, or a comparison of different types.
    """
    if not text.strip():
        raise InputError(f"{flag} is empty: expected a condition; {EXAMPLE}")
    if len(text) > MAX_LENGTH:
        raise InputError(f"{flag} takes at most {MAX_LENGTH:,} characters, got {len(text):,}")
    reader = _Reader(text, schema, flag)
    try:
        expression = reader.condition(reader.tree())
    except RecursionError:
        raise reader.fail("it is nested too deeply") from None
    return Condition(text, tuple(reader.columns), expression)


class _Reader:
    """The tokens of a condition, one Python line each, and the conversion of the syntax tree."""

    def __init__(self, text: str, schema: pa.Schema, flag: str) -> None:
        self.text, self.flag, self.schema = text, flag, schema
        self.columns: dict[str, int] = {}
        self.tokens: list[re.Match[str]] = []

    def fail(self, what: str) -> InputError:
        """Return the error for a condition that cannot be parsed."""
        shown = self.text if len(self.text) <= 120 else f"{self.text[:80]} ... ({len(self.text):,} characters)"
        return InputError(f"cannot understand {self.flag} {shown!r}: {what}; {EXAMPLE}")

    def tree(self) -> ast.expr:
        """Return the syntax tree of a condition, in which ``vN`` stands for token N."""
        lines: list[str] = []
        at = 0
        while at < len(self.text.rstrip()):
            token = TOKEN.match(self.text, at)
            if token is None:
                rest = self.text[at:].strip()
                if sign := re.match(r"&&?|\|\|?", rest):
                    raise self.fail(f"{sign[0]!r} is not an operator here: write {'and' if '&' in sign[0] else 'or'!r}")
                raise self.fail(f"unexpected {rest[:20]!r} at character {at + 1}")
            at, word = token.end(), " ".join(token[0].lower().split())
            if word == "is":
                raise self.fail("expected 'null' or 'not null' after 'is'")
            if lines and lines[-1] in ("is", "is not") and token.lastgroup != "text":
                raise self.fail("'like' takes a text column and a pattern in quotes (% any text, _ one character)")
            is_plain = token.lastgroup in ("sign", "keyword")
            lines.append(IN_PYTHON.get(word, word) if is_plain else f"v{len(self.tokens)}")
            self.tokens.append(token)
        try:
            tree = ast.parse("\n".join(["(", *lines, ")"]), mode="eval").body
        except MemoryError:
            raise RecursionError from None
        except SyntaxError as error:
            if "nested" in str(error):
                raise RecursionError from None
            if "never closed" in str(error):
                raise self.fail("expected ')' before the end") from None
            if "comma" in str(error):
                where = self._token(error.lineno, error.end_lineno)
                raise self.fail(f"expected 'and' or 'or' between two values in {where!r}") from None
            where = self._token(error.lineno)
            raise self.fail(f"did not expect {repr(where) if where else 'the end'}") from None
        if sum(isinstance(node, ast.BinOp | ast.UnaryOp | ast.Call) for node in ast.walk(tree)) > MAX_STEPS:
            raise self.fail(f"more than {MAX_STEPS} signs, nots and functions")
        return tree

    def _token(self, first: int | None, last: int | None = None) -> str:
        """Return the text of tokens by their Python lines, of which the first is line 2."""
        tokens = self.tokens[max((first or 0) - 2, 0) : (last or first or 0) - 1]
        return self.text[tokens[0].start() : tokens[-1].end()].strip() if tokens else ""

    def _name(self, node: ast.expr) -> str:
        return self._token(node.lineno, node.end_lineno)

    def condition(self, node: ast.expr) -> pl.Expr:
        """Return a part of the syntax tree as a boolean expression."""
        if isinstance(node, ast.BoolOp):
            join = pl.any_horizontal if isinstance(node.op, ast.Or) else pl.all_horizontal
            return join([self.condition(value) for value in node.values])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.condition(node.operand).not_()
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sign, right = node.ops[0], node.comparators[0]
            if isinstance(sign, ast.Is | ast.IsNot):
                if isinstance(right, ast.Constant):
                    holds = self._computed(node.left, "is null", (*COMPARED, OTHER)).expression.is_null()
                else:
                    holds = self._like(node.left, right)
            elif isinstance(sign, ast.In | ast.NotIn):
                holds = self._in(node.left, right.elts if isinstance(right, ast.Tuple) else [right])
            else:
                return self._compared(self._operand(node.left), COMPARISONS[type(sign)], self._operand(right))
            return holds.not_() if isinstance(sign, ast.IsNot | ast.NotIn) else holds
        if isinstance(node, ast.Compare):
            raise self.fail("expected 'and' or 'or' between two comparisons")
        value = self._operand(node)
        if value.kind == BOOL and value.type is not None:
            return value.expression  # a true/false column represents itself
        raise self.fail(f"expected a comparison after {value.name!r}")

    def _in(self, left: ast.expr, values: list[ast.expr]) -> pl.Expr:
        column = self._computed(left, "in")
        if not values:
            raise self.fail("expected a column or a value, got ')'")
        listed = [self._operand(value) for value in values]
        if columns := [value.name for value in listed if value.type is not None]:
            raise self.fail(f"expected a value in the list, got the column {columns[0]!r}")
        return pl.any_horizontal([self._compared(column, pl.Expr.eq, value) for value in listed])

    def _like(self, left: ast.expr, right: ast.expr) -> pl.Expr:
        column, pattern = self._computed(left, "like"), self._operand(right)
        if column.kind != TEXT or pattern.value is None:
            raise self.fail(f"'like' takes a text column, got {column.with_type}")
        parts = re.findall(r"\\.|.", pattern.name[1:-1], re.DOTALL)  # as typed: a backslash escapes % and _
        regex = "".join({"%": ".*", "_": "."}.get(part) or pl.escape_regex(part[-1]) for part in parts)
        return column.expression.str.contains(f"(?s)^{regex}$")

    def _computed(self, node: ast.expr, verb: str, kinds: tuple[str, ...] = COMPARED) -> _Operand:
        operand = self._operand(node, kinds)
        if operand.type is None:
            other = self._unquoted(operand)
            raise self.fail(f"{verb!r} needs a column on its left, got the value {operand.name!r}{other}")
        return operand

    def _unquoted(self, *values: _Operand) -> str:
        """Return how to write a column whose name is in quotes, which are for text; empty if none is."""
        spelled = {name.casefold(): name for name in self.schema.names} | {name: name for name in self.schema.names}
        typed = [each.value for each in values if each.kind == TEXT and each.value is not None]
        name = next((spelled[key] for value in typed for key in (value, value.casefold()) if key in spelled), None)
        if name is None:
            return ""
        return f"; write the column as {name if name.isidentifier() else f'`{name}`'}, since quotes are for text"

    def _compared(self, left: _Operand, compare: Callable[[pl.Expr, pl.Expr], pl.Expr], right: _Operand) -> pl.Expr:
        if left.type is None and right.type is None:
            both = f"{left.name!r} and {right.name!r} are both values; one must be a column"
            raise self.fail(f"{both}{self._unquoted(left, right)}")
        if right.type is None:
            return compare(*self._exact(left, right))
        if left.type is None:
            column, value = self._exact(right, left)
            return compare(value, column)
        if left.kind != right.kind or left.kind == TIME:
            raise self.fail(f"columns {left.with_type} and {right.with_type} are not comparable")
        if left.kind != NUMBER:
            return compare(left.expression, right.expression)
        kind = common_type(left.type, right.type)
        return compare(left.expression.cast(kind), right.expression.cast(kind))

    def _exact(self, column: _Operand, value: _Operand) -> tuple[pl.Expr, pl.Expr]:
        """Return a column and a value as two expressions that are compared in the column's precision."""
        kind: Any = column.type
        typed = value.value
        if column.kind == TIME and value.kind == TEXT:
            try:
                return column.expression, pl.lit(pa.scalar(typed).cast(kind).value, dtype=pl.Int64)
            except pa.ArrowException:
                zone = "; end it with its time zone: '2024-05-01T12:00:00Z'" if getattr(kind, "tz", None) else ""
                raise self.fail(f"{value.name} is not a value of column {column.with_type}{zone}") from None
        if value.kind != column.kind:
            other = self._unquoted(value)
            raise self.fail(f"column {column.name!r} is {kind}, which cannot be compared with {value.name}{other}")
        if value.kind != NUMBER:
            return column.expression, value.expression
        if pa.types.is_integer(kind) or is_exact(kind):
            return _as_integers(column.expression, typed, 0 if pa.types.is_integer(kind) else kind.scale)
        if pa.types.is_float16(kind) or pa.types.is_float32(kind):  # 0.1 equals a float32 column's 0.1
            return column.expression, pl.lit(pa.scalar(float(typed), kind).as_py(), dtype=pl.Float32)
        return column.expression.cast(pl.Float64), value.expression

    def _operand(self, node: ast.expr, kinds: tuple[str, ...] = COMPARED) -> _Operand:
        """Return a part of the syntax tree as a value of one of the given types."""
        if isinstance(node, ast.Name):
            return self._value(self.tokens[int(node.id[1:])], kinds)
        if isinstance(node, ast.BinOp):
            sign, compute = ARITHMETIC[type(node.op)]
            return self._calculated(
                node, sign, (NUMBER, NUMBER, compute), [self._operand(node.left), self._operand(node.right)]
            )
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
            inner = self._operand(node.operand)
            if inner.kind == NUMBER and inner.type is None:
                value = inner.value.copy_negate() if isinstance(node.op, ast.USub) else inner.value
                return _Operand(NUMBER, self._name(node), pl.lit(float(value)), None, value)
            compute = pl.Expr.neg if isinstance(node.op, ast.USub) else lambda number: number
            return self._calculated(node, "a sign", (NUMBER, NUMBER, compute), [inner])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._function(node, self._name(node.func))
        if isinstance(node, ast.Constant):
            raise self.fail("compare with null as 'is null' or 'is not null'")
        raise self.fail(f"expected a column or a value, got {self._name(node)!r}")

    def _function(self, node: ast.Call, word: str) -> _Operand:
        name = word.lower()
        if name not in FUNCTIONS:
            listed = ", ".join(FUNCTIONS)
            raise self.fail(f"there is no function {word!r}{closest(name, FUNCTIONS)} (there are {listed})")
        takes = FUNCTIONS[name][0]
        if name in ("least", "greatest") and len(node.args) < 2:
            raise self.fail(f"{name} takes two {takes}s or more, got {len(node.args)}")
        if name not in ("least", "greatest") and len(node.args) != 1:
            raise self.fail(f"{name} takes one {takes}, got {len(node.args)}")
        return self._calculated(node, name, FUNCTIONS[name], [self._operand(part) for part in node.args])

    def _calculated(
        self, node: ast.expr, name: str, function: tuple[str, str, Callable[..., pl.Expr]], arguments: list[_Operand]
    ) -> _Operand:
        takes, gives, compute = function
        if other := [argument.with_type for argument in arguments if argument.kind != takes]:
            raise self.fail(f"{name} takes {takes}s, got {other[0]}{self._unquoted(*arguments)}")
        kind = {NUMBER: pl.Float64, TEXT: pl.String}[takes]
        result = compute(*(argument.expression.cast(kind) for argument in arguments))
        if gives == TEXT:
            return _Operand(TEXT, self._name(node), result, pa.string())
        return _Operand(NUMBER, self._name(node), result.cast(pl.Float64).replace(float("nan"), None), pa.float64())

    def _value(self, token: re.Match[str], kinds: tuple[str, ...]) -> _Operand:
        word = token[str(token.lastgroup)]
        if token.lastgroup == "number":
            try:
                number = Decimal(word)
            except InvalidOperation:
                raise self.fail(f"{word} has a larger exponent than numbers can have") from None
            return _Operand(NUMBER, word, pl.lit(float(number)), None, number)
        if token.lastgroup == "text":
            if not word[1:-1].strip():
                raise self.fail("blank text counts as no value; write 'is null' or 'is not null'")
            text = re.sub(r"\\(.)", r"\1", word[1:-1], flags=re.DOTALL)
            return _Operand(TEXT, word, pl.lit(text), None, text)
        if token.lastgroup == "word" and word.lower() in ("true", "false"):
            return _Operand(BOOL, word, pl.lit(word.lower() == "true"), None)
        if word not in self.schema.names:
            raise InputError(
                f"{self.flag} {self.text!r} uses a column {word!r} that the table does not have"
                f"{closest(word, self.schema.names)} (text is written in quotes; columns: "
                f"{name_list(self.schema.names, word)})"
            )
        kind = value_type(self.schema.field(word).type)
        if kind_of(kind) not in kinds:
            raise self.fail(f"column {word!r} is {kind}, which can only be tested with 'is null' or 'is not null'")
        return _Operand(kind_of(kind), word, pl.col(str(self.columns.setdefault(word, len(self.columns)))), kind)
