"""A cut that empties no group: junk is dropped first, then the same share of every group."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.policies.filter.ranked import best, places, worst_of
from curate.policies.uneven import LEAST_ROWS, TWICE

Flags = NDArray[np.bool_]
SHOWN = {"label": "class", "cluster": "cluster"}


@dataclass(frozen=True)
class Limited:
    """A group of which a plain cut would have dropped more than twice the average share.

    Attributes:
        group: its name.
        rows: that competed, junk left out.
        plain: of these, rows that the plain cut drops.
        dropped: rows that are dropped.
    """

    group: str
    rows: int
    plain: int
    dropped: int


@dataclass(frozen=True)
class Evened:
    """What became of a cut that takes the same share of every group.

    Attributes:
        column: of the groups.
        share: that every group loses of its other images.
        junk: images that were dropped before, whatever their group.
        limited: groups that the plain cut would have emptied, the worst first.
    """

    column: str
    share: float
    junk: int
    limited: list[Limited]

    def line(self) -> str:
        """Return what was limited, as one sentence."""
        first, more = self.limited[0], len(self.limited) - 1
        what = SHOWN.get(self.column, self.column)
        return (
            f"{what} {first.group} would lose {first.plain / first.rows:.0%} of {first.rows:,} rows; like every {what} "
            f"it loses {self.share:.0%}{f', and {more} more' if more else ''}; --allow-uneven lifts the limit"
        )


@dataclass(frozen=True)
class EvenCut:
    """Which rows are kept, and by what.

    Attributes:
        keep: shape (N,).
        cuts: the worst value that is kept in each group, shape (G + 2,), of junk in all; NaN without any.
        group: of each row, shape (N,): a place in the G names; G where the group is small, G + 1 of junk.
        evened: what became of the groups.
    """

    keep: Flags
    cuts: NDArray[np.float64]
    group: NDArray[np.int32]
    evened: Evened


def even_best(
    values: NDArray[Any],
    competing: Flags,
    n_kept: Callable[[int], int],
    ties: NDArray[np.uint64],
    codes: NDArray[np.integer],
    names: list[str],
    *,
    column: str,
    junk: Flags,
    low_is_best: bool,
) -> EvenCut:
    """Return which rows are kept: junk is dropped first, then of every group the same share, the worst.

    Exactly as many rows are kept as by the plain cut: a share that is no whole number of rows is rounded down, and the
    rows that are missing then are the worst of those that would be next in their groups, one of each. Groups of fewer
    than 10 rows count as one.

    Args:
        values: shape (N,), of which those that compete are no NaN.
        competing: rows that compete, shape (N,).
        n_kept: how many are kept, from how many compete.
        ties: which rows are kept where values are equal, shape (N,): the highest.
        codes: the group of each row, a place in ``names``, shape (N,).
        names: of the G groups.
        column: of the groups, for the result.
        junk: rows that no group protects, shape (N,).
        low_is_best: whether low values are the best.
    """
    n, first = int(competing.sum()), competing & junk
    n_dropped, n_first = n - n_kept(n), int(first.sum())
    keep, _ = best(values, first, lambda m: max(m - n_dropped, 0), ties, low_is_best=low_is_best)
    rest = max(n_dropped - n_first, 0)
    share = rest / max(n - n_first, 1)
    group = _pooled(codes, competing & ~junk, len(names))
    group[junk] = len(names) + 1
    at = np.flatnonzero(competing & ~junk)
    size = np.bincount(group[at], minlength=len(names) + 2)
    keep[at] = _most_of_each(values[at], group[at], size, rest, ties[at], low_is_best=low_is_best)
    plain, _ = best(values, competing, n_kept, ties, low_is_best=low_is_best)
    limited = _limited(group, competing & ~junk, plain, keep, share, names)
    evened = Evened(column, share, min(n_first, n_dropped), limited)
    cuts = worst_of(values, group, keep, len(size), low_is_best=low_is_best)
    if n_dropped >= n_first and keep.any():
        cuts[-1] = np.nanmax(cuts) if low_is_best else np.nanmin(cuts)
    return EvenCut(keep, cuts, group, evened)


def _most_of_each(
    values: NDArray[Any],
    group: NDArray[np.int32],
    size: NDArray[np.int64],
    n_dropped: int,
    ties: NDArray[np.uint64],
    *,
    low_is_best: bool,
) -> Flags:
    """Return which of M rows are kept, shape (M,): of every group the same share is dropped, ``n_dropped`` in all."""
    whole = size * n_dropped // max(len(values), 1)
    place = size[group] - 1 - places(values, group, size, ties, low_is_best=low_is_best)  # 0 is the worst of its group
    keep = place >= whole[group]
    missing = n_dropped - int(whole.sum())
    following = place == whole[group]
    stays, _ = best(values, following, lambda m: m - missing, ties, low_is_best=low_is_best)
    return keep & (stays | ~following)


def _limited(
    group: NDArray[np.int32], counted: Flags, plain: Flags, keep: Flags, share: float, names: list[str]
) -> list[Limited]:
    """Return the groups of which a plain cut drops more than twice the share, the worst first."""
    size, plainly, dropped = (
        np.bincount(group[rows], minlength=len(names) + 2) for rows in (counted, counted & ~plain, counted & ~keep)
    )
    over = np.flatnonzero((plainly > TWICE * share * size) & (size >= LEAST_ROWS)).tolist()
    shown = [*names, f"groups of fewer than {LEAST_ROWS} rows"]
    worst = sorted(over, key=lambda each: (-plainly[each] / size[each], shown[each]))
    return [Limited(shown[each], int(size[each]), int(plainly[each]), int(dropped[each])) for each in worst]


def _pooled(codes: NDArray[np.integer], counted: Flags, n_groups: int) -> NDArray[np.int32]:
    """Return codes in which groups of fewer than 10 rows are one group, the last."""
    size = np.bincount(codes[counted], minlength=n_groups)
    return np.where(size < LEAST_ROWS, np.int32(n_groups), np.arange(n_groups, dtype=np.int32))[codes]
