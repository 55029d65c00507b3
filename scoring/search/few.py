"""Exact search by cosine threshold among few rows, in NumPy."""

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array
from scoring.search.links import TIE, Graph, Links, Recall, rounded, sorted_links

FEW = 2048  # rows below which comparing all pairs is faster than importing torch
AT_ONCE = 2048  # queries


class FewCosines:
    """Finds every pair whose cosine in float64 reaches a threshold, like ``CosineIndex``.

    Attributes:
        threshold: minimal cosine.
        recall: always 1.
    """

    def __init__(self, vectors: Array, threshold: float) -> None:
        """Store the rows (N, D), of any length, in float64; zero rows match nothing.

        Raises ValueError, with the index of the row, if a row has NaN or infinity.
        """
        self.threshold, self.recall = threshold, Recall.of_everything()
        self._rows, self._squares = _exact(vectors)

    def search(self, queries: Array, among: NDArray[np.bool_] | None = None, *, first: bool = False) -> Links:
        """Return the links of queries, shape (Q, D), as ``CosineIndex.search``."""
        candidates, parts = np.flatnonzero(self._squares > 0 if among is None else among & (self._squares > 0)), []
        for start in range(0, len(queries), AT_ONCE):
            exact, squares = _exact(queries[start : start + AT_ONCE])
            lengths = np.sqrt(squares[:, None] * self._squares[candidates])
            cosine = np.full(lengths.shape, -1.0)
            np.divide(exact @ self._rows[candidates].T, lengths, out=cosine, where=lengths > 0)
            close = cosine >= self.threshold - TIE
            if first:
                place = np.flatnonzero(close.any(0))
                query = close[:, place].argmax(0)
            else:
                query, place = np.nonzero(close)
            similarity = rounded(np.minimum(cosine[query, place], 1.0), self.threshold)
            parts.append((query + start, candidates[place], similarity))
            if first:
                candidates = np.delete(candidates, place)
        return sorted_links(parts)

    def search_rows(
        self, rows: NDArray[np.int64], among: NDArray[np.bool_] | None = None, *, first: bool = False
    ) -> Links:
        """Return the same for queries that are rows, shape (Q,); ``query`` is a position in ``rows``."""
        return self.search(self._rows[rows], among, first=first)


def few_neighbours(vectors: Array, k: int) -> Graph:
    """Return the k rows with the highest cosine to each row, without itself, like ``knn_graph``; ties by row.

    Args:
        vectors: shape (N, D), of any length; zero rows have no neighbours and are no neighbours of others.
        k: number of neighbours, at least 1; missing ones are -1.

    Raises:
        ValueError: if a row has NaN or infinity; names the row.
    """
    exact, squares = _exact(vectors)
    units = exact / np.sqrt(np.where(squares > 0, squares, 1))[:, None]
    cosine = (units @ units.T).astype(np.float32)
    np.fill_diagonal(cosine, -np.inf)
    cosine[squares == 0], cosine[:, squares == 0] = -np.inf, -np.inf
    least = -np.partition(-cosine, k - 1, axis=1)[:, k - 1] if k < len(cosine) else np.full(len(cosine), -np.inf)
    row, column = np.nonzero((cosine >= least[:, None]) & np.isfinite(cosine))
    value = cosine[row, column]
    order = np.lexsort((-value, row))  # ties remain in the order of columns
    rank = np.arange(len(order)) - np.searchsorted(row[order], row[order])
    order, rank = order[rank < k], rank[rank < k]
    index = np.full((len(vectors), k), -1, np.int32)
    best = np.full((len(vectors), k), -np.inf, np.float32)
    index[row[order], rank], best[row[order], rank] = column[order], value[order].clip(max=1)
    return Graph(index, best, Recall.of_everything())


def _exact(vectors: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rows in float64 and their squared norms."""
    exact = vectors.astype(np.float64)
    squares = np.einsum("nd,nd->n", exact, exact)
    if not np.isfinite(squares).all():
        row = int(np.flatnonzero(~np.isfinite(squares))[0])
        raise ValueError(f"vectors must be finite, got NaN or infinity in row {row}")
    return exact, squares
