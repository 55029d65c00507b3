"""Rules on columns: a minimum, a maximum, and a condition."""

from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from math import ceil, floor
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.policies.filter.rule import Reasons, Rule, RuleArguments, RuleResult, Ruling, ScoreRule
from curate.tables.arrays import EXACT_DIGITS
from curate.tables.needs import Needs
from curate.tables.number_texts import exact_number
from curate.tables.rows import Rows
from curate.tables.signals import default_column
from curate.tables.table import Table
from scoring.errors import InputError


@dataclass(frozen=True)
class BoundRule(ScoreRule):
    """Keep values on one side of ``bound``, in the column's unit and precision."""

    bound: str | int | float
    column: str
    per: str | None = field(default=None, init=False)
    even: str | None = field(default=None, init=False)
    stage = 1
    high: ClassVar[bool]
    words: ClassVar[tuple[str, str, str]]  # texts for kept values, dropped values, and the bound

    def __post_init__(self) -> None:
        _ = self.parsed

    @classmethod
    def read(cls, value: Any, arguments: RuleArguments) -> Self:
        """Return the rule from its typed value; InputError for an invalid one."""
        return cls(value, arguments.column or default_column(arguments.table))

    @property
    def parsed(self) -> Fraction:
        """The bound as a number; InputError if invalid."""
        try:
            return exact_number(str(self.bound).replace("_", "x"))
        except (ValueError, ZeroDivisionError):
            sign = ">=" if self.high else "<="
            raise InputError(
                f"--{self.name} takes a finite number in the unit of its column, got {str(self.bound)[:40]!r}; write "
                f"it like --{self.name} 0.5 --column {self.column}, or --where '{self.column} {sign} 0.5'"
            ) from None

    @property
    def keeps_high(self) -> bool:
        """Whether high values are kept."""
        return self.high

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Decide M consecutive rows; ``inside``, shape (M,), masks the rows that no earlier rule dropped."""
        column = table_rows.exact[self.column]
        values, valid = column.values[rows], column.valid[rows]
        cut = _in_type(self.parsed, values.dtype, column.is_decimal, up=self.high)
        is_float = np.issubdtype(values.dtype, np.floating) and not column.is_decimal
        shown = float(cut) if is_float else _to_float(self.parsed)
        return Ruling((values >= cut if self.high else values <= cut) & valid, valid, np.array([shown]))

    def endings(self, result: RuleResult) -> list[list[str]]:
        """Return the texts after the score: for kept, dropped, and dropped again, as bounds have no ties."""
        stays, goes, name = self.words
        kept, dropped = [f" is {stays} the {name} {self.bound}"], [f" is {goes} the {name} {self.bound}"]
        return [kept, dropped, dropped]


@dataclass(frozen=True)
class Minimum(BoundRule):
    """Keep values of at least ``bound``, in the column's unit and precision."""

    name: ClassVar[str] = "min"
    high: ClassVar[bool] = True
    words: ClassVar[tuple[str, str, str]] = ("at least", "below", "minimum")


@dataclass(frozen=True)
class Maximum(BoundRule):
    """Keep values of at most ``bound``, in the column's unit and precision."""

    name: ClassVar[str] = "max"
    high: ClassVar[bool] = False
    words: ClassVar[tuple[str, str, str]] = ("at most", "above", "maximum")


def _in_type(bound: Fraction, kind: np.dtype, is_decimal: bool, *, up: bool) -> Any:
    """Return a bound in the precision of the column, or in a decimal's digits: ``--min 0.1`` keeps a float32 0.1."""
    if np.issubdtype(kind, np.integer):
        return ceil(bound) if up else floor(bound)
    if is_decimal:
        digits = Context(prec=EXACT_DIGITS, rounding=ROUND_CEILING if up else ROUND_FLOOR)
        bound = Fraction(digits.divide(Decimal(bound.numerator), Decimal(bound.denominator)))
    with np.errstate(over="ignore"):
        return kind.type(_to_float(bound))


def _to_float(bound: Fraction) -> float:
    try:
        return float(bound)
    except OverflowError:
        return float("inf") if bound > 0 else float("-inf")


@dataclass(frozen=True)
class Where(Rule):
    """Keep rows that meet a condition on any columns; see ``curate.tables.where`` for the language."""

    condition: str
    column: str | None = field(default=None, init=False)
    per: str | None = field(default=None, init=False)
    name: ClassVar[str] = "where"

    @classmethod
    def read(cls, value: Any, arguments: RuleArguments) -> Self:
        """Return the rule from its typed value; InputError for an invalid one."""
        return cls(value)

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Decide M consecutive rows; ``inside``, shape (M,), masks the rows that no earlier rule dropped."""
        truth = table_rows.truths[self.condition][rows]
        return Ruling(truth == 1, truth >= 0, None)

    def needs(self, table: Table) -> Needs:
        """Return the columns and facts to read of a table."""
        return Needs(conditions=((f"--{self.name}", self.condition),))

    def missing(self) -> str:
        """Return why rows are undecided."""
        return f"a column of the condition has no value (null or NaN): {self.condition}"

    def reasons(self, result: RuleResult, rows: NDArray[np.int64], dropped: NDArray[np.bool_]) -> Reasons:
        """Return why M rows are kept or dropped; ``dropped`` has shape (M,)."""
        texts = pa.array([f"meets {self.condition}", f"does not meet {self.condition}"])
        return Reasons(texts.take(pa.array(dropped.astype(np.int8))))
