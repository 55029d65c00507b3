"""Means over runs with their standard error over the runs and their bootstrap interval over images."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from curate.statistics.weighted import RankOrder, weighted_spearman
from scoring.metrics import resampling

RESAMPLES = 300


@dataclass(frozen=True)
class Replicate:
    """One seed's (or fold's) score and target on some of the images: what one rank correlation or AUROC is made of."""

    rows: np.ndarray
    score: np.ndarray
    target: np.ndarray


@dataclass(frozen=True)
class Number:
    """A mean over replicates, its standard error over them (NaN for one), and its bootstrap interval over images."""

    value: float
    error: float
    low: float
    high: float

    def __str__(self) -> str:
        error = "" if math.isnan(self.error) else f"±{self.error:.3f}"
        return f"{self.value:.3f}{error} [{self.low:.3f}, {self.high:.3f}]"


def spearman_number(replicates: list[Replicate], n: int) -> Number:
    """Return the mean rank correlation of score and target; all replicates see the same resamples of n images."""
    orders = [(replicate.rows, RankOrder(replicate.score), RankOrder(replicate.target)) for replicate in replicates]

    def values(counts: np.ndarray) -> np.ndarray:
        return np.array([weighted_spearman(x, y, counts[rows]) for rows, x, y in orders])

    return _number(values, n)


def retrieval_numbers(replicates: list[Replicate], n: int) -> tuple[Number, Number, Number]:
    """Return Recall@1, also of the more certain half, and R-AUROC; right: the nearest is of the same class."""
    orders = [
        (replicate.rows, order := RankOrder(replicate.score), order.sort(replicate.target[:, None]))
        for replicate in replicates
    ]

    def mean(counts: np.ndarray) -> np.ndarray:
        return np.array(
            [order.accuracy_at(counts[rows], right, np.array([1.0]))[0, 0] for rows, order, right in orders]
        )

    def half(counts: np.ndarray) -> np.ndarray:
        return np.array(
            [order.accuracy_at(counts[rows], right, np.array([0.5]))[0, 0] for rows, order, right in orders]
        )

    def area(counts: np.ndarray) -> np.ndarray:
        return np.array([order.auroc(counts[rows], right)[0] for rows, order, right in orders])

    return _number(mean, n), _number(half, n), _number(area, n)


def _number(values: Callable[[np.ndarray], np.ndarray], n: int) -> Number:
    single = values(np.ones(n, np.int64))
    error = float(single.std(ddof=1) / math.sqrt(len(single))) if len(single) > 1 else math.nan
    samples = resampling.resample(lambda counts: values(counts).mean(keepdims=True), n, repeats=RESAMPLES)
    low, high = resampling.percentiles(samples)
    return Number(float(single.mean()), error, float(low[0]), float(high[0]))
