"""A cut that empties no group: where one would lose far more than the rest, the excess is spread over the others."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.policies.filter.ranked import best, best_of_groups
from curate.policies.uneven import LEAST_ROWS

Flags = NDArray[np.bool_]
MOST = 1.25  # times the average share that a group may lose: on clean sets 2 trains worse (docs/studies/cleaning.md)


@dataclass(frozen=True)
class Limited:
    """A group that a plain cut would have taken too much of.

    Attributes:
        group: its name.
        rows: that competed.
        plain: of these, rows that the plain cut drops.
        dropped: rows that are dropped.
    """

    group: str
    rows: int
    plain: int
    dropped: int


@dataclass(frozen=True)
class Evened:
    """What became of a cut that may empty no group.

    Attributes:
        column: of the groups.
        share: the average share that is dropped.
        most: the largest share of a group that may be dropped.
        limited: groups that the plain cut would have taken more of, the worst first.
    """

    column: str
    share: float
    most: float
    limited: list[Limited] = field(default_factory=list)

    def line(self) -> str:
        """Return what was limited, as one sentence."""
        first, more = self.limited[0], len(self.limited) - 1
        what = {"label": "class", "cluster": "cluster"}.get(self.column, self.column)
        return (
            f"{what} {first.group} would lose {first.plain / first.rows:.0%} of {first.rows:,} rows (all: "
            f"{self.share:.0%}); limited to {first.dropped / first.rows:.0%}{f', and {more} more' if more else ''}: "
            "other rows are dropped instead; --allow-uneven lifts the limit"
        )


def most_dropped(share: float) -> float:
    """Return the largest share of a group that may be dropped: 1.25 times the average, and half of what is left stays.

    >>> [round(most_dropped(share), 2) for share in (0.1, 0.2, 0.5, 0.9)]
    [0.12, 0.25, 0.62, 0.95]
    """
    return min(MOST * share, (1 + share) / 2)


def even_best(
    values: NDArray[Any],
    competing: Flags,
    n_kept: Callable[[int], int],
    ties: NDArray[np.uint64],
    codes: NDArray[np.integer],
    names: list[str],
    *,
    column: str,
    free: Flags | None,
    low_is_best: bool,
) -> tuple[Flags, float, Evened]:
    """Return which rows are kept: the best, but of no group more is dropped than ``most_dropped`` of the average.

    Exactly as many rows are kept as by the plain cut. Groups of fewer than 10 rows count as one.

    Args:
        values: shape (N,), of which those that compete are no NaN.
        competing: rows that compete, shape (N,).
        n_kept: how many are kept, from how many compete.
        ties: who wins where values are equal, shape (N,): the highest.
        codes: the group of each row, a place in ``names``, shape (N,).
        names: of the groups.
        column: of the groups, for the result.
        free: rows that no group protects, such as unusable images; None for none.
        low_is_best: whether low values are the best.

    Returns:
        kept rows, shape (N,); the worst value that the cut keeps, NaN for none; and what was limited.
    """
    n = int(competing.sum())
    n_dropped = n - n_kept(n)
    share = n_dropped / max(n, 1)
    keep, cut = best(values, competing, n_kept, ties, low_is_best=low_is_best)
    evened = Evened(column, share, most_dropped(share))
    if not n_dropped or n_dropped == n:
        return keep, cut, evened
    counted = competing if free is None else competing & ~free
    group = _pooled(codes, counted, len(names))
    size = np.bincount(group[counted], minlength=len(names) + 1)

    def limit_of(rows: Any) -> Any:  # in whole rows, and never below the average, which would leave too few to drop
        return np.maximum(np.floor(evened.most * rows + 1e-9), np.ceil(share * rows - 1e-9)).astype(np.int64)

    limit = limit_of(size)
    plain = np.bincount(group[counted & ~keep], minlength=len(size))
    protected = np.zeros(len(values), bool)
    over = np.flatnonzero(plain > limit)
    while len(over):
        rows = np.flatnonzero(counted & np.isin(group, over))
        place = np.searchsorted(over, group[rows]).astype(np.int32)
        stays, _ = best_of_groups(
            values[rows], place, len(over), lambda m: m - int(limit_of(m)), ties[rows], low_is_best=low_is_best
        )
        protected[rows[stays]] = True
        keep, cut = best(values, competing & ~protected, lambda m: m - n_dropped, ties, low_is_best=low_is_best)
        keep |= protected
        lost = np.bincount(group[counted & ~keep], minlength=len(size))
        over = np.flatnonzero(lost > limit)
    lost = np.bincount(group[counted & ~keep], minlength=len(size))
    shown = [*names, f"groups of fewer than {LEAST_ROWS} rows"]
    worst = sorted(np.flatnonzero(plain > limit).tolist(), key=lambda at: -plain[at] / size[at])
    limited = [Limited(shown[at], int(size[at]), int(plain[at]), int(lost[at])) for at in worst]
    return keep, cut, Evened(column, share, evened.most, limited)


def _pooled(codes: NDArray[np.integer], counted: Flags, n_groups: int) -> NDArray[np.int64]:
    """Return codes in which groups of fewer than 10 rows are one group, the last."""
    size = np.bincount(codes[counted], minlength=n_groups)
    return np.where(size < LEAST_ROWS, n_groups, np.arange(n_groups))[codes]
