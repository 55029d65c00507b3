"""The interface of filter rules. To add a rule, add a class and a line in ``LINES``, or an entry point."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import describe, is_less_certain
from curate.policies.decided import DROP
from curate.tables.needs import Needs
from curate.tables.number_texts import six_digits
from curate.tables.rows import Rows
from curate.tables.table import Table
from curate.tables.typed_json import from_json
from scoring.arrays import Floats, Ints, Mask
from scoring.errors import InputError

T = TypeVar("T")
COLUMN, PER, EVEN = "column", "per", "even"
_is_less_certain = cache(is_less_certain)  # cached for blocks of rows


@dataclass(frozen=True)
class Ruling:
    """The decisions of one rule on M consecutive rows, used for rows that no earlier rule dropped.

    Attributes:
        keep: mask of kept rows, shape (M,).
        judged: mask of decided rows, including all of ``keep``, shape (M,); others are undecided.
        cuts: lowest kept value by group (else G = 1), shape (G,) float64, NaN if nothing is kept; None without a
            threshold.
        outcome: facts for the rule's notes; None for none.
    """

    keep: np.ndarray
    judged: np.ndarray
    cuts: np.ndarray | None
    outcome: Any = None


@dataclass(frozen=True)
class Verdict:
    """The outcomes of N rows.

    Attributes:
        outcome: shape (N,) uint8, an index into ``OUTCOMES``.
        rule: shape (N,), int8, or int16 for more than 127 rules: index of the rule that dropped the row or left it
            undecided; -1 for kept and failed rows.
        cuts: by rule, as in ``Ruling``.
        outcomes: by rule, as in ``Ruling``.
        left: number of rows before each rule.
    """

    outcome: np.ndarray
    rule: np.ndarray
    cuts: list[np.ndarray | None]
    outcomes: list[Any]
    left: list[int]


@dataclass(frozen=True)
class RuleResult:
    """The result of one rule on all rows.

    Attributes:
        verdict: of all rules.
        index: of the rule.
        table_rows: N rows.
    """

    verdict: Verdict
    index: int
    table_rows: Rows
    _computed: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """Return a value computed once and cached for all batches."""
        if name not in self._computed:
            self._computed[name] = compute()
        value: T = self._computed[name]
        return value

    @property
    def cuts(self) -> Floats | None:
        """The lowest kept value by group, as in ``Ruling``."""
        return self.verdict.cuts[self.index]

    @property
    def details(self) -> Any:
        """Other facts of the rule."""
        return self.verdict.outcomes[self.index]

    @property
    def left(self) -> int:
        """Number of rows that earlier rules kept."""
        return self.verdict.left[self.index]

    def lost(self) -> tuple[int, int]:
        """Return the number of rows it dropped or left undecided, and the number it dropped."""
        outcome = self.verdict.outcome[self.verdict.rule == self.index]
        return len(outcome), int((outcome == DROP).sum())


@dataclass(frozen=True)
class RuleArguments:
    """The options of a rule other than its value.

    Attributes:
        table: to filter.
        values: all values of the rule's option, in the order typed.
        column: score column; None for the table's default.
        per: column whose groups are ranked separately.
        even: column of groups with equal shares of an amount; None for a plain cut.
        settings: options of this rule only -> their values, in the order typed.
        model: the model of the table, if it is not shipped.
        allow_unmatched: accept files of keys without any key of the table.
    """

    table: Table
    values: Sequence[Any] = ()
    column: str | None = None
    per: str | None = None
    even: str | None = None
    settings: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    model: str | Path | None = None
    allow_unmatched: bool = False


@dataclass(frozen=True)
class Reasons:
    """Why M rows are kept or dropped.

    Attributes:
        texts: of the rows.
        numbers: score, threshold and margin of each row, three arrays of shape (M,); None without a score.
    """

    texts: pa.Array | Sequence[str]
    numbers: Sequence[Floats] | None = None


def require_type(rule: str, value: Any, kind: type[T]) -> T:
    """Return what a rule returned; InputError for another type, possible with rules of other packages."""
    if not isinstance(value, kind):
        got = type(value).__name__
        raise InputError(f"--{rule} has to return {kind.__name__}, got {got}; repair its package")
    return value


class Rule(ABC):
    """One rule: its option, needs, decisions and reasons.

    A frozen dataclass whose first field is the typed value, with fields ``column`` and ``per``.

    Attributes:
        name: as in receipts; the option is ``--name``, the keyword of Python has ``_`` for ``-``.
        ranks: whether its decision on a row depends on other rows, so that it needs all rows at once.
        takes: which of column, per and even apply to it.
        option: of its value, as in ``Line``; None for built-in rules, whose ``Line`` has it.
        settings: options of this rule only; None as for ``option``.
        stage: order of rules from Python keywords: 0 by default, bounds 1, --drop-bottom 2, --keep-top 3.
        gathers: whether all values of its option form one rule, at the position of the first.
        once: whether its option may be typed only once.
        last: why no rule may follow it; empty if one may.
        by_name: whether it drops listed rows, possibly for their content.
    """

    name: ClassVar[str]
    ranks: ClassVar[bool] = False
    takes: ClassVar[tuple[str, ...]] = ()
    option: ClassVar[Any] = None
    settings: ClassVar[dict[str, Any]] = {}
    stage: ClassVar[int] = 0
    gathers: ClassVar[bool] = False
    once: ClassVar[bool] = False
    last: ClassVar[str] = ""
    by_name: ClassVar[bool] = False
    column: str | None  # the score; None for a condition
    per: str | None  # the column whose groups are ranked separately; None for all rows together
    even: str | None = None  # the column of groups with equal shares of an amount

    @classmethod
    @abstractmethod
    def read(cls, value: Any, arguments: RuleArguments) -> Self:
        """Return the rule from its typed value; InputError for an invalid one."""

    @abstractmethod
    def judge(self, table_rows: Rows, rows: slice, inside: Mask) -> Ruling:
        """Decide M consecutive rows; ``inside``, shape (M,), masks the rows that no earlier rule dropped."""

    def counted(self, table_rows: Rows, inside: Mask, dropped_by_name: Mask) -> Mask:
        """Return a mask of the rows to decide, shape (M,): those inside; estimates from a sample need all its rows."""
        return inside

    @abstractmethod
    def reasons(self, result: RuleResult, rows: Ints, dropped: Mask) -> Reasons:
        """Return why M rows are kept or dropped; ``dropped`` has shape (M,)."""

    def missing(self) -> str:
        """Return why rows are undecided."""
        return f"{self.column} has no value (null or NaN)"

    def needs(self, table: Table) -> Needs:
        """Return the columns and facts to read of a table."""
        exact = (self.column,) if self.column is not None else ()
        return Needs(exact=exact, groups=tuple(name for name in (self.per, self.even) if name))

    def typed(self) -> str:
        """Return the rule as typed."""
        value = getattr(self, fields(self)[0].name)  # type: ignore[arg-type]
        return f"--{self.name} {value}" + (f" --per {self.per}" if self.per else "")

    def named_files(self) -> list[tuple[str, str]]:
        """Return the files it was read from, with their options."""
        return []

    def notes(self, result: RuleResult) -> list[str]:
        """Return notes for the reader, one sentence per line."""
        return []

    def evened(self, result: RuleResult) -> dict[str, Any] | None:
        """Return the outcomes of equal shares by group, as plain JSON; None without groups."""
        return None

    def margins(self, result: RuleResult, rows: Ints) -> Floats:
        """Return the signed distance of M rows from the threshold, (M,): negative if dropped; NaN without a score."""
        return np.full(len(rows), np.nan)

    def settle(self, result: RuleResult, table: Table) -> dict[str, Any]:
        """Apply final changes that no later rule undoes; return fields of ``Decided`` to set."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """Return the rule as plain JSON, for a receipt."""
        values = asdict(self)  # type: ignore[call-overload]
        if values.get(EVEN) is None:
            values.pop(EVEN, None)
        return {"rule": self.name, **values}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the rule that ``to_json`` wrote; InputError if invalid."""
        return from_json(cls, value, what=f"the rule {cls.name} of the receipt", ignored=("rule",))


