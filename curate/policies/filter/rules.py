"""Filter policies: rules that keep and drop rows by their scores. Columns in, verdicts out; they open no file.

Rules apply in the order given, each to the rows that the earlier ones left. A row without a value (null or
NaN) in a rule's column cannot be judged: it becomes undecided and leaves the subset.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from curate.columns import is_less_certain
from curate.policies.filter.alike import Like, Unlike, named_examples
from curate.policies.filter.by_verdicts import ByVerdicts
from curate.policies.filter.cuts import judge_cut, judge_rank
from curate.policies.filter.guaranteed import MaxBadRate
from curate.policies.filter.named import Keys, WithoutKeys
from curate.policies.filter.ruling import Ruling
from curate.policies.outcomes import DROP, FAILED, KEEP, OUTCOMES, UNDECIDED
from curate.tables.amount import Amount
from curate.tables.needs import EMBEDDINGS, Needs
from curate.tables.rows import Rows
from curate.tables.typed_json import from_json
from scoring.errors import InputError
from scoring.lookup import lookup

EVEN = "even"  # the parameter of amounts that may empty no group
BLOCK = 1 << 22  # rows that a rule which looks at one row at a time judges at once


class Rule(Protocol):
    """One rule: its parameters, the columns it needs, and a pure function of the table's rows.

    The first parameter is the value that is typed.
    """

    name: ClassVar[str]  # as in receipts; the option is --name, the keyword of Python name with _
    ranks: ClassVar[bool]  # whether what it reports for a row depends on the others, so that it must see all at once

    @property
    def column(self) -> str | None:
        """The score column; None for a condition."""

    @property
    def per(self) -> str | None:
        """The column whose values are judged apart; None for all rows together."""

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Judge M rows in a row, of which those ``inside``, shape (M,), are still in."""


@dataclass(frozen=True)
class Where:
    """Keep rows that meet a condition on any columns; see ``curate.tables.where`` for the language."""

    condition: str
    column: str | None = field(default=None, init=False)
    per: str | None = field(default=None, init=False)
    name: ClassVar[str] = "where"
    ranks: ClassVar[bool] = False

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Judge M rows in a row, of which those ``inside``, shape (M,), are still in."""
        truth = table_rows.truths[self.condition][rows]
        return Ruling(truth == 1, truth >= 0, None)


@dataclass(frozen=True)
class Minimum:
    """Keep values of at least ``bound``, in the column's unit and precision."""

    bound: str | int | float
    column: str
    per: str | None = field(default=None, init=False)
    even: str | None = field(default=None, init=False)
    name: ClassVar[str] = "min"
    ranks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _bound(self)

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Judge M rows in a row, of which those ``inside``, shape (M,), are still in."""
        return judge_cut(self, _bound(self), table_rows, rows, high=True)


@dataclass(frozen=True)
class Maximum:
    """Keep values of at most ``bound``, in the column's unit and precision."""

    bound: str | int | float
    column: str
    per: str | None = field(default=None, init=False)
    even: str | None = field(default=None, init=False)
    name: ClassVar[str] = "max"
    ranks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _bound(self)

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Judge M rows in a row, of which those ``inside``, shape (M,), are still in."""
        return judge_cut(self, _bound(self), table_rows, rows, high=False)


@dataclass(frozen=True)
class DropBottom:
    """Drop the least certain rows; the mirror of ``KeepTop``, with a share rounded down."""

    amount: str | int | float
    column: str
    per: str | None = None
    even: str | None = None
    name: ClassVar[str] = "drop-bottom"
    ranks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        amount_of(self)

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Judge M rows in a row, of which those ``inside``, shape (M,), are still in."""
        amount, high = amount_of(self), not is_less_certain(self.column)
        return judge_rank(self, table_rows, rows, inside, lambda n: n - amount.of(n, up=False), high=high)


