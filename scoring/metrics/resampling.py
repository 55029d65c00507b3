"""Percentile bootstraps over rows, alone or paired, and permutation tests."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array

Counts = NDArray[np.int64]


class Interval(NamedTuple):
    """A number and the bounds of 95 % (or another share) of its resamples."""

    value: float
    low: float
    high: float


def resamples(n: int, *, repeats: int, seed: int) -> Iterator[Counts]:
    """Yield the counts of each of n rows in a bootstrap sample, shape (N,) each, ``repeats`` times.

    The same seed gives the same resamples, so measures of several columns on the same rows are paired.
    """
    generator = np.random.default_rng(seed)
    kind = np.int32 if n < 2**31 else np.int64
    for _ in range(repeats):
        yield np.bincount(generator.integers(0, n, n, dtype=kind), minlength=n)


def resample(
    statistic: Callable[[Counts], Array], n: int, *, repeats: int = 1000, seed: int = 0
) -> NDArray[np.float64]:
    """Return a statistic, counts (N,) -> values (K,), of bootstrap samples of n rows, shape (repeats, K)."""
    return np.stack([np.asarray(statistic(counts), np.float64) for counts in resamples(n, repeats=repeats, seed=seed)])


def percentiles(samples: Array, level: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the bounds between which a share ``level`` of the resamples (R, K) lies, for each column, ignoring NaN.

    A resample of one class is NaN; a column of NaN alone gives NaN.
    """
    low, high = np.full(samples.shape[1], np.nan), np.full(samples.shape[1], np.nan)
    known = ~np.isnan(samples).all(0)
    if known.any():
        bounds = [(1 - level) / 2, (1 + level) / 2]
        low[known], high[known] = np.nanquantile(samples[:, known], bounds, axis=0)
    return low, high


def permutation_test(
    statistic: Callable[[Array], Array], y: Array, *, repeats: int = 1000, seed: int = 0
) -> NDArray[np.float64]:
    """Return one-sided p values: the probability that shuffled targets score at least as high as the real ones.

    The null hypothesis is that x and y are independent; a small p means a score above chance level.

    Args:
        statistic: permuted y -> scores, shape (K,); higher is a closer relation.
        y: targets, shape (N,).
        repeats: number M of shuffles.
        seed: of the shuffles.

    Returns:
        (1 + number of shuffles that score as high or higher) / (1 + M), shape (K,); never below 1 / (1 + M).

    Source: Nakamura et al. 2023, arXiv:2203.11437, appendix J; the real order counts as one of the shuffles.
    """
    generator = np.random.default_rng(seed)
    real = np.asarray(statistic(y), np.float64)
    slack = 1e-12 * np.maximum(1.0, np.abs(real))  # sums in another order differ in their last digits
    reached = np.ones(real.shape)
    for _ in range(repeats):
        reached += np.asarray(statistic(generator.permutation(y))) >= real - slack
    return np.where(np.isnan(real), np.nan, reached / (1 + repeats))


def permutation_test_linear(x: Array, y: Array, *, repeats: int = 1000, seed: int = 0) -> NDArray[np.float64]:
    """Return ``permutation_test`` for scores that are increasing in sum_i x_i y_i for fixed values of x and y.

    Such scores are AUROC (x the ranks of the score, y the target), both correlations (x and y ranks, or values) and the
    coefficient of a logistic regression of a binary y on x. A shuffle costs one product.

    Args:
        x: shape (K, N), or (N,) for one.
        y: shape (N,), bool or float.
        repeats: number of shuffles.
        seed: of the shuffles.

    Returns:
        One-sided p values, shape (K,).
    """
    x = np.atleast_2d(np.asarray(x, np.float64))
    scale = x.std(1, keepdims=True)
    x = np.divide(x - x.mean(1, keepdims=True), scale, out=np.zeros_like(x), where=scale > 0)
    y = np.asarray(y, np.float64) - np.mean(y)
    # not by ``@``: its threads take longer to start and to wait than such a product
    p = permutation_test(lambda each: np.einsum("kn,n->k", x, each) / len(y), y, repeats=repeats, seed=seed)
    return np.where(scale[:, 0] > 0, p, np.nan)
