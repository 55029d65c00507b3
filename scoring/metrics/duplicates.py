"""Rows that are bit-identical, found by a hash and then compared."""

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 8192  # rows hashed at a time


@dataclass(frozen=True)
class EqualRows:
    """N rows as P groups of equal ones.

    Attributes:
        of_row: the group of each row, shape (N,).
        first: the lowest row of each group, shape (P,), ascending.
        size: rows of each group, shape (P,).
        start: index of the group's first row in ``members``, shape (P,).
        members: the rows, group by group, ascending in each, shape (N,).
        rank: number of earlier rows in the same group, shape (N,).
    """

    of_row: Tensor
    first: Tensor
    size: Tensor
    start: Tensor
    members: Tensor
    rank: Tensor


def group_duplicates(rows: Tensor) -> EqualRows | None:
    """Return the groups of equal rows of (N, D), float, without NaN; None if all differ; 0 and -0 are equal."""
    hashes, order = torch.sort(_hashes(rows), stable=True)
    suspect = torch.nonzero(hashes[1:] == hashes[:-1]).flatten()
    if not len(suspect):
        return None
    lead = torch.arange(len(rows))  # the lowest row that is equal to this one
    suspects = torch.unique(torch.cat([order[suspect], order[suspect + 1]]))
    _, group = torch.unique(rows[suspects] + 0.0, dim=0, return_inverse=True)
    lowest = torch.full((int(group.max()) + 1,), len(rows)).scatter_reduce_(0, group, suspects, "amin")
    lead[suspects] = lowest[group]
    first, of_row = torch.unique(lead, return_inverse=True)
    if len(first) == len(rows):
        return None
    size = torch.bincount(of_row, minlength=len(first))
    start = size.cumsum(0) - size
    members = torch.argsort(of_row, stable=True)
    rank = torch.empty(len(rows), dtype=torch.long)
    rank[members] = torch.arange(len(rows)) - start[of_row[members]]
    return EqualRows(of_row, first, size, start, members, rank)


def _hashes(rows: Tensor) -> Tensor:
    """Return a 64-bit hash of the bits of each row: a sum of products with odd numbers, modulo 2^64."""
    words = rows.contiguous()
    n_words = words.shape[1] * words.element_size() // 4
    factors = torch.randint(-(2**62), 2**62, (n_words,), generator=torch.Generator().manual_seed(0)) * 2 + 1
    parts = [
        ((words[at : at + BLOCK] + 0.0).view(torch.int32).long() * factors).sum(1) for at in range(0, len(rows), BLOCK)
    ]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.long)