@dataclass(frozen=True)
class KeepTop:
    """Keep the most certain rows: highest values, or lowest in a column whose name starts with ``unc_``.

    Exactly ``amount`` rows are kept (a share is rounded up), in each value of ``per`` where given. Rows that tie
    at the cut are ranked by a hash of their key, so the same ones are kept on any machine, in any order. With ``even``,
    a column of groups, no group loses more than twice the average share; see ``even_best``.
    """

    amount: str | int | float
    column: str
    per: str | None = None
    even: str | None = None
    name: ClassVar[str] = "keep-top"
    ranks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        amount_of(self)

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Judge M rows in a row, of which those ``inside``, shape (M,), are still in."""
        amount, high = amount_of(self), not is_less_certain(self.column)
        return judge_rank(self, table_rows, rows, inside, lambda n: amount.of(n, up=True), high=high)


Scored = type[KeepTop] | type[DropBottom] | type[Minimum] | type[Maximum]
Named = type[Keys] | type[WithoutKeys] | type[ByVerdicts]
Kind = Scored | type[Where] | type[Like] | type[Unlike] | Named | type[MaxBadRate]
KINDS: tuple[Kind, ...] = (
    *(KeepTop, DropBottom, Minimum, Maximum, Where, Like, Unlike, Keys, WithoutKeys, ByVerdicts, MaxBadRate),
)
RULES: dict[str, Kind] = {kind.name: kind for kind in KINDS}


def typed(rule: Rule) -> str:
    """Return the rule as one would type it.

    >>> typed(KeepTop("80%", "kappa_visimsiam", per="label"))
    '--keep-top 80% --per label'
    """
    if isinstance(rule, Like | Unlike):
        return f"--{rule.name} {named_examples(rule.examples)}"
    if isinstance(rule, MaxBadRate):
        return f"--{rule.name} {rule.rate}"
    if isinstance(rule, ByVerdicts):
        return f"--{rule.name} {Path(rule.file).name}"  # wherever it is when the receipt is checked
    value = next(iter(asdict(rule).values()))  # type: ignore[call-overload]
    return f"--{rule.name} {value}" + (f" --per {rule.per}" if rule.per else "")


def amount_of(rule: KeepTop | DropBottom) -> Amount:
    """Return how many rows a rule asks for.

    Raises:
        InputError: if it does not say so.
    """
    return Amount.parse(rule.amount, f"--{rule.name}")


def _bound(rule: Minimum | Maximum) -> Fraction:
    try:
        return Fraction(str(rule.bound).strip().replace("_", "x"))
    except (ValueError, ZeroDivisionError):
        raise InputError(
            f"--{rule.name} takes a finite number in the unit of its column, got {str(rule.bound)[:40]!r}"
        ) from None


def rule_to_json(rule: Rule) -> dict[str, Any]:
    """Return a rule as plain JSON, for a receipt."""
    if isinstance(rule, ByVerdicts):
        return rule.to_json()
    values = asdict(rule)  # type: ignore[call-overload]
    if values.get(EVEN) is None:
        values.pop(EVEN, None)
    return {"rule": rule.name, **values}


def rule_from_json(value: Mapping[str, Any]) -> Rule:
    """Return the rule that ``rule_to_json`` wrote.

    Raises:
        InputError: if it is not one.
    """
    name = str(value.get("rule")) if isinstance(value, Mapping) else "of a filter"
    kind = lookup(RULES, name, kind="rule") if isinstance(value, Mapping) else Where
    if kind is ByVerdicts:
        return ByVerdicts.from_json(value)
    return from_json(kind, value, what=f"the rule {name} of the receipt", ignored=("rule",))


def needs_of(rules: Sequence[Rule]) -> Needs:
    """Return what has to be read of a table for these rules."""
    return Needs(
        exact=tuple(rule.column for rule in rules if rule.column is not None),
        groups=tuple(dict.fromkeys(name for rule in rules for name in (rule.per, getattr(rule, EVEN, None)) if name)),
        representations=EMBEDDINGS if any(isinstance(rule, Like | Unlike) for rule in rules) else frozenset(),
        conditions=tuple(("--where", rule.condition) for rule in rules if isinstance(rule, Where)),
        advice="use --where for other columns, --column for another score",
    )


@dataclass(frozen=True)
class Verdict:
    """What became of N rows.

    Attributes:
        outcome: shape (N,) uint8, an index into ``OUTCOMES``.
        rule: shape (N,), int8, or int16 for more than 127 rules: the rule that dropped the row or left it undecided;
            -1 for kept and failed.
        cuts: by rule, as in ``Ruling``.
        outcomes: of the rules, too.
        left: rows that were still in before each rule.
    """

    outcome: np.ndarray
    rule: np.ndarray
    cuts: list[np.ndarray | None]
    outcomes: list[Any]
    left: list[int]

    def counts(self) -> dict[str, int]:
        """Return rows by outcome; they add up to N."""
        tally = np.bincount(self.outcome, minlength=len(OUTCOMES))
        return {name: int(n) for name, n in zip(OUTCOMES, tally, strict=True)}


def decide(rules: Sequence[Rule], table_rows: Rows) -> Verdict:
    """Apply rules in order to N rows; each works on what the earlier ones left.

    Args:
        rules: at least one.
        table_rows: with what the rules need; rows that are not ok are failed, whatever the rules say.

    Returns:
        one outcome a row.
    """
    n = len(table_rows)
    outcome = np.where(table_rows.ok, np.uint8(KEEP), np.uint8(FAILED))
    decided_by = np.full(n, -1, np.int8 if len(rules) <= np.iinfo(np.int8).max else np.int16)
    cuts: list[np.ndarray | None] = []
    outcomes: list[Any] = []
    left: list[int] = []
    for index, rule in enumerate(rules):
        n_inside = 0
        step = max(n, 1) if rule.ranks else BLOCK
        for start in range(0, max(n, 1), step):
            rows = slice(start, min(start + step, n))
            inside = outcome[rows] == KEEP
            ruling = rule.judge(table_rows, rows, inside)
            n_inside += int(inside.sum())
            for first in range(0, len(inside), BLOCK):
                some = slice(first, first + BLOCK)
                lost = inside[some] & ~ruling.keep[some]
                outcome[rows][some][lost] = DROP
                decided_by[rows][some][lost] = index
                outcome[rows][some][inside[some] & ~ruling.judged[some]] = UNDECIDED
        cuts.append(ruling.cuts)
        outcomes.append(ruling.outcome)
        left.append(n_inside)
    return Verdict(outcome, decided_by, cuts, outcomes, left)
