"""Rules by amount: the most or the least certain rows, in whole rows or as a share."""

from abc import abstractmethod
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from curate.policies.filter.even import Groups, even_best
from curate.policies.filter.ranked import best, best_of_groups
from curate.policies.filter.rule import COLUMN, EVEN, PER, RuleArguments, ScoreRule
from curate.policies.filter.ruling import RuleResult, Ruling
from curate.policies.uneven import LEAST_ROWS
from curate.tables.amount import Amount
from curate.tables.rows import Rows
from curate.tables.signals import amount_column, default_column
from scoring.relative.columns import CLUSTER, FITTED, LOCAL
from scoring.relative.rule import PICTURE

MOST = Fraction(5, 4)  # times the average share that a class may lose by its junk
MOST_OF_CLUSTER = Fraction(2)  # the same of a cluster: it may be a group of junk, so certain junk is not limited
CERTAIN = 0.9  # probability of junk; of junk planted in 15 sets --keep-top 80% keeps 1 %, and with 0.99 here 8 %


@dataclass(frozen=True)
class AmountRule(ScoreRule):
    """Keep or drop a number of rows by rank, within each value of ``per`` if given.

    With ``even``, a column of groups, every group loses the same share; see ``even_best``.
    """

    amount: str | int | float
    column: str
    per: str | None = None
    even: str | None = None
    ranks = True
    takes: ClassVar[tuple[str, ...]] = (COLUMN, PER, EVEN)

    def __post_init__(self) -> None:
        _ = self.parsed

    @classmethod
    def read(cls, value: Any, arguments: RuleArguments) -> Self:
        """Return the rule from its typed value; InputError for an invalid one."""
        column = arguments.column or (amount_column if arguments.per is None else default_column)(arguments.table)
        return cls(value, column, arguments.per, arguments.even if arguments.per is None else None)

    @cached_property
    def parsed(self) -> Amount:
        """The number of rows to keep or drop; InputError if invalid."""
        return Amount.parse(self.amount, f"--{self.name}")

    @abstractmethod
    def n_kept(self, n: int) -> int:
        """Return how many of n rows are kept."""

    @abstractmethod
    def taken(self, result: RuleResult) -> int:
        """Return the number of rows of the amount."""

    def judge(self, table_rows: Rows, rows: slice, inside: NDArray[np.bool_]) -> Ruling:
        """Judge M consecutive rows; ``inside``, shape (M,), marks those that no rule dropped before."""
        column, ties, low_is_best = table_rows.exact[self.column], table_rows.hashes[rows], not self.keeps_high
        values, valid = column.values[rows], column.valid[rows]
        competing = inside & valid
        if self.even is not None:
            of_rows, is_relative = table_rows.groups[self.even], self.column in (FITTED, LOCAL)
            junk = values > PICTURE if is_relative else np.zeros(len(values), bool)
            is_cluster = self.even == CLUSTER
            most, certain = MOST_OF_CLUSTER if is_cluster else MOST, junk & (values > CERTAIN) & is_cluster
            by = Groups(self.even, of_rows.codes[rows], of_rows.names, junk, most, certain)
            even_cut = even_best(values, competing, self.n_kept, ties, by, low_is_best=low_is_best)
            return Ruling(even_cut.keep, valid, even_cut.cuts, even_cut)
        if self.per is None:
            keep, cut = best(values, competing, self.n_kept, ties, low_is_best=low_is_best)
            return Ruling(keep, valid, np.array([cut]))
        groups = table_rows.groups[self.per]
        keep, cuts = best_of_groups(
            values, competing, groups.codes[rows], len(groups.names), self.n_kept, ties, low_is_best=low_is_best
        )
        return Ruling(keep, valid, cuts)

    def notes(self, result: RuleResult) -> list[str]:
        """Return notes on the column's meaning, on another reading of the amount, and on protected groups."""
        notes = super().notes(result)
        amount, flag = self.parsed, f"--{self.name}"
        if amount.other_reading(flag, 0, result.left) is not None:
            text = amount.other_reading(flag, self.taken(result), result.left)
            notes += [text] if text else []
        count = str(self.amount) if self.per is None else ""
        if count.isdigit() and int(count) > result.left:
            notes.append(f"{self.typed()} requests {int(count):,} rows, {result.left:,} were left")
        if result.details is not None and result.details.evened.limited:
            notes.append(f"{self.typed()}: {result.details.evened.line()}")
        return notes

    def evened(self, result: RuleResult) -> dict[str, Any] | None:
        """Return the outcomes of the groups that it cuts evenly, as plain JSON; None without any."""
        return None if result.details is None else asdict(result.details.evened)

    def codes(self, result: RuleResult, rows: NDArray[np.int64]) -> NDArray[np.integer]:
        """Return the group of M rows, shape (M,): an index into the cuts."""
        return super().codes(result, rows) if result.details is None else result.details.group[rows]

    def _endings(self, result: RuleResult, kept: str, dropped: str) -> list[list[str]]:
        """Return the words after the score, by group: for kept, dropped, and lost a tie."""
        column = self.per or (self.even if result.details is not None else None)
        # a count is of all rows; each group has its share of it
        of = (
            f" in all; each {column} has its share, here" if self.per is None and self.parsed.count else f" of {column}"
        )
        groups = [f"{of} {name}" for name in result.table_rows.groups[column].names] if column else [""]
        if result.details is not None:
            groups.append(f" of the groups of {column} below {LEAST_ROWS} rows")
        cuts = [] if result.cuts is None else result.cuts.tolist()
        values = ["nothing stays" if np.isnan(cut) else f"cut {cut:.6g}" for cut in cuts]
        tie = " equals the cut and loses the tie by the hash of its key:" + dropped.removeprefix(" is")
        pairs = list(zip(groups, values, strict=True))
        return [[f"{words}{group} ({value})" for group, value in pairs] for words in (kept, dropped, tie)]


@dataclass(frozen=True)
class KeepTop(AmountRule):
    """Keep the most certain rows: highest values, or lowest in a column whose name starts with ``unc_``.

    Exactly ``amount`` rows are kept (a share is rounded up). Rows that tie at the cut are ranked by a hash of their
    key, so the same ones are kept on any machine, in any order.
    """

    name: ClassVar[str] = "keep-top"
    stage = 3

    def n_kept(self, n: int) -> int:
        """Return how many of n rows are kept."""
        return self.parsed.of(n, up=True)

    def taken(self, result: RuleResult) -> int:
        """Return the number of rows of the amount."""
        return result.left - result.lost()[0]

    def endings(self, result: RuleResult) -> list[list[str]]:
        """Return the words after the score in a reason, by group: for kept, dropped, lost a tie."""
        best, worst = ("top", "below") if self.keeps_high else ("lowest", "above")
        top = f"the {best} {self.parsed}"
        return self._endings(result, f" is in {top}", f" is {worst} {top}")


@dataclass(frozen=True)
class DropBottom(AmountRule):
    """Drop the least certain rows; the mirror of ``KeepTop``, with a share rounded down."""

    name: ClassVar[str] = "drop-bottom"
    stage = 2

    def n_kept(self, n: int) -> int:
        """Return how many of n rows are kept."""
        return n - self.parsed.of(n, up=False)

    def taken(self, result: RuleResult) -> int:
        """Return the number of rows of the amount."""
        return result.lost()[1]

    def endings(self, result: RuleResult) -> list[list[str]]:
        """Return the words after the score in a reason, by group: for kept, dropped, lost a tie."""
        bottom = f"the {'bottom' if self.keeps_high else 'highest'} {self.parsed}"
        return self._endings(result, f" is outside {bottom}", f" is in {bottom}")
