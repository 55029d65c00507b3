"""Where a rule cuts, and on which side of the cut a row lies: by its score, or by an end of its interval.

An interval that is on one side of the cut decides its row; one that crosses it leaves the row undecided. What keeps
high values is strict by the lower end and lenient by the upper, what keeps low ones the other way round.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from curate.policies.filter.ends import BOUND, BY, CROSSING, LOWER, SCORE, UNDECIDED, UPPER
from curate.policies.filter.even import even_best
from curate.policies.filter.ranked import best, best_of_groups
from curate.policies.filter.ruling import Ruling
from curate.tables.rows import Rows
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.intervals import bounds_of
from scoring.lookup import lookup
from scoring.relative.columns import CLUSTER, FITTED, LOCAL
from scoring.relative.columns import COLUMNS as DATASET_COLUMNS
from scoring.relative.rule import PICTURE

Flags = NDArray[np.bool_]


class Cutting(Protocol):
    """A rule with a cut."""

    @property
    def column(self) -> str:
        """The score."""

    @property
    def per(self) -> str | None:
        """The column whose values are judged apart."""

    @property
    def even(self) -> str | None:
        """The column of the groups that an amount may not empty; None for a plain cut."""

    @property
    def by(self) -> str:
        """A key of ``BY``."""

    @property
    def crossing(self) -> str:
        """A key of ``CROSSING``."""


def check_by(rule: Cutting) -> None:
    """Raise ``InputError`` for a rule that names no end of an interval, or says what becomes of crossings without."""
    lookup(BY, rule.by, kind="value of --by")
    lookup(CROSSING, rule.crossing, kind="value of --crossing")
    if rule.crossing != UNDECIDED and rule.by == SCORE:
        raise InputError(
            f"--crossing {rule.crossing} is for rules by an interval; add --by {LOWER} or --by {UPPER}, or leave it out"
        )


def require_interval(rule: Any, table: Table) -> None:
    """Raise ``InputError`` for a rule by an end of intervals that a table has not, and say what to do."""
    names = table.schema.names
    table.require([rule.column])
    if set(bounds_of(rule.column)) <= set(names):
        return
    having = [name for name in names if set(bounds_of(name)) <= set(names)]
    why = ", for it compares an image with others" if rule.column in DATASET_COLUMNS else ""
    advice = f"name a column that has one with --column ({', '.join(having)})" if having else ""
    score = "score the images with curate score --views 8" if not having else ""
    raise InputError(
        f"--by {rule.by}: {rule.column} of {table.path} has no interval (columns "
        f"{' and '.join(bounds_of(rule.column))}){why}; {advice or score}, or leave --by out"
    )


def columns_read(rule: Cutting) -> tuple[str, ...]:
    """Return the columns of numbers that a rule reads."""
    return (rule.column,) if rule.by == SCORE else (rule.column, *bounds_of(rule.column))


def compared(rule: Cutting) -> str:
    """Return the column that a rule compares with its cut."""
    return dict(zip(BY, (rule.column, *bounds_of(rule.column)), strict=True))[rule.by]


@dataclass(frozen=True)
class Ends:
    """The intervals of M rows, as a rule looks at them.

    Attributes:
        strict: shape (M,), the end that is the last to reach a cut: the lower one where high values are kept.
        lenient: shape (M,), the other.
        valid: shape (M,), whether score and ends have a value.
        by_strict: whether the rule uses the strict end.
    """

    strict: NDArray[Any]
    lenient: NDArray[Any]
    valid: Flags
    by_strict: bool

    @property
    def named(self) -> NDArray[Any]:
        """The end that the rule uses."""
        return self.strict if self.by_strict else self.lenient


def ends_of(rule: Cutting, table_rows: Rows, rows: slice, *, high: bool) -> Ends:
    """Return the intervals of M rows in a row.

    Args:
        rule: by an end.
        table_rows: with its columns.
        rows: which.
        high: whether the rule keeps high values.

    Raises:
        InputError: for a lower end above the upper one.
    """
    score, lower, upper = (table_rows.exact[name] for name in columns_read(rule))
    valid = score.valid[rows] & lower.valid[rows] & upper.valid[rows]
    low, top = lower.values[rows], upper.values[rows]
    swapped = valid & (low > top)
    if swapped.any():
        at = int(swapped.argmax())
        names = bounds_of(rule.column)
        raise InputError(
            f"--by {rule.by}: expected {names[0]} of at most {names[1]}, got {low[at]:g} and {top[at]:g} in row "
            f"{(rows.start or 0) + at:,}; correct the columns, or leave --by out"
        )
    return Ends(low, top, valid, rule.by == LOWER) if high else Ends(top, low, valid, rule.by == UPPER)


def judge_cut(rule: Cutting, bound: Fraction, table_rows: Rows, rows: slice, *, high: bool) -> Ruling:
    """Judge M rows in a row by a cut that is given, in the precision of each column.

    Args:
        rule: whose cut it is.
        bound: the cut.
        table_rows: with its columns.
        rows: which.
        high: whether values of at least the cut stay, or those of at most.
    """

    def stays(values: NDArray[Any]) -> Flags:
        cut = _in_type(bound, values.dtype, up=high)
        return values >= cut if high else values <= cut

    if rule.by == SCORE:
        column = table_rows.exact[rule.column]
        values, valid = column.values[rows], column.valid[rows]
        return Ruling(stays(values) & valid, valid, _one_cut(bound, values.dtype))
    ends = ends_of(rule, table_rows, rows, high=high)
    return _ruling(rule, ends, stays(ends.strict), stays(ends.lenient), _one_cut(bound, ends.named.dtype))


def judge_rank(
    rule: Cutting, table_rows: Rows, rows: slice, inside: Flags, n_kept: Callable[[int], int], *, high: bool
) -> Ruling:
    """Keep the best ``n_kept(n)`` of each group's n rows that are in and have a value.

    By an interval that many stay by the end that is named: by the strict end they are the rows that are kept, by the
    lenient one all others are the rows that are dropped. Where all of a group stay, no cut falls, and none crosses it.

    Args:
        rule: an amount.
        table_rows: with its columns.
        rows: all of them.
        inside: shape (M,), the rows that compete.
        n_kept: how many stay, from how many compete.
        high: whether high values are the best.
    """
    if rule.by == SCORE and rule.even is not None:
        return _judge_evenly(rule, table_rows, rows, inside, n_kept, high=high)
    if rule.by == SCORE:
        column = table_rows.exact[rule.column]
        keep, cuts, _ = _best(rule, table_rows, rows, column.values[rows], inside, column.valid[rows], n_kept, high)
        return Ruling(keep, column.valid[rows], cuts)
    ends = ends_of(rule, table_rows, rows, high=high)
    stays, cuts, is_cut = _best(rule, table_rows, rows, ends.named, inside, ends.valid, n_kept, high)
    codes = table_rows.groups[rule.per].codes[rows] if rule.per else np.zeros(len(inside), np.int8)
    cut = cuts[codes]  # NaN, which nothing reaches, where nothing stays
    other = ends.lenient if ends.by_strict else ends.strict
    reaches = other >= cut if high else other <= cut
    if ends.by_strict:
        return _ruling(rule, ends, stays, stays | (reaches & (ends.strict != ends.lenient)), cuts)
    whole = stays & ~is_cut[codes]  # of groups that all stay: their cut is the last strict end
    worst = np.full(len(cuts), np.inf if high else -np.inf)
    (np.minimum if high else np.maximum).at(worst, codes[whole], ends.strict[whole].astype(np.float64))
    cuts = np.where(is_cut | np.isnan(cuts), cuts, worst)
    return _ruling(rule, ends, stays & (reaches | whole), stays, cuts)


def _judge_evenly(
    rule: Cutting, table_rows: Rows, rows: slice, inside: Flags, n_kept: Callable[[int], int], *, high: bool
) -> Ruling:
    """Keep the best rows, but empty no group of ``rule.even``; unusable images are protected by their class alone."""
    column, groups = table_rows.exact[rule.column], table_rows.groups[str(rule.even)]
    values, valid = column.values[rows], column.valid[rows]
    free = values > PICTURE if rule.even == CLUSTER and rule.column in (FITTED, LOCAL) else None
    keep, cut, evened = even_best(
        values,
        inside & valid,
        n_kept,
        table_rows.hashes[rows],
        groups.codes[rows],
        groups.names,
        column=str(rule.even),
        free=free,
        low_is_best=not high,
    )
    return Ruling(keep, valid, np.array([cut]), evened)


def _ruling(rule: Cutting, ends: Ends, surely: Flags, perhaps: Flags, cuts: NDArray[np.float64]) -> Ruling:
    """Return what becomes of rows that are kept by the strict end, or only by the lenient one."""
    if rule.crossing == BOUND:
        return Ruling((surely if ends.by_strict else perhaps) & ends.valid, ends.valid, cuts)
    return Ruling(surely & ends.valid, ends.valid & (surely | ~perhaps), cuts)


def _best(
    rule: Cutting,
    table_rows: Rows,
    rows: slice,
    values: NDArray[Any],
    inside: Flags,
    valid: Flags,
    n_kept: Callable[[int], int],
    high: bool,
) -> tuple[Flags, NDArray[np.float64], Flags]:
    """Return which rows are the best, the worst value that stays in each group, and in which groups some go."""
    ties = table_rows.hashes[rows]
    if rule.per is None:
        competing = inside if valid.all() else inside & valid
        keep, cut = best(values, competing, n_kept, ties, low_is_best=not high)
        return keep, np.array([cut]), np.array([bool((competing & ~keep).any())])
    groups = table_rows.groups[rule.per]
    codes, n_groups = groups.codes[rows], len(groups.names)
    judged = np.flatnonzero(inside & valid)
    stays, cuts = best_of_groups(values[judged], codes[judged], n_groups, n_kept, ties[judged], low_is_best=not high)
    keep = np.zeros(len(valid), bool)
    keep[judged] = stays
    return keep, cuts, np.bincount(codes[judged[~stays]], minlength=n_groups) > 0


def _in_type(bound: Fraction, kind: np.dtype, *, up: bool) -> Any:
    """A bound in the precision of the column, so that ``--min 0.1`` keeps a float32 0.1."""
    if np.issubdtype(kind, np.integer):
        return -(-bound.numerator // bound.denominator) if up else bound.numerator // bound.denominator
    with np.errstate(over="ignore"):
        return kind.type(_to_float(bound))


def _to_float(bound: Fraction) -> float:
    try:
        return float(bound)
    except OverflowError:
        return float("inf") if bound > 0 else float("-inf")


def _one_cut(bound: Fraction, kind: np.dtype) -> np.ndarray:
    exact = np.issubdtype(kind, np.integer)
    return np.array([_to_float(bound) if exact else float(_in_type(bound, kind, up=True))])
