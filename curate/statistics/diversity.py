"""Diversity of rows and coverage by others, from embeddings, without an N x N matrix."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from scoring.arrays import Array, Floats
from scoring.metrics.resampling import Interval
from scoring.relative.space import unit

BLOCK = 8192  # rows multiplied at a time
PARTS = 20  # number of jackknife groups


def vendi_score(rows: Array) -> float:
    """Return the effective number of different rows: 1 if all are equal, N if all are orthogonal.

    It is exp of the entropy of the eigenvalues of K / N, K the cosines of all pairs of rows (N >= 1, D), without zero
    rows. The D x D matrix of second moments has the same non-zero eigenvalues, and is decomposed if N > D.

    Source: Friedman and Dieng 2023, "The Vendi Score", arXiv:2210.02410, definition 3.1 and section 3.2.

    >>> round(vendi_score(np.eye(4)), 3), round(vendi_score(np.ones((4, 3))), 3)
    (4.0, 1.0)
    """
    if len(rows) <= rows.shape[1]:
        units = unit(rows)
        return _effective(units @ units.T / len(rows))
    return _effective(moments(rows) / len(rows))


def vendi_interval(rows: Array) -> Interval:
    """Return the Vendi score of a sample (N, D) in random order, and its 95 % jackknife interval over 20 parts.

    The bounds are NaN for fewer than 40 rows.

    Source: the delete-a-group jackknife, as in Shao and Tu 1995, "The Jackknife and Bootstrap", section 2.3.
    """
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    if len(rows) < 2 * PARTS:
        return Interval(vendi_score(rows), float("nan"), float("nan"))
    cuts = np.linspace(0, len(rows), PARTS + 1).astype(int)
    parts = [rows[start:stop] for start, stop in pairwise(cuts.tolist())]
    if len(rows) <= rows.shape[1]:
        value = vendi_score(rows)
        without = [vendi_score(np.concatenate([each for each in parts if each is not part])) for part in parts]
    else:
        sums = [moments(part) for part in parts]
        total = np.sum(sums, axis=0)
        value = _effective(total / len(rows))
        without = [
            _effective((total - sums_of_part) / (len(rows) - len(part)))
            for sums_of_part, part in zip(sums, parts, strict=True)
        ]
    error = float(np.sqrt((PARTS - 1) / PARTS * np.square(np.array(without) - np.mean(without)).sum()))
    half = float(stdtrit(PARTS - 1, 0.975)) * error
    return Interval(value, value - half, value + half)


def moments(rows: Array) -> Floats:
    """Return the sum of u u^T over normalised rows u, shape (D, D); float32 products, float64 sums."""
    total = np.zeros((rows.shape[1],) * 2)
    for start in range(0, len(rows), BLOCK):
        units = unit(rows[start : start + BLOCK])
        total += units.T @ units
    return total


def _effective(matrix: Array) -> float:
    """Return exp of the entropy of the eigenvalues of a symmetric matrix of trace 1."""
    values = np.linalg.eigvalsh(matrix.astype(np.float64))
    values = values[values > 1e-12]
    values = values / values.sum()
    return float(np.exp(-(values * np.log(values)).sum()))


def nearest_distances(rows: Array, references: Array, *, same: Sequence[int] | Array | None = None) -> Floats:
    """Return the Euclidean distance, in [0, 2], of each normalised row to the nearest normalised reference, shape (N,).

    Args:
        rows: shape (N, D).
        references: shape (M, D), M >= 1, or 2 with ``same``.
        same: index of each row among the references, which is excluded; -1 for none.

    Memory: 1024 x 8192 cosines at a time.
    """
    best = np.full(len(rows), -np.inf, np.float32)
    excluded = None if same is None else np.asarray(same, np.int64)
    queries = unit(rows)
    for first in range(0, len(references), BLOCK):
        part = unit(references[first : first + BLOCK])
        for start in range(0, len(queries), 1024):
            block = slice(start, start + 1024)
            cosine = queries[block] @ part.T
            if excluded is not None:
                inside = np.flatnonzero((excluded[block] >= first) & (excluded[block] < first + len(part)))
                cosine[inside, excluded[block][inside] - first] = -np.inf
            best[block] = np.maximum(best[block], cosine.max(1))
    return np.asarray(np.sqrt(np.maximum(2 - 2 * best.astype(np.float64), 0)))
