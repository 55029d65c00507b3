"""Worth of each pick less the similarity between picks, on the graph of nearest neighbours."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.selectors.contract import check
from curate.selectors.graphs import check_neighbours, neighbours
from curate.selectors.herding import worth
from curate.selectors.pool import Pool, Selection
from scoring.errors import InputError


@dataclass(frozen=True)
class Pairwise:
    """Pick the row that adds most to alpha * (worth of picks) - (1 - alpha) * (cosines of neighbours both picked).

    Worth is the rank of the pool's uncertainty in (0, 1] where given, else 1 - margin where there are probabilities,
    else 1; times quality where given. Neighbours are rows of which one is among the ``neighbours`` nearest of the
    other; each pair counts once, negative cosines as 0, and labelled rows count as picked. The method for quality
    and diversity at scale: linear in the edges. Greedy; where gains fall below 0, more picks make the subset worse.

    Source: Böther et al. 2025, arXiv:2402.16442, eq. 1, whose alpha is 0.9.
    """

    alpha: float = 0.9
    neighbours: int = 10
    needs: ClassVar[tuple[str, ...]] = ("vectors",)
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "the graph of 10 neighbours, then O(N K) and 0.3 KB a row"

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError(f"alpha must be in [0, 1], the share that worth counts, got {self.alpha}")
        check_neighbours(self.neighbours)

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows."""
        check(pool, budget, self.needs)
        rows = np.sort(np.concatenate([pool.candidates, pool.labelled]))
        start, other, cosine, notes = edges(pool, self.neighbours, seed)
        places = np.searchsorted(rows, pool.candidates)
        value = np.full(len(rows), -np.inf)
        value[places] = self.alpha * _worth(pool)
        own = value.copy()

        def pick(place: int) -> None:
            value[place] = -np.inf
            span = slice(start[place], start[place + 1])
            value[other[span]] -= (1 - self.alpha) * cosine[span]

        for place in np.searchsorted(rows, pool.labelled):
            pick(int(place))
        picks, gains = np.empty(budget, np.int64), np.empty(budget)
        for position in range(budget):
            top = value.max()
            place = int((value >= top - 1e-9).argmax())
            picks[position], gains[position] = place, value[place]
            pick(place)
        parts = {"worth": own[picks], "similarity": own[picks] - gains}
        return Selection(rows[picks], gains, parts, notes)


def _worth(pool: Pool) -> NDArray[np.float64]:
    """Return what each candidate is worth, shape (M,), in [0, 1]."""
    if pool.uncertainty is None:
        return worth(pool).astype(np.float64)
    _, inverse, counts = np.unique(pool.uncertainty[pool.candidates], return_inverse=True, return_counts=True)
    upper = np.cumsum(counts)
    rank = (upper - (counts - 1) / 2)[inverse] / len(inverse)  # ties share their mean rank
    return rank if pool.quality is None else rank * pool.quality[pool.candidates]


def edges(
    pool: Pool, k: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], tuple[str, ...]]:
    """Return the pairs of neighbours, each from both sides and none twice, sorted: start, other row, cosine; notes."""
    size = len(pool.candidates) + len(pool.labelled)
    if size == 1:
        return np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), ()
    _, graph, notes = neighbours(pool, k, seed)
    source = np.repeat(np.arange(size, dtype=np.int64), graph.index.shape[1])
    target = graph.index.ravel().astype(np.int64)
    found = target >= 0
    source, target, cosine = source[found], target[found], np.maximum(graph.cosine.ravel()[found], 0)
    code = np.concatenate([source * size + target, target * size + source])
    code, first = np.unique(code, return_index=True)
    cosine = np.concatenate([cosine, cosine])[first]
    start = np.searchsorted(code // size, np.arange(size + 1))
    return start, (code % size).astype(np.int32), cosine, notes
