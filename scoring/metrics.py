"""How good embeddings and certainties are: pure functions, ranks in float64, no N x N matrix."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 1024  # queries at a time


def nearest(queries: Tensor, references: Tensor, k: int, *, same: bool = False) -> tuple[Tensor, Tensor]:
    """Return the cosine and the index of the k references nearest to each query, the nearest first.

    Args:
        queries: unit vectors, shape (N, D).
        references: unit vectors, shape (M, D).
        k: neighbours, 1 <= k <= M, or M-1 with ``same``.
        same: queries are the references, and row i is no neighbour of itself; its exact duplicates are.

    Returns:
        Cosines and indices, each of shape (N, k).

    Raises:
        ValueError: if k is out of range.
    """
    most = len(references) - same
    if not 1 <= k <= most:
        raise ValueError(f"k must be between 1 and {most}, got {k}")
    cosines, indices = [], []
    for start in range(0, len(queries), BLOCK):
        similarity = queries[start : start + BLOCK] @ references.T  # (B, M)
        if same:
            rows = torch.arange(len(similarity))
            similarity[rows, start + rows] = -torch.inf
        top = similarity.topk(k, dim=1)
        cosines.append(top.values)
        indices.append(top.indices)
    return torch.cat(cosines), torch.cat(indices)


def knn_predict(
    queries: Tensor, references: Tensor, labels: Tensor, *, k: int = 20, temperature: float = 0.07, same: bool = False
) -> Tensor:
    """Return the class that the k nearest references vote for, each vote weighing exp(cosine / temperature).

    Args:
        queries: unit vectors, shape (N, D).
        references: unit vectors, shape (M, D).
        labels: of the references, shape (M,), int64, >= 0.
        k: voters.
        temperature: > 0; a smaller one listens more to the nearest.
        same: as in ``nearest``.

    Returns:
        Shape (N,), int64.

    Source: Wu et al. 2018, arXiv:1805.01978, sec. 3.4.
    """
    cosine, index = nearest(queries, references, k, same=same)
    votes = torch.zeros(len(queries), int(labels.max()) + 1, dtype=torch.float64)
    votes.scatter_add_(1, labels[index], ((cosine.double() - 1) / temperature).exp())
    return votes.argmax(1)


def ranks(values: NDArray) -> NDArray[np.float64]:
    """Return the rank of each value from 1, ties sharing their mean rank.

    >>> ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, inverse, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def auroc(score: NDArray, target: NDArray) -> float:
    """Return the chance that a true row scores higher than a false one, ties counting half; 0.5 is no better than luck.

    Args:
        score: shape (N,), finite.
        target: shape (N,), bool.

    Returns:
        In [0, 1]; NaN if all targets are alike.
    """
    target = np.asarray(target, bool)
    n_true, n_false = int(target.sum()), int((~target).sum())
    if not n_true or not n_false:
        return float("nan")
    return float((ranks(score)[target].sum() - n_true * (n_true + 1) / 2) / (n_true * n_false))


def spearman(x: NDArray, y: NDArray) -> float:
    """Return the rank correlation, in [-1, 1]; NaN if either is constant."""
    a, b = ranks(x), ranks(y)
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale > 0 else float("nan")


def recall_at_1(embedding: Tensor, labels: Tensor) -> NDArray[np.bool_]:
    """Return for each row whether its nearest other row has its label.

    Args:
        embedding: unit vectors, shape (N, D).
        labels: shape (N,).
    """
    _, index = nearest(embedding, embedding, 1, same=True)
    return (labels[index[:, 0]] == labels).numpy()


def r_auroc(certainty: NDArray, embedding: Tensor, labels: Tensor) -> float:
    """Return how well certainty tells rows whose nearest neighbour has their label from the others; higher is better.

    Source: Kirchhof et al. 2023, "URL: A representation learning benchmark", sec. 3.
    """
    return auroc(certainty, recall_at_1(embedding, labels))


def bootstrap(
    statistic: Callable[[NDArray[np.int64]], float], n: int, *, repeats: int = 1000, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Return the percentile interval of a statistic under resampling of rows.

    Args:
        statistic: rows (with repeats) -> value.
        n: rows.
        repeats: resamples.
        level: share of the resamples inside the interval.
        seed: of the resampling.
    """
    generator = np.random.default_rng(seed)
    values = [statistic(generator.integers(0, n, n)) for _ in range(repeats)]
    low, high = np.nanquantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
