"""Ranks, AUROC and rank correlation, in float64 for any score type."""

from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array
from scoring.metrics.resampling import Interval

if TYPE_CHECKING:
    from torch import Tensor


def ranks(values: Array) -> NDArray[np.float64]:
    """Return the rank of each value, from 1; ties get their mean rank.

    >>> ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, inverse, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def auroc(score: Array, target: Array) -> float:
    """Return the AUROC: the probability that a true row scores higher than a false one, ties counting half.

    Args:
        score: shape (N,), without NaN.
        target: shape (N,), bool.

    Returns:
        In [0, 1]; NaN if all targets are alike.
    """
    target = np.asarray(target, bool)
    n_true, n_false = int(target.sum()), int((~target).sum())
    if not n_true or not n_false:
        return float("nan")
    return float((ranks(score)[target].sum() - n_true * (n_true + 1) / 2) / (n_true * n_false))


def auroc_interval(area: float, n_true: int, n_false: int, level: float = 0.95) -> Interval:
    """Return an AUROC and its interval from the numbers of rows alone; the interval has a width at AUROC 1, too.

    Approximate: too wide if the scores of the rarer class vary less than the others', too narrow if they vary more.

    Args:
        area: AUROC, in [0, 1].
        n_true: true rows, >= 1.
        n_false: false rows, >= 1.
        level: in (0, 1).

    Source: Newcombe 2006, "Confidence intervals for an effect size measure based on the Mann-Whitney statistic,
    part 2", method 5, after the variance of Hanley and McNeil 1982.
    """
    from scipy.optimize import brentq  # type: ignore[import-untyped]

    z2, pairs = NormalDist().inv_cdf((1 + level) / 2) ** 2, n_true * n_false

    def excess(true: float) -> float:
        """Return the squared distance of the AUROC from a true one, minus the squared half-width of its interval."""
        spread = 1 + ((n_true + n_false) / 2 - 1) * ((1 - true) / (2 - true) + true / (1 + true))
        return (area - true) ** 2 - z2 * true * (1 - true) * spread / pairs

    inside = min(max(area, 1e-9), 1 - 1e-9)  # at 0 and 1 the AUROC itself is a second root
    low = float(brentq(excess, 0, inside)) if area > 0 else 0.0
    return Interval(area, low, float(brentq(excess, inside, 1)) if area < 1 else 1.0)


def spearman(x: Array, y: Array) -> float:
    """Return the rank correlation, in [-1, 1]; NaN if either is constant."""
    a, b = ranks(x), ranks(y)
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale > 0 else float("nan")


def r_auroc(certainty: Array, embedding: "Tensor", labels: "Tensor") -> float:
    """Return the R-AUROC: how well certainty predicts whether a row's nearest neighbour has the same label.

    Args:
        certainty: higher is more certain, shape (N,).
        embedding: unit vectors, shape (N, D).
        labels: shape (N,).

    Source: Kirchhof et al. 2023, "URL: A representation learning benchmark", sec. 3.
    """
    from scoring.metrics.neighbours import recall_at_1

    return auroc(certainty, recall_at_1(embedding, labels))


def rank_average(certainties: Array) -> NDArray[np.float64]:
    """Return the mean rank of each row over several certainties (C, N), scaled to (0, 1]; higher is more certain.

    >>> rank_average(np.array([[1.0, 2.0], [5.0, 9.0]])).tolist()
    [0.5, 1.0]
    """
    return np.mean([ranks(column) for column in certainties], axis=0) / np.shape(certainties)[1]


def entropy(weights: Array) -> NDArray[np.float64]:
    """Return the entropy of each row's distribution, shape (N,), in nats; higher is less agreement.

    Args:
        weights: votes or probabilities, shape (N, C), >= 0; a row of zeros gives NaN.

    >>> entropy(np.array([[5, 0], [1, 1]])).round(4).tolist()
    [0.0, 0.6931]
    """
    weights = np.asarray(weights, np.float64)
    total = weights.sum(1, keepdims=True)
    share = np.divide(weights, total, out=np.full_like(weights, np.nan), where=total > 0)
    log = np.log(share, out=np.zeros_like(share), where=~(share <= 0))
    # rounded, so that the same votes for other classes tie, whatever order they were summed in; 0.0 and not -0.0
    return 0.0 - (share * log).sum(1).round(12)
