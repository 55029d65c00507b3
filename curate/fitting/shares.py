"""How much of each class or cluster a cut by a score would drop, since rare is not bad."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KEPT = 0.7  # of the rows: the cut that is given
MOST_SHARES = 100  # classes that are given, the largest first
LEAST_ROWS = 10  # of a group: a share of fewer says nothing


@dataclass(frozen=True)
class Share:
    """How much of one class or cluster a cut would drop.

    Attributes:
        name: of the class, or the number of the cluster.
        rows: of it.
        taken: rows that the cut would take.
    """

    name: str
    rows: int
    taken: int


def shares_of(score: NDArray, codes: NDArray[np.integer], names: list[str]) -> list[Share]:
    """Return how much of each group a cut that keeps the most certain 70 % would drop, largest group first.

    Args:
        score: higher is less certain, shape (M,).
        codes: group of each row, a place in ``names``, shape (M,); -1 for none.
        names: of the groups.
    """
    order = np.argsort(score, kind="stable")
    taken = np.zeros(len(score), bool)
    taken[order[int(np.ceil(KEPT * len(score))) :]] = True
    known = codes >= 0
    size = np.bincount(codes[known], minlength=len(names))
    lost = np.bincount(codes[known & taken], minlength=len(names))
    by_size = [at for at in np.argsort(-size, kind="stable").tolist() if size[at]]
    return [Share(names[at], int(size[at]), int(lost[at])) for at in by_size[:MOST_SHARES]]
