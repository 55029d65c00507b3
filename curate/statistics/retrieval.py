"""Retrieval and clustering measures of labelled embeddings, as in deep metric learning, in blocks of rows."""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from scoring.arrays import Array

BLOCK = 2**24  # cosines at once, 64 MB
SLACK = 4  # additional candidates, for ties at the cut


def average_precision_at_r(embedding: Tensor, labels: Tensor) -> NDArray[np.float64]:
    """Return the average precision of each row over its R nearest other rows, R being the size of its class minus 1.

    (1/R) sum over k = 1..R of rel(k) P(k): rel(k) is 1 if the k-th row has the same label, and P(k) is the share of
    such rows among the first k. The mean is mAP@R. Ties go to the lower row, unless more than four are tied at the cut.

    Args:
        embedding: unit vectors, shape (N, D).
        labels: shape (N,), int64, >= 0.

    Returns:
        Shape (N,), in [0, 1]; NaN for the only row of a class.

    Source: Musgrave et al. 2020, arXiv:2003.08505, sec. 3.2.
    """
    n = len(labels)
    relevant = torch.bincount(labels)[labels] - 1 if n else labels  # (N,): R of each row
    parts = []
    for start in range(0, n, max(1, BLOCK // max(n, 1))):
        rows = torch.arange(start, min(n, start + max(1, BLOCK // n)))
        most = int(relevant[rows].max())
        similarity = embedding[rows] @ embedding.T  # (B, N)
        similarity[torch.arange(len(rows)), rows] = -torch.inf
        cosine, index = similarity.topk(min(most + SLACK, n), dim=1)
        index, by_row = index.sort(dim=1)
        order = cosine.gather(1, by_row).argsort(dim=1, descending=True, stable=True)[:, :most]
        hit = (labels[index.gather(1, order)] == labels[rows, None]).double()
        place = torch.arange(1, most + 1)
        counted = hit * (place <= relevant[rows, None])
        precision = hit.cumsum(1) / place
        parts.append((counted * precision).sum(1) / relevant[rows])  # 0 / 0 is NaN
    return torch.cat(parts).numpy() if parts else np.zeros(0)


def contingency(first: ArrayLike, second: ArrayLike) -> NDArray[np.int64]:
    """Return the number of rows in each pair of groups, shape (A, B), groups ascending.

    From integer groups of each row, shape (N,) each. Raises ValueError if shapes differ, or without rows.
    """
    a, b = np.asarray(first), np.asarray(second)
    if a.ndim != 1 or a.shape != b.shape or not len(a):
        raise ValueError(
            f"two groupings of the same rows, of shape (N,), N > 0, are needed, got {a.shape} and {b.shape}"
        )
    (rows, of_a), (columns, of_b) = (np.unique(groups, return_inverse=True) for groups in (a, b))
    cell = of_a.astype(np.int64) * len(columns) + of_b
    return np.bincount(cell, minlength=len(rows) * len(columns)).reshape(len(rows), len(columns))


def normalized_mutual_information(table: Array) -> float:
    """Return the normalised mutual information of two groupings, in [0, 1]; 1 if they agree.

    2 I(A; B) / (H(A) + H(B)) from a ``contingency`` table (A, B); 1 if both have a single group. It is above 0 for
    random groupings, and grows with the number of groups.

    Source: Manning, Raghavan & Schütze 2008, "Introduction to Information Retrieval", sec. 16.3.

    >>> normalized_mutual_information(contingency([0, 0, 1, 1], [5, 5, 2, 2]))
    1.0
    """
    total = _entropy(table.sum(0)) + _entropy(table.sum(1))
    return 1.0 if total == 0 else min(1.0, max(0.0, 2 * (total - _entropy(table.reshape(-1))) / total))


def adjusted_rand_index(table: Array) -> float:
    """Return the adjusted Rand index of a ``contingency`` table: 1 for equal groupings, 0 by chance, may be negative.

    Source: Hubert & Arabie 1985, "Comparing partitions", eq. 5.

    >>> adjusted_rand_index(contingency([0, 0, 1, 1], [0, 1, 0, 1]))
    -0.5
    """
    both, first, second, every = (_pairs(n) for n in (table, table.sum(1), table.sum(0), table.sum()))
    at_random, most = first * second, every * (first + second) / 2  # of pairs, times ``every``
    return 1.0 if most == at_random else (every * both - at_random) / (most - at_random)


def _pairs(counts: Array) -> float:
    n = np.asarray(counts, np.float64)
    return float((n * (n - 1)).sum() / 2)


def _entropy(counts: NDArray[np.int64]) -> float:
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())
