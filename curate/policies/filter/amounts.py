"""Rules by amount: the most or least certain rows, as a number of rows or a share."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from curate.policies.decided import LEAST_ROWS, TWICE
from curate.policies.filter.ranked import best, best_of_groups, counts_of, worst_of, worst_of_parts
from curate.policies.filter.rule import COLUMN, EVEN, PER, RuleArguments, RuleResult, Ruling, ScoreRule
from curate.tables.amount import Amount
from curate.tables.needs import amount_column, default_column
from curate.tables.rows import Rows
from scoring.arrays import Floats, Ints, Mask
from scoring.relative.columns import CLUSTER, FITTED, LOCAL, USABLE

SHOWN = {"label": "class", "cluster": "cluster"}
MOST = Fraction(5, 4)  # largest share that a class may lose, relative to the average
MOST_OF_CLUSTER = Fraction(2)  # the same for a cluster, which may consist of junk; certain junk is not limited
CERTAIN = 0.9  # probability of junk; of junk planted in 15 sets --keep-top 80% keeps 1 %, and with 0.99 here 8 %


@dataclass(frozen=True)
class Limited:
    """A group that would lose more than twice the average share by a plain cut.

    Attributes:
        group: its name.
        rows: number of competing rows.
        plain: number of rows that the plain cut drops.
        dropped: number of rows that are dropped.
    """

    group: str
    rows: int
    plain: int
    dropped: int


@dataclass(frozen=True)
class Evened:
    """The outcome of a cut with equal shares of every group.

    Attributes:
        column: of the groups.
        share: the average dropped share.
        junk: number of dropped junk rows.
        limited: groups that a plain cut would cut too much, worst first.
    """

    column: str
    share: float
    junk: int
    limited: list[Limited]

    def line(self) -> str:
        """Return a note on the limited groups, as one sentence."""
        first, more = self.limited[0], len(self.limited) - 1
        what = SHOWN.get(self.column, self.column)
        return (
            f"{what} {first.group} would lose {first.plain / first.rows:.0%} of {first.rows:,} rows (all: "
            f"{self.share:.0%}); limited to {first.dropped / first.rows:.0%}{f', and {more} more' if more else ''}: "
            "other rows are dropped instead; --allow-uneven lifts the limit"
        )


@dataclass(frozen=True)
class EvenCut:
    """The kept rows, and the thresholds of the groups.

    Attributes:
        keep: mask of kept rows, shape (N,).
        cuts: worst kept value in each group, shape (G + 1,); NaN if nothing is kept.
        group: of each row, shape (N,), an index into the G names; G for small groups.
        evened: the outcome by group.
    """

    keep: Mask
    cuts: Floats
    group: NDArray[np.unsignedinteger]
    evened: Evened


@dataclass(frozen=True)
class Groups:
    """The groups for equal shares.

    Attributes:
        column: of the groups.
        codes: the group of each row, an index into ``names``, shape (N,).
        names: of the G groups.
        junk: mask of rows to drop first, shape (N,).
        most: largest share that a group may lose, without certain junk, as a multiple of the average share, >= 1.
        certain_junk: mask of junk that is not limited, shape (N,).
    """

    column: str
    codes: NDArray[np.integer]
    names: list[str]
    junk: Mask
    most: Fraction
    certain_junk: Mask


def even_best(
    values: NDArray[Any],
    competing: Mask,
    n_kept: Callable[[int], int],
    ties: NDArray[np.uint64],
    groups: Groups,
    *,
    low_is_best: bool,
) -> EvenCut:
    """Return which rows are kept: every group loses its junk, then the same share of the rest, worst first.

    As many rows are kept as by a plain cut: shares are rounded down, and the remaining drops are the worst among the
    next rows of the groups, at most one per group. If there is more junk than rows to drop, the worst junk is dropped.
    Groups of fewer than 10 rows are merged.

    Args:
        values: shape (N,), without NaN in competing rows.
        competing: mask of competing rows, shape (N,).
        n_kept: number of competing rows -> number of kept rows.
        ties: of equal values, rows with higher ties are kept, shape (N,).
        groups: of the rows.
        low_is_best: whether low values are the best.
    """
    names, junk = groups.names, groups.junk
    group = _pooled(groups.codes, competing, len(names))
    n_groups = len(names) + 1
    part = group.astype(np.min_scalar_type(2 * n_groups))
    part *= 2  # each group is split into other rows and junk
    part += junk
    part[~competing] = 2 * n_groups
    sizes = counts_of(part, 2 * n_groups)
    size, n_junk = sizes[::2] + sizes[1::2], sizes[1::2]
    n = int(size.sum())
    n_dropped = n - n_kept(n)
    quota, more = quotas(
        size, n_junk, counts_of(group[groups.certain_junk & competing], n_groups), n_dropped, groups.most
    )
    of_junk = [np.minimum(amount, n_junk) for amount in (quota, quota + more)]  # junk is first
    surely, perhaps = (
        np.stack([amount - junk_rows, junk_rows], axis=1).ravel()
        for amount, junk_rows in zip((quota, quota + more), of_junk, strict=True)
    )
    amounts = sizes, surely, perhaps - surely
    worst, following = worst_of_parts(values, part, amounts, ties, low_is_best=low_is_best)
    missing = n_dropped - int(quota.sum())
    worst |= following & ~best(values, following, lambda m: m - missing, ties, low_is_best=low_is_best)[0]
    keep = competing & ~worst
    plain, _ = best(values, competing, n_kept, ties, low_is_best=low_is_best)
    share = n_dropped / max(n, 1)
    limited = _limited(group, size, competing & ~plain, competing & worst, share, names)
    evened = Evened(groups.column, share, int((junk & competing & worst).sum()), limited)
    return EvenCut(keep, worst_of(values, group, keep, n_groups, low_is_best=low_is_best), group, evened)


def quotas(size: Ints, junk: Ints, certain_junk: Ints, n_dropped: int, most: Fraction) -> tuple[Ints, Ints]:
    """Return the minimal number of rows that each group loses, and how many more it may lose, shape (G,) each.

    Args:
        size: rows of each group, shape (G,).
        junk: junk rows of each group, dropped first.
        certain_junk: junk rows of each group that are not limited.
        n_dropped: total number of dropped rows.
        most: largest share that a group may lose, as a multiple of the average share, >= 1.

    >>> quotas(np.array([100, 100]), np.array([0, 10]), np.array([0, 0]), 29, Fraction(2))[0].tolist()
    [10, 19]
    """
    n = max(int(size.sum()), 1)
    rest = size - certain_junk
    limit = certain_junk + np.minimum(-(-most.numerator * n_dropped * rest // (most.denominator * n)), rest)
    first = np.minimum(junk, limit)
    if first.sum() >= n_dropped:
        return np.zeros_like(size), first
    rest, full = size - first, np.zeros(len(size), bool)
    while True:
        left = n_dropped - int(np.where(full, limit, first).sum())
        of = max(int(rest[~full].sum()), 1)
        over = ~full & (rest * left > (limit - first) * of)
        if not over.any():
            return np.where(full, limit, first + rest * left // of), (~full & (rest * left % of > 0)).astype(np.int64)
        full |= over


def _limited(
    group: NDArray[np.integer], size: Ints, plain: Mask, dropped: Mask, share: float, names: list[str]
) -> list[Limited]:
    """Return the groups that lose more than twice the average share, and more than by this cut, to a plain cut."""
    plainly, lost = (counts_of(group[rows], len(size)) for rows in (plain, dropped))
    over = np.flatnonzero((plainly > TWICE * share * size) & (lost < plainly) & (size >= LEAST_ROWS)).tolist()
    shown = [*names, f"groups of fewer than {LEAST_ROWS} rows"]
    worst = sorted(over, key=lambda each: (-plainly[each] / size[each], shown[each]))
    return [Limited(shown[each], int(size[each]), int(plainly[each]), int(lost[each])) for each in worst]


def _pooled(codes: NDArray[np.integer], counted: Mask, n_groups: int) -> NDArray[np.unsignedinteger]:
    """Return codes with groups of fewer than 10 rows merged into the last one."""
    size = counts_of(codes[counted], n_groups)
    kind = np.min_scalar_type(n_groups)
    return np.asarray(np.where(size < LEAST_ROWS, n_groups, np.arange(n_groups)).astype(kind)[codes])


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
        """The number or share of rows; InputError if invalid."""
        return Amount.parse(self.amount, f"--{self.name}")

    @abstractmethod
    def n_kept(self, n: int) -> int:
        """Return the number of kept rows out of n."""

    @abstractmethod
    def taken(self, result: RuleResult) -> int:
        """Return how many rows the amount comprises, kept or dropped by the rule."""

    def judge(self, table_rows: Rows, rows: slice, inside: Mask) -> Ruling:
        """Decide M consecutive rows; ``inside``, shape (M,), masks the rows that no earlier rule dropped."""
        column, ties, low_is_best = table_rows.exact[self.column], table_rows.hashes[rows], not self.keeps_high
        values, valid = column.values[rows], column.valid[rows]
        competing = inside & valid
        if self.even is not None:
            of_rows, is_relative = table_rows.groups[self.even], self.column in (FITTED, LOCAL)
            junk = values > USABLE if is_relative else np.zeros(len(values), bool)
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
        """Return notes on the column's meaning, on another interpretation of the amount, and on limited groups."""
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
        """Return the outcomes of equal shares by group, as plain JSON; None without groups."""
        return None if result.details is None else asdict(result.details.evened)

    def codes(self, result: RuleResult, rows: Ints) -> NDArray[np.integer]:
        """Return the group of M rows, shape (M,): an index into the cuts."""
        return super().codes(result, rows) if result.details is None else result.details.group[rows]

    def _endings(self, result: RuleResult, kept: str, dropped: str) -> list[list[str]]:
        """Return the texts after the score, by group: for kept, dropped, and dropped by a tie."""
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

    Exactly ``amount`` rows are kept (a share is rounded up). Ties at the threshold are ranked by a hash of the key,
    independent of machine and row order.
    """

    name: ClassVar[str] = "keep-top"
    stage = 3

    def n_kept(self, n: int) -> int:
        """Return the number of kept rows out of n."""
        return self.parsed.of(n, up=True)

    def taken(self, result: RuleResult) -> int:
        """Return how many rows the amount comprises, kept or dropped by the rule."""
        return result.left - result.lost()[0]

    def endings(self, result: RuleResult) -> list[list[str]]:
        """Return the texts after the score, by group: for kept, dropped, and dropped by a tie."""
        best, worst = ("top", "below") if self.keeps_high else ("lowest", "above")
        top = f"the {best} {self.parsed}"
        return self._endings(result, f" is in {top}", f" is {worst} {top}")


@dataclass(frozen=True)
class DropBottom(AmountRule):
    """Drop the least certain rows; the mirror of ``KeepTop``, with a share rounded down."""

    name: ClassVar[str] = "drop-bottom"
    stage = 2

    def n_kept(self, n: int) -> int:
        """Return the number of kept rows out of n."""
        return n - self.parsed.of(n, up=False)

    def taken(self, result: RuleResult) -> int:
        """Return how many rows the amount comprises, kept or dropped by the rule."""
        return result.lost()[1]

    def endings(self, result: RuleResult) -> list[list[str]]:
        """Return the texts after the score, by group: for kept, dropped, and dropped by a tie."""
        bottom = f"the {'bottom' if self.keeps_high else 'highest'} {self.parsed}"
        return self._endings(result, f" is outside {bottom}", f" is in {bottom}")
