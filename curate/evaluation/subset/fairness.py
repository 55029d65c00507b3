"""Whether a subset keeps each group equally: shares, their ratio, and groups that lose more than by chance."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.statistics.two_sample import holm
from curate.tables.rows import Codes
from scoring.errors import InputError
from scoring.metrics.proportions import chance_of_at_least, wilson
from scoring.metrics.resampling import Interval

FOUR_FIFTHS = 0.8  # ratio of shares kept below which a choice has adverse impact, by the rule of that name
MOST_GROUPS = 1000
SIGNIFICANT = 0.05
NOBODY = "(none)"  # the group of rows without a value


@dataclass(frozen=True)
class GroupShare:
    """The kept share of one group.

    Attributes:
        name: value of the column.
        rows: of the table.
        kept: of them.
        share: kept over rows, with Wilson's 95 % interval.
        p: probability that a random subset of the same size drops as many of the group, or more.
        adjusted_p: by Holm over all groups of the column.
    """

    name: str
    rows: int
    kept: int
    share: Interval
    p: float
    adjusted_p: float

    @property
    def dropped_more(self) -> bool:
        """Whether the group lost more rows than by chance."""
        return self.adjusted_p <= SIGNIFICANT


@dataclass(frozen=True)
class Fairness:
    """The kept share of each group in a column.

    Attributes:
        column: of the groups.
        kept: share of all rows.
        groups: the lowest share first.
        ratio: the lowest share over the highest; NaN for a single group.
    """

    column: str
    kept: float
    groups: list[GroupShare]
    ratio: float

    @property
    def passes(self) -> bool:
        """Whether the lowest share is at least four fifths of the highest."""
        return not self.ratio < FOUR_FIFTHS


def fairness(column: str, codes: Codes, kept: NDArray[np.bool_]) -> Fairness:
    """Return the kept share of each group.

    Args:
        column: name, for messages.
        codes: the group of each of N rows; -1 for none.
        kept: whether it is in the subset, shape (N,).

    Raises:
        InputError: for a column of more than 1,000 values.

    Source: the ratio, "four-fifths rule": Uniform Guidelines on Employee Selection Procedures, 29 CFR 1607.4 D (1978);
    p: Fisher's exact test, one-sided.
    """
    place = np.where(codes.codes < 0, len(codes.names), codes.codes)
    names = [*codes.names, NOBODY]
    rows, stay = np.bincount(place, minlength=len(names)), np.bincount(place[kept], minlength=len(names))
    present = np.flatnonzero(rows)
    if len(present) > MOST_GROUPS:
        raise InputError(
            f"--group: expected at most {MOST_GROUPS:,} groups in column {column!r}, got {len(present):,}; "
            "choose a column of groups"
        )
    n, dropped = len(kept), int((~kept).sum())
    p = np.array([chance_of_at_least(int(rows[g] - stay[g]), int(rows[g]), dropped, n) for g in present])
    adjusted = holm(p) if len(present) else p
    shares_kept = [
        GroupShare(names[g], int(rows[g]), int(stay[g]), wilson(int(stay[g]), int(rows[g])), float(each), float(after))
        for g, each, after in zip(present.tolist(), p, adjusted, strict=True)
    ]
    shares = stay[present] / rows[present]
    ratio = float(shares.min() / shares.max()) if len(present) > 1 and shares.max() > 0 else float("nan")
    return Fairness(
        column, float(kept.mean()) if n else 0.0, sorted(shares_kept, key=lambda group: group.share.value), ratio
    )
