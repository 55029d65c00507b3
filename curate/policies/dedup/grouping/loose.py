"""Large groups just above a threshold: copies of one image lie far above it, images of one template do not."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.facts import LooseGroups
from curate.policies.dedup.finders.table import FINDERS
from curate.policies.dedup.grouping.members import Members
from curate.policies.dedup.grouping.stars import Stars

LARGE = 5  # rows of a group
NEAR = 0.5  # of the way from the threshold to equal: less is just above it
NEAR_SIGNATURE = 0.99  # cosine: of 14 photographs and 17 edits of each the median copy had 0.996 or more


@dataclass(frozen=True)
class Loose:
    """Dropped rows of such groups, and the message on them.

    Attributes:
        rows: numbers, ascending.
        fact: for the user; None if absent.
    """

    rows: NDArray[np.int64]
    fact: LooseGroups | None


def loose_groups(members: Members, stars: Stars, outside: NDArray[np.bool_], thresholds: Mapping[str, float]) -> Loose:
    """Return the groups of 5 rows or more of which more than half of those that go are just above their threshold.

    Args:
        members: rows by group.
        stars: who belongs to whom.
        outside: rows whose owner is a row of another table, which do not count, shape (N,) bool.
        thresholds: by finder.
    """
    n = len(members.size)
    gone = np.flatnonzero((stars.finder >= 0) & ~outside & (members.group >= 0))
    near = np.zeros(len(gone), bool)
    for number, name in enumerate(stars.names):
        by_it = stars.finder[gone] == number
        near[by_it] = FINDERS[name].room(stars.similarity[gone[by_it]], thresholds[name]) < _bound(
            name, thresholds[name]
        )
    group = members.group[gone]
    in_all, in_near = np.bincount(group, minlength=n), np.bincount(group[near], minlength=n)
    is_loose = (members.size >= LARGE) & (2 * in_near > in_all)
    rows = gone[is_loose[group]]
    if not len(rows):
        return Loose(rows, None)
    commonest = int(np.bincount(stars.finder[rows]).argmax())
    similarity = float(np.median(stars.similarity[rows[stars.finder[rows] == commonest]]))
    largest = int(members.size[is_loose].max())
    return Loose(rows, LooseGroups(int(is_loose.sum()), len(rows), largest, stars.names[commonest], similarity))


def _bound(name: str, threshold: float) -> float:
    """Return the share of the way from a finder's threshold to equal below which a pair is just above it."""
    if FINDERS[name].threshold is None:
        return 0.0
    if name == "signature":
        return float(FINDERS[name].room(np.array([max(NEAR_SIGNATURE, threshold)]), threshold)[0])
    return NEAR
