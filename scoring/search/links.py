"""Results of a search: links between queries and rows, their recall, and neighbour graphs."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scoring.metrics.proportions import wilson

MOST_NEIGHBOURS = 64  # maximal neighbours per row in a graph
TIE = 1e-12  # cosines this close below the threshold reach it, due to float64 rounding


@dataclass(frozen=True)
class Links:
    """P close pairs of a query and a row, sorted by query and then by row.

    Attributes:
        query: position among the queries given, shape (P,), int64.
        row: row of the index, shape (P,), int64.
        similarity: shape (P,), float32: a cosine, or a number of different bits.
    """

    query: NDArray[np.int64]
    row: NDArray[np.int64]
    similarity: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.query)


@dataclass(frozen=True)
class Recall:
    """The share of true links that a search finds, with a 95 % interval.

    Attributes:
        estimate: found / true on the sampled rows, in [0, 1]; NaN if the sample has no true link.
        low: lower end of Wilson's interval; 0 without a true link.
        high: upper end; 1 without a true link.
        n_pairs: true links of the sampled rows; 0 for an exact search.
        exact: whether the search compares all pairs, so that ``estimate`` is 1.
    """

    estimate: float
    low: float
    high: float
    n_pairs: int
    exact: bool

    @classmethod
    def of_everything(cls) -> "Recall":
        """Return the recall of an exhaustive search: 1."""
        return cls(1.0, 1.0, 1.0, 0, exact=True)

    @classmethod
    def of_sample(cls, n_linked: NDArray[np.int64], true: NDArray[np.int64]) -> "Recall":
        """Return the recall on sampled rows, from their found links (S,) and true links (S,).

        The links of one row are dependent: the interval uses an effective number of (sum n)^2 / (sum n^2) trials,
        correct for complete dependence, and conservative otherwise.

        Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference"; the effective
        number of trials is Kish's.
        """
        total = int(true.sum())
        if not total:
            return cls(math.nan, 0.0, 1.0, 0, exact=False)
        share = int(n_linked.sum()) / total
        trials = total**2 / float(np.square(true.astype(np.float64)).sum())
        _, low, high = wilson(share * trials, trials)
        return cls(share, low, high, total, exact=False)


@dataclass(frozen=True)
class Graph:
    """The neighbours of N rows, nearest first.

    Attributes:
        index: indices of neighbours, shape (N, k), int32; -1 for missing ones and for zero rows.
        cosine: to each, shape (N, k), float32; -inf where ``index`` is -1.
        recall: share of the true k nearest rows that are included.
    """

    index: NDArray[np.int32]
    cosine: NDArray[np.float32]
    recall: Recall


def rounded(similarity: NDArray[np.float64], threshold: float) -> NDArray[np.float32]:
    """Return similarities >= threshold as float32, rounded so that none is below it."""
    least = np.float32(threshold)
    if float(least) < threshold:
        least = np.nextafter(least, np.float32(2))
    return np.maximum(similarity.astype(np.float32), least)


def sorted_links(parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]]) -> Links:
    """Return links, found in any order, as one sorted result."""
    if not parts:
        return Links(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    query = np.concatenate([part[0] for part in parts])
    row = np.concatenate([part[1] for part in parts])
    similarity = np.concatenate([part[2] for part in parts])
    order = np.lexsort((row, query))
    return Links(query[order], row[order], similarity[order])
