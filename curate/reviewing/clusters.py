"""Clustering of similar images, so that one decision covers one kind of image."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from curate.columns import EMBEDDING
from curate.tables.table import Table
from curate.tables.vectors import Embeddings
from scoring.relative.space import unit

ALIKE = 0.6  # norm of the mean of unit vectors from which a group is homogeneous
FEWEST = 6  # minimal size of a group to divide
APART = 0.2  # minimal difference of mean weights between two halves
MOST, ROUNDS = 2_000, 10  # approximate sample size and iterations of 2-means
Vectors = NDArray[np.float32]


def unit_vectors(table: Table, rows: Sequence[int] | NDArray[np.int64], about: NDArray[np.int64]) -> Vectors | None:
    """Return the embeddings of M rows, normalised after subtracting the mean of other rows, (M, D); None without any.

    Rows without an embedding get zeros.

    Args:
        table: with or without a column ``embedding``.
        rows: indices of the M rows.
        about: rows of the whole dataset, for the mean.
    """
    if EMBEDDING not in table.schema.names or not len(rows):
        return None
    needed = np.unique(np.concatenate([np.asarray(rows, np.int64), about]))
    read = Embeddings(len(needed), table.path)
    for start, batch in table.numbered([EMBEDDING]):
        first, last = np.searchsorted(needed, [start, start + batch.num_rows]).tolist()
        if last > first:
            read.add(batch.column(0).take(needed[first:last] - start), slice(first, last))
    matrix, problem = read.done()
    mean = matrix[np.searchsorted(needed, about)].astype(np.float32).mean(0)
    at = np.searchsorted(needed, rows)
    vectors = unit(np.asarray(matrix[at], np.float32) - mean)
    vectors[problem[at] != 0] = 0
    return vectors


def cohesion(vectors: Vectors) -> float:
    """Return the similarity of unit vectors, shape (M, D): the length of their mean, 1 if all are equal."""
    return float(np.linalg.norm(vectors.mean(0)))


def divided(vectors: Vectors, fewest: int = FEWEST) -> list[NDArray[np.int64]]:
    """Return the indices of groups of similar images, largest first, by halving dissimilar groups.

    Args:
        vectors: unit vectors, shape (M, D).
        fewest: minimal size of a group to be divided.
    """
    groups, waiting = [], [np.arange(len(vectors))]
    while waiting:
        some = waiting.pop()
        if len(some) < fewest or cohesion(vectors[some]) >= ALIKE:
            groups.append(some)
        else:
            parts = halves(vectors[some])
            if len(parts) > 1:
                waiting += [some[part] for part in parts]
            else:
                groups.append(some)
    return sorted(groups, key=lambda group: (-len(group), group[0]))


def halves(vectors: Vectors) -> list[NDArray[np.int64]]:
    """Return the indices of two groups of unit vectors (M, D) by 2-means; a single group if all are equal."""
    some = vectors[:: max(1, len(vectors) // MOST)]
    first = some[(some @ some.mean(0)).argmin()]
    centroids = np.stack([first, some[(some @ first).argmin()]])
    before = None
    for _ in range(ROUNDS):
        side = (some @ centroids.T).argmax(1)
        if np.array_equal(side, before) or len(np.unique(side)) < 2:  # type: ignore[arg-type]
            break
        centroids = np.stack([_unit(some[side == number].mean(0)) for number in (0, 1)])
        before = side
    side = (vectors @ centroids.T).argmax(1)
    parts = [np.flatnonzero(side == number) for number in (0, 1)]
    return [part for part in parts if len(part)]


def likely_and_not(weights: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    """Return the indices of likely wrong images, and of the others; a single list of all if they hardly differ.

    ``weights``, shape (M,), are probabilities of being wrong.
    """
    middle, before = (weights.min() + weights.max()) / 2, np.inf
    while middle != before:
        is_likely = weights >= middle
        if is_likely.all() or weights[is_likely].mean() - weights[~is_likely].mean() < APART:
            return [np.arange(len(weights))]
        before, middle = middle, (weights[is_likely].mean() + weights[~is_likely].mean()) / 2
    return [np.flatnonzero(is_likely), np.flatnonzero(~is_likely)]


def _unit(vector: Vectors) -> Vectors:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


def in_view(vectors: Vectors | None, n: int, most: int) -> tuple[list[int], int]:
    """Return the indices of a sample of a group, and how many of them are typical; the others are outlying.

    Args:
        vectors: of the group, worst first, shape (n, D), or None.
        n: number of rows of the group.
        most: maximal size of the sample.

    Returns:
        All indices if there are at most ``most``, else one half nearest to the mean (typical) and one half farthest
        from it; and the number of typical ones.
    """
    if vectors is None:
        return list(range(min(n, most))), min(n, most)
    nearness = vectors @ vectors.mean(0)
    order = np.argsort(-nearness, kind="stable")
    typical = order[: (most + 1) // 2] if n > most else order
    edge = order[::-1][: most // 2] if n > most else order[:0]
    return [*typical.tolist(), *edge.tolist()], len(typical)
