"""Worth of each pick less the similarity between picks, on the graph of nearest neighbours."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.selectors.contract import Selector, check
from curate.selectors.cover import by_server
from curate.selectors.geometry import members, spans
from curate.selectors.graphs import check_neighbours, neighbours
from curate.selectors.herding import coverage_weights
from curate.selectors.picking import picking
from curate.selectors.pool import Pool, Selection
from scoring.errors import InputError
from scoring.metrics.ranking import ranks

BLOCK = 65_536  # rows, or entries, that are looked at in one go


@dataclass(frozen=True)
class Pairwise(Selector):
    """Pick the row that adds most to alpha * (utility of picks) - (1 - alpha) * (cosines of neighbours both picked).

    Utility is the rank of the pool's uncertainty in (0, 1] where given, else 1 - margin where there are probabilities,
    else 1; times quality where given. Neighbours are rows of which one is among the ``neighbours`` nearest of the
    other; each pair counts once, negative cosines as 0, and labelled rows count as picked. The method for quality
    and diversity at scale: linear in the edges. Greedy; where gains fall below 0, more picks make the subset worse.

    Source: Böther et al. 2025, arXiv:2402.16442, eq. 1, whose alpha is 0.9.
    """

    alpha: float = 0.9
    neighbours: int = 10
    needs: ClassVar[tuple[str, ...]] = ("vectors",)
    optional: ClassVar[tuple[str, ...]] = ("uncertainty", "probabilities", "quality")
    uses_graph: ClassVar[bool] = True
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "the graph of 10 neighbours, then O(N K) and 0.6 KB a row"

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError(f"alpha must be in [0, 1], the weight of utility, got {self.alpha}")
        check_neighbours(self.neighbours)

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        check(pool, budget, self.needs)
        rows = members(pool.candidates, pool.labelled)
        start, other, cosine, notes = edges(pool, self.neighbours, seed)
        places = np.searchsorted(rows, pool.candidates)
        value = np.full(len(rows), -np.inf)
        value[places] = self.alpha * _quality(pool)
        quality = value.copy()

        def pick(place: int) -> None:
            value[place] = -np.inf
            span = slice(start[place], start[place + 1])
            value[other[span]] -= (1 - self.alpha) * cosine[span]

        for place in np.searchsorted(rows, pool.labelled):
            pick(int(place))
        picks, gains = np.empty(budget, np.int64), np.empty(budget)
        for position in picking(budget):
            top = value.max()
            place = int((value >= top - 1e-9).argmax())
            picks[position], gains[position] = place, value[place]
            pick(place)
        parts = {"utility": quality[picks], "similarity": quality[picks] - gains}
        return Selection(rows[picks], gains, parts, notes)


def _quality(pool: Pool) -> NDArray[np.float64]:
    """Return how good each candidate is, shape (M,), in [0, 1]."""
    if pool.uncertainty is None:
        return coverage_weights(pool).astype(np.float64)
    rank = ranks(pool.uncertainty[pool.candidates]) / len(pool.candidates)  # ties share their mean rank
    return rank if pool.quality is None else rank * pool.quality[pool.candidates]


def edges(
    pool: Pool, k: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], tuple[str, ...]]:
    """Return the pairs of neighbours, each from both sides and none twice, by row: start, other row, cosine; notes."""
    size = len(pool.candidates) + len(pool.labelled)
    if size == 1:
        return np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), ()
    _, graph, notes = neighbours(pool, k, seed)
    index, is_edge = graph.index, graph.index >= 0  # (M, k)
    back = is_edge & ~_mutual(index)  # pairs that the other row does not name
    source = np.repeat(np.arange(size, dtype=np.int32), back.sum(axis=1))
    likeness = graph.cosine[back]
    entry, until = by_server(index[back], size)
    named = is_edge.sum(axis=1)
    start = np.concatenate([[0], np.cumsum(named + np.diff(until))])
    other, cosine = np.empty(start[-1], np.int32), np.empty(start[-1], np.float32)
    for span in spans(size, BLOCK):  # of each row those that it names, then those that name it
        block = slice(start[span.start], start[span.stop])
        counts = np.diff(start[span.start : span.stop + 1])
        turn = np.arange(block.stop - block.start) - np.repeat(start[span] - block.start, counts)
        named_first = turn < np.repeat(named[span], counts)
        others = entry[until[span.start] : until[span.stop]]
        other[block][named_first], other[block][~named_first] = index[span][is_edge[span]], source[others]
        cosine[block][named_first], cosine[block][~named_first] = graph.cosine[span][is_edge[span]], likeness[others]
    return start, other, np.maximum(cosine, 0, out=cosine), notes


def _mutual(index: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return whether the row that each entry names names its own row as well, shape (M, k); of -1, anything."""
    mutual = np.empty(index.shape, bool)
    for span in spans(len(index), max(1, BLOCK // index.shape[1])):
        of_others = index[np.maximum(index[span], 0)]  # (B, k, k)
        mutual[span] = (of_others == np.arange(span.start, span.stop)[:, None, None]).any(axis=2)
    return mutual