class ScoreRule(Rule):
    """A rule that compares a score with a threshold."""

    column: str
    takes: ClassVar[tuple[str, ...]] = (COLUMN,)

    @property
    def keeps_high(self) -> bool:
        """Whether high values are kept."""
        return not _is_less_certain(self.column)

    @abstractmethod
    def endings(self, result: RuleResult) -> list[list[str]]:
        """Return the texts after the score, by group: for kept, dropped, and dropped by a tie."""

    def notes(self, result: RuleResult) -> list[str]:
        """Return notes on the column's meaning."""
        column = describe(self.column)
        higher = column.higher or "taken as better"
        return [f"{self.typed()} works on {self.column} ({column.meaning}; higher: {higher})"]

    def reasons(self, result: RuleResult, rows: Ints, dropped: Mask) -> Reasons:
        """Return the reasons with each row's score and side of the threshold."""
        codes, score, threshold, margin = self._numbers(result, rows)
        kinds = dropped.astype(np.int64) + (dropped & (margin == 0))  # 2 for a tie
        endings = result.once("endings", lambda: pa.array([text for kind in self.endings(result) for text in kind]))
        after = endings.take(pa.array(kinds * (len(endings) // 3) + codes))
        return Reasons(six_digits(score, f"{self.column} ", after), (score, threshold, margin))

    def margins(self, result: RuleResult, rows: Ints) -> Floats:
        """Return the signed distance of M rows from the threshold, shape (M,): negative if dropped."""
        return self._numbers(result, rows)[-1]

    def codes(self, result: RuleResult, rows: Ints) -> NDArray[np.integer]:
        """Return the group of M rows, shape (M,): an index into the cuts."""
        return result.table_rows.groups[self.per].codes[rows] if self.per else np.zeros(len(rows), np.intp)

    def _numbers(self, result: RuleResult, rows: Ints) -> tuple[NDArray[np.integer], Floats, Floats, Floats]:
        """Return group, score, threshold and margin of M rows."""
        score = result.table_rows.exact[self.column].values[rows].astype(np.float64)
        codes = self.codes(result, rows)
        threshold = result.cuts[codes] if result.cuts is not None else np.full(len(rows), np.nan)
        with np.errstate(invalid="ignore"):
            distance = score - threshold
        return codes, score, threshold, distance if self.keeps_high else -distance
