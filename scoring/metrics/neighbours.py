"""Nearest neighbours of hundreds of thousands of rows, in blocks, and kNN classification."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.metrics.duplicates import EqualRows, group_duplicates
from scoring.metrics.nearest_so_far import NearestSoFar

QUERIES = 2048  # rows at a time: the largest array is QUERIES x REFERENCES floats, 64 MB
REFERENCES = 8_192
FIRST = 1_024  # references in the first block; further blocks at most double the number
SLACK = 4  # candidates beyond k, for cosines that are too close to call
CLOSE = 2e-6  # cosines nearer than this may be in the wrong order after a float32 product
EXACT = 128  # rows at a time whose candidates are measured again


def nearest(queries: Tensor, references: Tensor, k: int, *, same: bool = False) -> tuple[Tensor, Tensor]:
    """Return the cosine and index of the k references nearest to each query, nearest first.

    Bit-identical rows are searched as one point; ties go to the lower index. Cosines are computed in the dtype of the
    input; those within 2e-6 of each other are computed again in float64. Memory is bounded by blocks, independent of N
    and M.

    Args:
        queries: unit vectors, shape (N, D).
        references: unit vectors, shape (M, D).
        k: neighbours, 1 <= k <= M, or M-1 with ``same``.
        same: queries are the references, and row i is excluded from its own neighbours, but its exact duplicates are
            not.

    Returns:
        Cosines, of the type of the queries, and indices, int64, each of shape (N, k).

    Raises:
        ValueError: if k is out of range.
    """
    most = len(references) - same
    if not 1 <= k <= most:
        raise ValueError(f"k must be between 1 and {most}, got {k}")
    groups = group_duplicates(references)
    if groups is None:
        return _k_nearest(queries, references, k, same=same)
    points = references[groups.first]
    width = min(k, len(points) - same)
    cosine, point = _k_nearest(points if same else queries, points, width, same=same)
    if same:  # the row's point comes first; its other rows are duplicates
        cosine, point = (
            torch.cat([torch.ones(len(points), 1).to(cosine), cosine], 1)[groups.of_row],
            torch.cat([torch.arange(len(points)).view(-1, 1), point], 1)[groups.of_row],
        )
    parts = [
        _expand(groups, cosine[start : start + QUERIES], point[start : start + QUERIES], k, start, same=same)
        for start in range(0, len(point), QUERIES)
    ]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def _expand(
    groups: EqualRows, cosine: Tensor, point: Tensor, k: int, start: int, *, same: bool
) -> tuple[Tensor, Tensor]:
    """Expand the nearest points of B rows, starting with row ``start``, into their k nearest rows."""
    size = groups.size[point]  # (B, P)
    if same:
        size[:, 0] -= 1  # the row itself
    until = size.cumsum(1)
    slot = torch.arange(k)
    which = torch.searchsorted(until, slot.expand(len(point), k).contiguous(), right=True)  # (B, k) -> column of point
    within = slot - (until - size).gather(1, which)
    chosen = point.gather(1, which)
    if same:
        itself = groups.rank[start : start + len(point)].view(-1, 1)
        within = within + ((which == 0) & (within >= itself)).long()
    return cosine.gather(1, which), groups.members[groups.start[chosen] + within]


def _k_nearest(queries: Tensor, references: Tensor, k: int, *, same: bool) -> tuple[Tensor, Tensor]:
    """Return the k nearest of distinct references; k may be 0."""
    if not k:
        return queries.new_zeros(len(queries), 0), torch.zeros(len(queries), 0, dtype=torch.long)
    cosines, indices = [], []
    room = queries.new_empty(min(QUERIES, len(queries)) * min(REFERENCES, len(references)))
    for start in range(0, len(queries), QUERIES):
        block = queries[start : start + QUERIES]
        width = min(k + SLACK, len(references) - same)
        cosine, index = candidates(block, references, width, start if same else None, room)
        close = ((cosine[:, :-1] - cosine[:, 1:]) < CLOSE).any(1).nonzero().flatten()
        for rows in close.split(EXACT):
            cosine[rows], index[rows] = _exact_cosines(block[rows], references, index[rows])
            order = cosine[rows].argsort(dim=1, descending=True, stable=True)
            cosine[rows], index[rows] = cosine[rows].gather(1, order), index[rows].gather(1, order)
        cosines.append(cosine[:, :k])
        indices.append(index[:, :k])
    return torch.cat(cosines), torch.cat(indices)


def candidates(block: Tensor, references: Tensor, k: int, first_row: int | None, room: Tensor) -> tuple[Tensor, Tensor]:
    """Return the k most similar references of a block of rows, most similar first: cosines and indices, (B, k) each.

    Args:
        block: unit vectors, shape (B, D).
        references: unit vectors of the same type, shape (M, D).
        k: 1 <= k <= M, or M-1 with ``first_row``.
        first_row: index of the block's first row among the references, to exclude each row itself; None if the block is
            not part of them.
        room: buffer of B x R numbers, R = 8,192, allocated once: new pages double the time.
    """
    rows = np.full(len(block), -1) if first_row is None else np.arange(first_row, first_row + len(block))
    so_far = NearestSoFar(rows, k, torch.float64 if block.dtype == torch.float64 else torch.float32)
    start = 0
    while start < len(references):
        part = references[start : start + min(max(start, FIRST), REFERENCES)]
        similarity = torch.mm(block, part.T, out=room[: len(block) * len(part)].view(len(block), len(part)))  # (B, R)
        so_far.update(np.arange(len(block)), np.arange(start, start + len(part)), similarity)
        start += len(part)
    return so_far.result()


def _exact_cosines(block: Tensor, references: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosines of candidates (B, K), sorted by index, computed in float64."""
    index = candidates.sort(dim=1).values
    vectors = references.index_select(0, index.flatten()).view(*index.shape, references.shape[1]).double()  # (B, K, D)
    return torch.einsum("bkd,bd->bk", vectors, block.double()).to(block.dtype), index


