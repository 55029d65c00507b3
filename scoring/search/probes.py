"""How many inverted lists a query must search, from sampled rows compared with all rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scoring.search.inverted import InvertedLists
from scoring.search.links import Recall

MOST_PROBES = 64  # lists that a query looks at
UNKNOWN = 8  # lists to look at where the sample has no pair to use


class ProbeCounts:
    """The number of pairs of each query in its nearest list, its second, ..., and beyond the last searched.

    Args:
        probed: lists of each of the S queries, nearest first, shape (S, P).
        n_lists: of the table.

    Attributes:
        counts: shape (S, P + 1), int64.
    """

    def __init__(self, probed: NDArray[np.int64], n_lists: int) -> None:
        n_queries, most = probed.shape
        self.counts = np.zeros((n_queries, most + 1), np.int64)
        self._rank = np.full((n_queries, n_lists), most, np.uint8)
        self._rank[np.arange(n_queries)[:, None], probed] = np.arange(most)

    def add(self, query: NDArray[np.int64], lists: NDArray[np.int32]) -> None:
        """Count pairs by their query and the list of their row, shape (M,) each."""
        flat = query * self.counts.shape[1] + self._rank[query, lists]
        self.counts += np.bincount(flat, minlength=self.counts.size).reshape(self.counts.shape)


def choose(
    lists: InvertedLists, pairs: Callable[[InvertedLists], NDArray[np.int64]], share: float, **options: Any
) -> tuple[InvertedLists, int, Recall]:
    """Return lists whose rows search enough groups, then the probes and recall of ``choose_probes``.

    Args:
        lists: of the table.
        pairs: counts of sampled rows that look at lists in a way, as ``ProbeCounts`` has them.
        share: of the pairs that are to be found.
        options: of ``choose_probes``.
    """
    if lists.centroids is None:
        return lists, *choose_probes(pairs(lists), share, **options)
    for centroids in lists.centroids.wider():
        lists = lists.looking(centroids)
        counts = pairs(lists)
        probes, recall = choose_probes(counts, share, **options)
        if probes < counts.shape[1] - 1:
            break
    return lists, probes, recall


def choose_probes(
    counts: NDArray[np.int64], needed: float, *, least: int = 1, of_each: bool = False
) -> tuple[int, Recall]:
    """Return the fewest lists that contain the needed share of pairs, and the recall.

    Every other sampled row decides; the rows between measure the share.

    Args:
        counts: of sampled rows, as ``ProbeCounts`` has them, shape (S, P + 1).
        needed: share of the pairs, in (0, 1).
        least: lists to look at.
        of_each: the average row's share must reach it too, so that one large group does not decide alone.
    """
    most = counts.shape[1] - 1
    probes = min(most, max(least, _fewest(counts[0::2], needed, of_each)))
    reporting = counts[1::2]
    return probes, Recall.of_sample(reporting[:, :probes].sum(1), reporting.sum(1))


def _fewest(counts: NDArray[np.int64], needed: float, of_each: bool) -> int:
    of_row = counts.sum(1)
    counts, of_row = counts[of_row > 0], of_row[of_row > 0]
    if not len(counts):
        return UNKNOWN
    upto = counts[:, :-1].cumsum(1)  # (S, P): pairs found by looking at so many lists
    share = upto.sum(0) / of_row.sum()
    if of_each:
        share = np.minimum(share, (upto / of_row[:, None]).mean(0))
    reached = np.flatnonzero(share >= needed)
    return int(reached[0]) + 1 if len(reached) else MOST_PROBES
