"""Inverted lists: every row in the list of its nearest centroid, rows of a list stored contiguously."""

import math
from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.search.kmeans import Centroids, assign, in_groups, nearest_centroids, spherical_kmeans
from scoring.search.rows import Vectors

LIST_ROWS = 500  # rows a list has on average
ROOTS = 4  # at most this many times sqrt(N) lists
ITERATIONS = 6  # of k-means: more of them move the recall less than one more probe does

Spans = list[tuple[int, int, NDArray[np.int64]]]  # first position, end, and the ascending queries that search it


class InvertedLists:
    """N rows in C lists.

    Attributes:
        order: rows sorted by list, then index, shape (N,), int64; zero rows are in no list and come first.
        starts: first position of each list, and the end of the last, shape (C + 1,), int64.
        home: list of each row, shape (N,), int32; -1 for a zero row.
        centroids: of the lists; None for a single list of all rows.
    """

    def __init__(
        self,
        home: NDArray[np.int32],
        n_lists: int,
        centroids: Centroids | None = None,
        *,
        order: NDArray[np.int64] | None = None,
    ) -> None:
        self.home, self.centroids = home, centroids
        self.order = np.argsort(home, kind="stable").astype(np.int64) if order is None else order
        self.starts = np.searchsorted(home[self.order], np.arange(n_lists + 1)).astype(np.int64)

    @classmethod
    def of_everything(cls, n_rows: int) -> "InvertedLists":
        """Return one list of all rows."""
        return cls(np.zeros(n_rows, np.int32), 1)

    @classmethod
    def by_centroids(
        cls, vectors: Vectors, centroids: NDArray[np.float32], *, device: str | None = None
    ) -> "InvertedLists":
        """Return the lists of the nearest centroids of rows, shape (N, D)."""
        middle = in_groups(torch.from_numpy(centroids).to(device or "cpu"), 0)
        home = assign(vectors, middle, device=device)[0][:, 0]
        return cls(home, len(middle), middle)

    def looking(self, centroids: Centroids) -> "InvertedLists":
        """Return the same lists with the centroids for finding the nearest lists replaced."""
        lists = copy(self)
        lists.centroids = centroids
        return lists

    @property
    def n_lists(self) -> int:
        """Number C of lists."""
        return len(self.starts) - 1

    @property
    def rows(self) -> NDArray[np.int64]:
        """Row indices by position in the lists, shape (M,)."""
        return self.order[self.starts[0] :]

    def probed(self, units: Tensor, probes: int) -> NDArray[np.int64]:
        """Return the lists whose centroids are nearest to unit rows (Q, D) in bfloat16, nearest first, (Q, probes)."""
        if self.centroids is None:
            return np.zeros((len(units), 1), np.int64)
        return nearest_centroids(units, self.centroids, probes)[0].cpu().numpy()

    def everything(self, queries: NDArray[np.int64]) -> Spans:
        """Return the spans of queries that search all lists."""
        return [(int(self.starts[0]), len(self.order), queries)]

    def spans(self, queries: NDArray[np.int64], probed: NDArray[np.int64]) -> Spans:
        """Return the spans of queries that search their own lists.

        Args:
            queries: indices, ascending, shape (Q,).
            probed: lists of each, shape (Q, P).
        """
        if not probed.size:
            return []
        flat = probed.ravel()
        by_list = np.argsort(flat, kind="stable")
        query = np.repeat(queries, probed.shape[1])[by_list]
        numbers, begins = np.unique(flat[by_list], return_index=True)
        return [
            (int(self.starts[number]), int(self.starts[number + 1]), looking)
            for number, looking in zip(numbers, np.split(query, begins[1:]), strict=True)
        ]


def list_centroids(
    vectors: Vectors, *, exact_rows: int, seed: int, order: NDArray[np.int64] | None = None, device: str | None = None
) -> NDArray[np.float32] | None:
    """Return centroids for the lists of a table, shape (C, D); None if comparing all rows is faster.

    Args:
        vectors: shape (N, D).
        exact_rows: maximal number of rows for an exact search.
        seed: of the centroids.
        order: as in ``spherical_kmeans``.
        device: torch device of the products.
    """
    n_lists = min(len(vectors) // LIST_ROWS, ROOTS * math.isqrt(len(vectors)))
    if len(vectors) <= exact_rows or n_lists < 2:
        return None
    return spherical_kmeans(vectors, n_lists, seed=seed, iterations=ITERATIONS, order=order, device=device)
