"""Pairs of rows that reach a cosine: a bfloat16 scan without misses, then an exact check in float64.

Why the scan misses none: let x and y be unit rows, and x' = x + e, y' = y + f their bfloat16 roundings. Then

    x'y' - xy = x f + e y + e f,   so by Cauchy and Schwarz   |x'y' - xy| <= |f| + |e| + |e| |f|.

The residuals |e| and |f| are measured, row by row, when the rows are rounded. (They cannot exceed 2^-8: bfloat16 keeps
8 significant bits, so each value moves by at most 2^-8 of itself.) The product of two bfloat16 numbers is exact in
float32; D of them summed in float32, in whatever order, are wrong by at most D 2^-24 / (1 - D 2^-24) of the sum of
their magnitudes, which is at most |x'| |y'| <= (1 + |e|)(1 + |f|). Both errors together are ``margin``. The sum is
returned rounded to bfloat16. Rounding is monotone: a sum of at least c is, rounded, at least c rounded. So every pair
with cosine >= t is among those whose product is at least (t - margin) rounded to bfloat16.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.search.links import TIE
from scoring.search.rows import Vectors, padded, rows_at

DENSE = 16  # compute all pairs exactly if at least one in 16 is a candidate
AT_ONCE = 2048  # candidate pairs per block: 16 MB per side for width 1,024
MOST_AT_ONCE = 4_194_304  # cosines per block if all pairs are computed: 32 MB

Pairs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]  # query, row, cosine


@dataclass(frozen=True)
class ScanBlock:
    """B rows of a table, as stored and as scanned.

    Attributes:
        vectors: the table, shape (N, D).
        squares: squared norms of its rows, shape (N,), float64, above zero for each of the B rows.
        numbers: indices in the table, shape (B,), int64.
        units: normalised rows, shape (B, D), bfloat16.
    """

    vectors: Vectors
    squares: NDArray[np.float64]
    numbers: NDArray[np.int64]
    units: Tensor

    def exact(self, local: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return rows as stored, in float64."""
        return np.asarray(self.vectors[self.numbers[local]]).astype(np.float64)

    def take(self, local: NDArray[np.int64]) -> "ScanBlock":
        """Return a subset of the rows."""
        return ScanBlock(self.vectors, self.squares, self.numbers[local], rows_at(self.units, local))


def margin(residual: float, other: float, width: int) -> float:
    """Return the maximal difference between a product of bfloat16 rows and the cosine; see the module.

    From the largest residual on either side, and the width D <= 2^20.
    """
    rounding = residual + other + residual * other
    return rounding + (width + 2) * 2.0**-23 * (1 + residual) * (1 + other)


def lowest_product(threshold: float, allowed: float, device: torch.device) -> float:
    """Return the lowest product to check, so that rounding misses no pair above the threshold."""
    bound = threshold - TIE - allowed
    return bound if device.type == "cuda" else float(torch.tensor(bound).to(torch.bfloat16))


def close_pairs(queries: ScanBlock, rows: ScanBlock, threshold: float, lowest: float, *, first: bool = False) -> Pairs:
    """Return the pairs whose cosine in float64 is at least the threshold.

    Args:
        queries: shape (A, D).
        rows: shape (B, D).
        threshold: minimal cosine.
        lowest: minimal product for the exact check.
        first: return only each row's pair with its first query.

    Returns:
        Index of the query, index of the row, cosine; in no particular order.
    """
    query, row = _candidates(queries.units, rows.units, lowest)
    if not first:
        cosine = _cosines(queries, rows, query, row)
        close = cosine >= threshold - TIE
        return query[close], row[close], cosine[close]
    return _first_pairs(queries, rows, query, row, threshold)


def _candidates(queries: Tensor, rows: Tensor, lowest: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of products of at least ``lowest``, by query and then by row."""
    if queries.device.type == "cuda":  # return float32 sums, without reduced-precision accumulation
        at = (torch.mm(queries, rows.T, out_dtype=torch.float32) >= lowest).nonzero().cpu().numpy()
        return at[:, 0], at[:, 1]
    product = (padded(queries) @ padded(rows).T)[: len(queries), : len(rows)]  # (A, B), bfloat16
    if lowest > 0:  # positive bfloat16 compare like their bits as int16, and negative ones are smaller
        bits = int(torch.tensor(lowest).to(torch.bfloat16).view(torch.int16))
        flat = np.flatnonzero(product.view(torch.int16).numpy() >= bits)
    else:
        flat = np.flatnonzero((product >= lowest).numpy())
    return np.divmod(flat, len(rows))


def _first_pairs(
    queries: ScanBlock, rows: ScanBlock, query: NDArray[np.int64], row: NDArray[np.int64], threshold: float
) -> Pairs:
    """Return each row's pair with its first query, checking one pair per row, then two, then four..."""
    order = np.argsort(row, kind="stable")  # a row's queries keep their order
    query, row = query[order], row[order]
    count = np.bincount(row, minlength=len(rows.numbers))
    turn = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)  # (P,): which pair of its row it is
    parts: list[Pairs] = []
    step, limit = 1, 1
    while len(row):
        now = turn < limit
        cosine = _cosines(queries, rows, query[now], row[now])
        close = cosine >= threshold - TIE
        hit, at = np.unique(row[now][close], return_index=True)
        parts.append((query[now][close][at], hit, cosine[close][at]))
        done = np.zeros(len(rows.numbers), bool)
        done[hit] = True
        rest = ~now & ~done[row]
        query, row, turn = query[rest], row[rest], turn[rest]
        step *= 2
        limit += step
    if not parts:
        return query, row, np.zeros(0)
    return (
        np.concatenate([f[0] for f in parts]),
        np.concatenate([f[1] for f in parts]),
        np.concatenate([f[2] for f in parts]),
    )


def _cosines(
    queries: ScanBlock, rows: ScanBlock, query: NDArray[np.int64], row: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the cosines of pairs, in float64 from the stored values, shape (P,), at most 1."""
    dots = np.empty(len(query))
    used, of_query = _compact(query, len(queries.numbers))
    against, of_row = _compact(row, len(rows.numbers))
    size = len(used) * len(against)
    if len(query) > AT_ONCE and size <= min(MOST_AT_ONCE, DENSE * len(query)):
        dots = (queries.exact(used) @ rows.exact(against).T)[of_query, of_row]
    else:
        for start in range(0, len(query), AT_ONCE):
            span = slice(start, start + AT_ONCE)
            dots[span] = np.einsum("ij,ij->i", queries.exact(query[span]), rows.exact(row[span]))
    lengths = np.sqrt(queries.squares[queries.numbers[query]] * rows.squares[rows.numbers[row]])
    return np.minimum(dots / lengths, 1.0)


def _compact(place: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct positions, ascending, and the index of each entry among them."""
    occurs = np.zeros(size, bool)
    occurs[place] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[place]