def knn_predict(
    queries: Tensor, references: Tensor, labels: Tensor, *, k: int = 20, temperature: float = 0.07, same: bool = False
) -> Tensor:
    """Return the class voted by the k nearest references, with votes weighted exp(cosine / temperature).

    Args:
        queries: unit vectors, shape (N, D).
        references: unit vectors, shape (M, D).
        labels: of the references, shape (M,), int64, >= 0.
        k: number of neighbours.
        temperature: > 0; smaller values give the nearest more weight.
        same: as in ``nearest``.

    Returns:
        Shape (N,), int64; ties go to the lower class.

    Source: Wu et al. 2018, arXiv:1805.01978, sec. 3.4.
    """
    cosine, index = nearest(queries, references, k, same=same)
    return knn_vote(cosine, labels[index], temperature=temperature)


def knn_vote(cosine: Tensor, classes: Tensor, *, temperature: float = 0.07) -> Tensor:
    """Return the class with the largest vote of known neighbours, shape (N,), int64; ties go to the lower class.

    Args:
        cosine: to each neighbour, shape (N, k).
        classes: of each neighbour, shape (N, k), int64, >= 0.
        temperature: > 0; votes are weighted exp(cosine / temperature).
    """
    weight = ((cosine.double() - cosine.double().amax(1, keepdim=True)) / temperature).exp()  # the nearest weighs 1
    winners = []
    for start in range(0, len(classes), EXACT):
        rows, columns = classes[start : start + EXACT].unsqueeze(2), classes[start : start + EXACT].unsqueeze(1)
        votes = ((rows == columns) * weight[start : start + EXACT].unsqueeze(1)).sum(2)  # (B, k): for each one's class
        most = votes >= votes.amax(1, keepdim=True) * (1 - 1e-12)  # tolerance for the order of summation
        winners.append(torch.where(most, rows.squeeze(2), torch.iinfo(torch.long).max).amin(1))
    return torch.cat(winners) if winners else torch.zeros(0, dtype=torch.long)


def recall_at_1(embedding: Tensor, labels: Tensor) -> NDArray[np.bool_]:
    """Return whether the nearest other row has the same label, for embeddings of unit length (N, D) and labels (N,).

    Of exact duplicates, the row with the lowest index is the nearest.
    """
    _, index = nearest(embedding, embedding, 1, same=True)
    return (labels[index[:, 0]] == labels).numpy()
