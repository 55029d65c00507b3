"""The interface of a filter rule. A new one is a class in a module and a line in ``LINES``, or an entry point."""

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
from curate.policies.outcomes import DROP
from curate.tables.needs import Needs
from curate.tables.number_texts import six_digits
from curate.tables.rows import Rows
from curate.tables.table import Table
from curate.tables.typed_json import from_json

T = TypeVar("T")
COLUMN, PER, EVEN = "column", "per", "even"
_is_less_certain = cache(is_less_certain)  # looked up for every block of rows


@dataclass(frozen=True)
class Ruling:
    """The ruling of one rule on M consecutive rows; it counts for rows that no rule dropped before.

    Attributes:
        keep: shape (M,) bool.
        judged: shape (M,) bool, all of ``keep`` among them; a row that was not is undecided.
        cuts: shape (G,) float64, the lowest value that stays (by group, else G = 1; NaN where nothing stays);
            None for a rule without a threshold.
        outcome: what else the rule found out, for its note; None where there is nothing.
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
        """Return a value that all batches of rows share, computed for the first of them."""
        if name not in self._computed:
            self._computed[name] = compute()
        value: T = self._computed[name]
        return value

    @property
    def cuts(self) -> NDArray[np.float64] | None:
        """The lowest value that stays, by group, as in ``Ruling``."""
        return self.verdict.cuts[self.index]

    @property
    def details(self) -> Any:
        """Other facts of the rule."""
        return self.verdict.outcomes[self.index]

    @property
    def left(self) -> int:
        """Rows that earlier rules kept."""
        return self.verdict.left[self.index]

    def lost(self) -> tuple[int, int]:
        """Return how many rows it dropped or left undecided, and how many it dropped."""
        outcome = self.verdict.outcome[self.verdict.rule == self.index]
        return len(outcome), int((outcome == DROP).sum())


@dataclass(frozen=True)
class RuleArguments:
    """The options typed next to the value of a rule.

    Attributes:
        table: that the rules are for.
        values: of all options of the rule's name, in the order typed.
        column: score column; None for the default of the table.
        per: column whose values are judged apart.
        even: column of the groups of which an amount takes equal shares; None for a plain cut.
        settings: the options that it alone takes -> their values, in the order typed.
        model: that scored the table, if it does not ship.
        allow_unmatched: take files of keys of which the table has none.
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
        numbers: score, threshold and margin of each row, three arrays of shape (M,); None where there are none.
    """

    texts: pa.Array | Sequence[str]
    numbers: Sequence[NDArray[np.float64]] | None = None


class Rule(ABC):
    """One rule: its option, what it needs, how it judges rows, and how it explains them.

    A frozen dataclass, whose first field is the value that is typed, and which has ``column`` and ``per``.

    Attributes:
        name: as in receipts; the option is ``--name``, the keyword of Python has ``_`` for ``-``.
        ranks: whether its score of a row depends on the others, so that it must see all at once.
        takes: which of column, per and even count for it.
        option: of its value, as in ``Line``; None for a rule of this project, whose line has it.
        settings: options that it alone takes; the same.
        stage: when a keyword of Python applies: stage 0 first, bounds 1, --drop-bottom 2, --keep-top 3.
        gathers: whether all values of its option are one rule, at the place of the first.
        once: whether its option may be typed once only.
        last: why no rule may come after it; empty where one may.
        by_name: whether it drops listed rows, perhaps for what they show.
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
    per: str | None  # the column whose values are judged apart; None for all rows together
    even: str | None = None  # the column of the groups of which an amount takes equal shares

    @classmethod
    @abstractmethod
    def read(cls, value: Any, arguments: RuleArguments) -> Self:
        """Return the rule from its typed value; InputError for an invalid one."""

    @abstractmethod
    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Judge M consecutive rows; ``inside``, shape (M,), marks those that no rule dropped before."""

    def counted(
        self, table_rows: Rows, inside: NDArray[np.bool_], dropped_by_name: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Return the rows to judge, shape (M,): those inside; an estimate from a sample needs the others of it too."""
        return inside

    @abstractmethod
    def reasons(self, result: RuleResult, rows: NDArray[np.int64], dropped: NDArray[np.bool_]) -> Reasons:
        """Return why M rows are kept or dropped; ``dropped`` has shape (M,)."""

    def missing(self) -> str:
        """Return why a row that cannot be judged is undecided."""
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
        """Return notes for the reader, one sentence a line."""
        return []

    def evened(self, result: RuleResult) -> dict[str, Any] | None:
        """Return the outcomes of the groups that it cuts evenly, as plain JSON; None without any."""
        return None

    def margins(self, result: RuleResult, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distance of M rows from the threshold, shape (M,): negative if dropped; NaN without a score."""
        return np.full(len(rows), np.nan)

    def settle(self, result: RuleResult, table: Table) -> dict[str, Any]:
        """Apply final changes that no later rule undoes; return the fields of ``Decided`` that it sets."""
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
    """A rule that compares a score with a cut."""

    column: str
    takes: ClassVar[tuple[str, ...]] = (COLUMN,)

    @property
    def keeps_high(self) -> bool:
        """Whether high values are kept."""
        return not _is_less_certain(self.column)

    @abstractmethod
    def endings(self, result: RuleResult) -> list[list[str]]:
        """Return the words after the score in a reason, by group: for kept, dropped, lost a tie."""

    def notes(self, result: RuleResult) -> list[str]:
        """Return notes on the column's meaning."""
        column = describe(self.column)
        higher = column.higher or "taken as better"
        return [f"{self.typed()} works on {self.column} ({column.meaning}; higher: {higher})"]

    def reasons(self, result: RuleResult, rows: NDArray[np.int64], dropped: NDArray[np.bool_]) -> Reasons:
        """Return each row's score and its side of the threshold, shape (M,) each."""
        codes, score, threshold, margin = self._numbers(result, rows)
        kinds = dropped.astype(np.int64) + (dropped & (margin == 0))  # 2 for a tie
        endings = result.once("endings", lambda: pa.array([text for kind in self.endings(result) for text in kind]))
        after = endings.take(pa.array(kinds * (len(endings) // 3) + codes))
        return Reasons(six_digits(score, f"{self.column} ", after), (score, threshold, margin))

    def margins(self, result: RuleResult, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the distance of M rows from the threshold, shape (M,): negative if dropped."""
        return self._numbers(result, rows)[-1]

    def codes(self, result: RuleResult, rows: NDArray[np.int64]) -> NDArray[np.integer]:
        """Return the group of M rows, shape (M,): an index into the cuts."""
        return result.table_rows.groups[self.per].codes[rows] if self.per else np.zeros(len(rows), np.intp)

    def _numbers(
        self, result: RuleResult, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.integer], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return group, score, threshold and margin of M rows."""
        score = result.table_rows.exact[self.column].values[rows].astype(np.float64)
        codes = self.codes(result, rows)
        threshold = result.cuts[codes] if result.cuts is not None else np.full(len(rows), np.nan)
        with np.errstate(invalid="ignore"):
            distance = score - threshold
        return codes, score, threshold, distance if self.keeps_high else -distance
