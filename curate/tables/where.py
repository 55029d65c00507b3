"""Conditions on columns as annotators write them: ``label == "cat" and width * height >= 40000``.

A condition is parsed into a small tree and evaluated with Arrow; no text of it is ever run as code.
Logic is SQL's, with three values: where a column has no value (null, NaN or blank text) a comparison has none either.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from curate.tables.operands import (
    BOOL,
    FUNCTIONS,
    NUMBER,
    OTHER,
    TEXT,
    TIME,
    Evaluate,
    Operand,
    as_double,
    called,
    column_operand,
    combined,
    literal,
    widened,
)
from scoring.errors import InputError
from scoring.lookup import closest, name_list

MAX_LENGTH = 10_000  # characters of a condition
MAX_DEPTH = 50  # nested brackets, functions, signs and nots
TOKEN = re.compile(
    r"""\s*(?:(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |`(?P<quoted>[^`]+)`
    |(?P<symbol>==|!=|<>|<=|>=|=|<|>|\(|\)|,|\+|-|\*|/)
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
OF_A_VALUE = frozenset({*COMPARISONS, *"+-*/", "in", "is", "like", "not"})  # what may follow a value in brackets
EXAMPLE = "write it like: label == \"cat\" and width >= 200, format in ('jpeg', 'png'), label is not null"


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
            ``and``, ``or``, ``not`` and brackets; of columns, values, sums and products (``+ - * /``) and functions
            (``FUNCTIONS``). Text is in single or double quotes; a column whose name is not a plain word in
            backticks.
        schema: the columns that may be named.
        flag: of the option, for messages.

    Raises:
        InputError: if the text cannot be understood, names a column that is missing, or compares values of
            different kinds.
    """
    if len(text) > MAX_LENGTH:
        raise InputError(f"{flag} takes at most {MAX_LENGTH:,} characters, got {len(text):,}")
    return _Parser(text, schema, flag).parse()


class _Parser:
    """Recursive descent: or > and > not > comparison > sum > product > value."""

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
        tokens: list[tuple[str, str]] = []
        at, end = 0, len(self.text.rstrip())
        while at < end:
            match = TOKEN.match(self.text, at)
            if match is None:
                if sign := re.match(r"\s*(&&?|\|\|?)", self.text[at:]):
                    raise self._fail(f"{sign[1]!r} is no operator here: write {'and' if '&' in sign[1] else 'or'!r}")
                raise self._fail(f"unexpected {self.text[at:].strip()[:20]!r} at character {at + 1}")
            kind = str(match.lastgroup)
            word = match.group(kind)
            if kind == "word" and word.lower() in KEYWORDS:
                kind, word = "keyword", word.lower()
            at = match.end()
            after_value = tokens and (tokens[-1][0] in ("word", "quoted", "number") or tokens[-1][1] == ")")
            if kind == "number" and word[0] in "+-" and after_value:
                tokens.append(("symbol", word[0]))  # a sign between two values
                word = word[1:]
            tokens.append((kind, word))
        return [*tokens, ("end", "")]

    def _take(self, *words: str) -> str:
        """Step over the next token if it is one of these symbols or keywords, and return it; else an empty text."""
        kind, word = self.tokens[self.at]
        if kind in ("symbol", "keyword") and word in words:
            self.at += 1
            return word
        return ""

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._fail(f"expected {word!r} before {self.tokens[self.at][1] or 'the end'!r}")

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._fail(f"more than {MAX_DEPTH} nested brackets")

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
        self._deeper()
        if self._take("not"):
            result = _inverted(self._not())
        elif self.tokens[self.at] == ("symbol", "(") and not self._value_in_brackets():
            self.at += 1
            result = self._or()
            self._expect(")")
        else:
            result = self._comparison()
        self.depth -= 1
        return result

    def _value_in_brackets(self) -> bool:
        """Whether the bracket here holds a value, by what follows it, and not a condition."""
        n_open, at = 0, self.at
        while self.tokens[at][0] != "end":
            if self.tokens[at][0] == "symbol":
                n_open += {"(": 1, ")": -1}.get(self.tokens[at][1], 0)
            at += 1
            if not n_open:
                kind, word = self.tokens[at]
                return kind in ("symbol", "keyword") and word in OF_A_VALUE
        return False

    def _comparison(self) -> Evaluate:
        left = self._sum()
        if self._take("is"):
            negated = self._take("not")
            self._expect("null")
            column = self._no_literal(left, "is null")
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

    def _compared(self, left: Operand) -> Evaluate:
        word = self._take(*COMPARISONS)
        if not word:
            if left.kind == BOOL and left.type is not None:
                return left.array  # a true/false column represents itself
            raise self._fail(f"expected a comparison after {left.name!r}")
        right = self._sum()
        compare = COMPARISONS[word]
        if left.type is None and right.type is None:
            raise self._fail(f"{left.name!r} and {right.name!r} are both values; name a column")
        if left.type is None:
            scalar = self._literal(left, right)
            return lambda b: compare(scalar, widened(right.array(b), scalar))
        if right.type is None:
            scalar = self._literal(right, left)
            return lambda b: compare(widened(left.array(b), scalar), scalar)
        if left.kind != right.kind or left.kind == TIME:
            raise self._fail(f"columns {left.with_type} and {right.with_type} do not compare")
        return lambda b: compare(as_double(left.array(b)), as_double(right.array(b)))

    def _membership(self, left: Operand) -> Evaluate:
        column = self._no_literal(left, "in")
        self._expect("(")
        scalars = [self._literal(self._sum(), column)]
        while self._take(","):
            scalars.append(self._literal(self._sum(), column))
        self._expect(")")

        def evaluate(batch: pa.RecordBatch) -> Any:
            values = column.array(batch)
            matches: Any = pc.equal(widened(values, scalars[0]), scalars[0])
            for scalar in scalars[1:]:
                matches = pc.or_kleene(matches, pc.equal(widened(values, scalar), scalar))
            return matches

        return evaluate

    def _like(self, left: Operand) -> Evaluate:
        column = self._no_literal(left, "like")
        pattern = self._sum()
        if column.kind != TEXT or pattern.kind != TEXT or pattern.type is not None:
            raise self._fail("'like' takes a text column and a pattern in quotes (% any text, _ one character)")
        return lambda b: pc.match_like(column.array(b), pattern.value)

    def _no_literal(self, operand: Operand, verb: str) -> Operand:
        if operand.type is None:
            raise self._fail(f"{verb!r} needs a column on its left, got the value {operand.name!r}")
        return operand

    def _sum(self) -> Operand:
        return self._chain(self._product, "+", "-")

    def _product(self) -> Operand:
        return self._chain(self._value, "*", "/")

    def _chain(self, part: Callable[[], Operand], *signs: str) -> Operand:
        first, rest = part(), []
        while sign := self._take(*signs):
            rest.append((sign, self._of_kind(part(), NUMBER, f"{sign!r}")))
        return combined(self._of_kind(first, NUMBER, f"{rest[0][0]!r}"), rest) if rest else first

    def _of_kind(self, operand: Operand, kind: str, taker: str) -> Operand:
        if operand.kind != kind:
            raise self._fail(f"{taker} takes {kind}s, got {operand.with_type}")
        return operand

    def _value(self) -> Operand:
        kind, word = self.tokens[self.at]
        self.at += 1
        if (kind, word) in (("symbol", "("), ("symbol", "-")):
            return self._bracket() if word == "(" else self._negative()
        if kind == "word" and self.tokens[self.at] == ("symbol", "("):
            return self._function(word)
        if kind in ("word", "quoted"):
            return self._column(word)
        if kind == "number":
            number = int(word) if re.fullmatch(r"[+-]?[0-9]{1,19}", word) else float(word)
            return Operand(NUMBER, word, value=number)
        if kind == "text":
            if not word[1:-1].strip():
                raise self._fail("blank text counts as no value; write 'is null' or 'is not null'")
            return Operand(TEXT, word, value=re.sub(r"\\(.)", r"\1", word[1:-1]))
        if kind == "keyword" and word in ("true", "false"):
            return Operand(BOOL, word, value=word == "true")
        if word == "null":
            raise self._fail("compare with null by 'is null' or 'is not null'")
        raise self._fail(f"expected a column or a value, got {word or 'the end'!r}")

    def _bracket(self) -> Operand:
        self._deeper()
        inner = self._sum()
        self._expect(")")
        self.depth -= 1
        return replace(inner, name=f"({inner.name})")

    def _negative(self) -> Operand:
        self._deeper()
        inner = self._of_kind(self._value(), NUMBER, "'-'")
        self.depth -= 1
        if inner.type is None:
            return replace(inner, name=f"-{inner.name}", value=-inner.value)
        return replace(combined(Operand(NUMBER, "0", value=0), [("-", inner)]), name=f"-{inner.name}")

    def _function(self, word: str) -> Operand:
        name = word.lower()
        if name not in FUNCTIONS:
            raise self._fail(
                f"there is no function {word!r}{closest(name, FUNCTIONS)} (there are {', '.join(FUNCTIONS)})"
            )
        function = FUNCTIONS[name]
        self._deeper()
        self._expect("(")
        arguments = [self._of_kind(self._sum(), function.takes, name)]
        while self._take(","):
            arguments.append(self._of_kind(self._sum(), function.takes, name))
        self._expect(")")
        self.depth -= 1
        if function.most is None and len(arguments) < 2:
            raise self._fail(f"{name} takes two {function.takes}s or more, got one")
        if function.most is not None and len(arguments) > function.most:
            raise self._fail(f"{name} takes one {function.takes}, got {len(arguments)}")
        return called(name, arguments)

    def _column(self, name: str) -> Operand:
        if name not in self.schema.names:
            raise InputError(
                f"{self.flag} {self.text!r} names a column {name!r} that the table does not have"
                f"{closest(name, self.schema.names)} (text is written in quotes; columns: "
                f"{name_list(self.schema.names, name)})"
            )
        self.columns.append(name)
        column = column_operand(name, self.schema.field(name).type)
        if column.kind == OTHER and self.tokens[self.at] != ("keyword", "is"):
            raise self._fail(
                f"column {name!r} is {column.type}, which can only be requested 'is null' or 'is not null'"
            )
        return column

    def _literal(self, value: Operand, column: Operand) -> pa.Scalar:
        """The literal as a scalar that compares exactly with the column's type."""
        if value.type is not None:
            raise self._fail(f"expected a value in the list, got the column {value.name!r}")
        try:
            return literal(value, column)
        except (pa.ArrowException, OverflowError):
            raise self._fail(f"{value.name} is not a value of column {column.with_type}") from None
        except TypeError:
            raise self._fail(
                f"column {column.name!r} is {column.type}, which does not compare with {value.name}"
            ) from None


def _joined(join: Callable[[Any, Any], Any], parts: list[Evaluate]) -> Evaluate:
    return parts[0] if len(parts) == 1 else lambda batch: reduce(join, (part(batch) for part in parts))


def _inverted(inner: Evaluate) -> Evaluate:
    return lambda batch: pc.invert(inner(batch))
