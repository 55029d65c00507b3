"""The probe for noisy labels: a linear discriminant fitted in one pass, robust to wrong labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array

BLOCK = 16_384  # rows at a time
SHRINK = (0.1, 0.5, 2.0)  # candidate shrinkages of the covariance towards its mean variance
ABSENT = -1e4  # logit of a class without a row
FEWEST = 1e-3  # smallest total weight


@dataclass(frozen=True)
class Moments:
    """Sums over weighted rows.

    Attributes:
        weight: total weight of each class, shape (C,).
        total: sum of the rows of each class, shape (C, D).
        square: sum of x x^T over all rows, shape (D, D).
    """

    weight: NDArray[np.float64]
    total: NDArray[np.float64]
    square: NDArray[np.float64]

    @classmethod
    def of(
        cls, units: Array, codes: NDArray[np.int64], weight: Array, rows: NDArray[np.int64], n_classes: int
    ) -> "Moments":
        """Return the moments of rows (M,) of unit vectors (N, D), computed in blocks.

        Rows with code -1 or weight 0 are ignored.
        """
        rows = rows[(codes[rows] >= 0) & (weight[rows] > 0)]
        rows = rows[np.argsort(codes[rows], kind="stable")]
        width = units.shape[1]
        total, square = np.zeros((n_classes, width)), np.zeros((width, width))
        for start in range(0, len(rows), BLOCK):
            at = rows[start : start + BLOCK]
            x = units[at].astype(np.float32, copy=False)
            weighted = x * weight[at, None].astype(np.float32)
            square += x.T @ weighted
            classes, first = np.unique(codes[at], return_index=True)
            total[classes] += np.add.reduceat(weighted, first, axis=0, dtype=np.float64)
        return cls(np.bincount(codes[rows], weight[rows], minlength=n_classes).astype(np.float64), total, square)

    @classmethod
    def together(cls, parts: Sequence["Moments"]) -> "Moments":
        """Return the moments of the rows of all parts."""
        return cls(*(np.sum([getattr(part, name) for part in parts], 0) for name in ("weight", "total", "square")))


@dataclass(frozen=True)
class Discriminant:
    """Logits x @ weight + bias of normal classes with a common covariance.

    Attributes:
        weight: shape (D, C) float32.
        bias: shape (C,) float32; very low for a class without a row.
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]

    def logits(self, rows: Array) -> NDArray[np.float32]:
        """Return logits, shape (B, C)."""
        return np.asarray(rows.astype(np.float32) @ self.weight + self.bias)


def discriminants(moments: Moments, shrink: tuple[float, ...] = SHRINK) -> list[Discriminant]:
    """Fit linear discriminants to the moments of rows, one per shrinkage.

    The within-class covariance gets ``shrink`` times its mean variance added to its diagonal. A wrong label only moves
    the mean of a class slightly; a discriminative model would fit it.

    Source: Fisher 1936; Friedman 1989, "Regularized Discriminant Analysis", eq. 18.
    """
    has_rows = moments.weight > 0
    n = max(float(moments.weight.sum()), FEWEST)
    means = moments.total / np.where(has_rows, moments.weight, 1)[:, None]
    means[~has_rows] = 0
    within = (moments.square - (means * moments.weight[:, None]).T @ means) / n
    variance = max(float(np.trace(within)) / len(within), 1e-12)
    prior = np.log(np.where(has_rows, moments.weight, 1) / n)
    fitted = []
    for amount in shrink:
        weight = np.linalg.solve(within + amount * variance * np.eye(len(within)), means.T)
        bias = np.where(has_rows, prior - (means.T * weight).sum(0) / 2, ABSENT)
        fitted.append(Discriminant(weight.astype(np.float32), bias.astype(np.float32)))
    return fitted
