"""The nearest other rows in a large dataset: candidates in bfloat16, then exact cosines."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.metrics.neighbours import CLOSE, QUERIES, REFERENCES, candidates
from scoring.search.links import Recall

CANDIDATES = 32  # additional candidates for exact cosines: bfloat16 has an error of about 0.003
MEASURED = 256  # rows per block of exact cosines
SAMPLE = 256  # sampled rows for measuring the recall


def screened_nearest(units: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32], Recall]:
    """Return the k nearest other rows of each row, nearest first, their cosines, and the recall.

    All pairs are compared in bfloat16, several times faster than float32 if the processor supports it; the best k + 32
    are computed again in float32. Memory: 2 N D bytes in addition to the rows and the result.

    Args:
        units: rows of length 1, shape (N, D).
        k: number of neighbours, 1 <= k < N.

    Returns:
        Indices, shape (N, k), int64; cosines, shape (N, k), float32; measured share of the true neighbours.
    """
    points = torch.from_numpy(units)
    coarse = points.to(torch.bfloat16)
    index = np.empty((len(units), k), np.int64)
    cosine = np.empty((len(units), k), np.float32)
    room = torch.empty(QUERIES * REFERENCES, dtype=torch.bfloat16)
    for start in range(0, len(units), QUERIES):
        stop = min(start + QUERIES, len(units))
        width = min(k + CANDIDATES, len(units) - 1)
        at, near = _k_best(points, start, candidates(coarse[start:stop], coarse, width, start, room)[1], k)
        index[start:stop], cosine[start:stop] = at.numpy(), near.numpy()
    return index, cosine, _recall(points, cosine)


def _k_best(points: Tensor, start: int, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best of the candidates (B, W) of the rows from ``start`` on, by cosines in float32."""
    index, cosine = [], []
    for at in range(0, len(rows), MEASURED):
        some = rows[at : at + MEASURED].sort(dim=1).values  # ties go to the lower row
        queries = points[start + at : start + at + len(some)]
        vectors = points.index_select(0, some.flatten()).view(*some.shape, points.shape[1])  # faster than indexing
        near = torch.bmm(vectors, queries.unsqueeze(2)).squeeze(2)
        near, order = near.sort(dim=1, descending=True, stable=True)
        index.append(some.gather(1, order[:, :k]))
        cosine.append(near[:, :k])
    return torch.cat(index), torch.cat(cosine)


def _recall(points: Tensor, cosine: NDArray[np.float32]) -> Recall:
    """Return the share of true neighbours found for some rows, by exact cosines: equally near rows count as found."""
    rows = np.sort(np.random.default_rng([0, 3]).permutation(len(points))[:SAMPLE])
    product = points[rows] @ points.T
    product[torch.arange(len(rows)), torch.from_numpy(rows)] = -torch.inf
    last = product.topk(cosine.shape[1], dim=1).values[:, -1:].numpy()
    return Recall.of_sample((cosine[rows] >= last - CLOSE).sum(1), np.full(len(rows), cosine.shape[1]))
