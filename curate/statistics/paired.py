"""Exact intervals of the difference of two paired accuracies, error levels of repeated looks, and the fewest rows."""

from bisect import bisect_left
from functools import lru_cache
from math import ceil, floor, log, sqrt

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Floats
from scoring.metrics.proportions import clopper_pearson
from scoring.metrics.resampling import Interval

_NUISANCE = 0.02  # share of the error for the interval of p + q
_RATES = 17  # rates of differing that are tried
_STEPS = 16  # halvings of the interval that holds an end
_SLACK = 1e-9  # tolerance of rounding
_BEYOND = 6  # number of differences beyond a bound that must be rejected too


@lru_cache(maxsize=1 << 14)
def paired_interval(better: int, worse: int, n: int, level: float = 0.95) -> Interval:
    """Return the difference of two accuracies on the same rows, and its exact interval.

    Rows are independent; on each, only the first model is right with probability p, only the second with probability q.
    A difference m is rejected if results at least as far from m are improbable for all p + q. The distance is the score
    statistic

        (better - worse - n m) / sqrt(n (2 q + m (1 - m))),    q the most likely if m were true,

    and its p value is the maximal trinomial probability over a confidence interval of p + q, whose error, a fiftieth of
    the total, is added.

    Args:
        better: rows on which only the first model is right, in [0, n - worse].
        worse: rows on which only the second is right.
        n: number of rows; 0 gives (NaN, -1, 1).
        level: in (0, 1); half of the error is on each side.

    Returns:
        p - q and its ends, in [-1, 1].

    Raises:
        ValueError: if counts are negative or come to more than ``n``, or ``level`` is not in (0, 1).

    Source: Berger and Boos 1994, "P values maximized over a confidence set for the nuisance parameter"; for pairs
        Berger and Sidik 2003, "Exact unconditional tests for a 2 x 2 matched-pairs design"; the statistic: see
        ``score``. The maximum is over a grid of 17 rates.

    >>> [round(x, 3) for x in paired_interval(30, 10, 500)]
    [0.04, 0.016, 0.067]
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}")
    if min(better, worse) < 0 or better + worse > n:
        raise ValueError(f"expected counts of at most {n} rows, got {better} and {worse}")
    if n == 0:
        return Interval(float("nan"), -1.0, 1.0)
    error = (1 - level) / 2
    low, high = _lower(better, worse, n, error), -_lower(worse, better, n, error)
    return Interval((better - worse) / n, low, high)


def _lower(better: int, worse: int, n: int, error: float) -> float:
    """Return the one-sided lower bound of p - q: the smallest difference that the test does not reject."""
    from scipy.special import betaincinv  # type: ignore[import-untyped]

    net, differ, spent = better - worse, better + worse, _NUISANCE * error / 2
    least = float(betaincinv(differ, n - differ + 1, spent)) if differ else 0.0  # of p + q, as is the next
    most = float(betaincinv(differ + 1, n - differ, 1 - spent)) if differ < n else 1.0

    def refused(difference: float) -> bool:
        distance = float(score(np.array([better]), np.array([worse]), n, difference)[0])
        rates = np.linspace(max(least, abs(difference)), most, _RATES)
        return bool(tail(distance, n, difference, rates).max() <= error * (1 - _NUISANCE))

    good = net / n
    bad = max(-most, good - 8 * sqrt(differ + 1) / n)  # a first guess
    if not refused(bad):
        bad = -most
        if not refused(bad):
            return bad
    for _ in range(_STEPS):
        middle = (bad + good) / 2
        bad, good = (middle, good) if refused(middle) else (bad, middle)
    for step in range(1, _BEYOND + 1):  # the p value is not monotone, since results enter and leave the tail
        further = bad - step * (net / n - bad) / (8 * _BEYOND)
        if further > -most and not refused(further):
            good = further
    return min(bad, good)


def tail(distance: float, n: int, difference: float, rates: Floats) -> Floats:
    """Return the probability of a result whose score statistic is at least ``distance``.

    Args:
        distance: >= 0; may be infinite.
        n: rows, >= 1.
        difference: p - q.
        rates: p + q, each in [abs(difference), 1], shape (G,).

    Returns:
        Shape (G,), in [0, 1].
    """
    from scipy.special import betainc, gammaln, xlog1py, xlogy

    low, high = (end * n for end in (rates.min(), rates.max()))
    reach = 8 * sqrt(high) + 25  # range of discordant rows; others have a probability below e^-25
    differ = np.arange(max(0, int(low - reach)), min(n, int(high + reach)) + 1)  # (B,)
    least = _fewest_wins(distance, n, difference, differ)
    p = np.clip(rates[:, None], 1e-300, 1.0)  # (G, 1)
    choose = gammaln(n + 1) - gammaln(differ + 1) - gammaln(n - differ + 1)
    weight = np.exp(choose + xlogy(differ, p) + xlog1py(n - differ, -p))  # (G, B)
    share = np.clip((1 + difference / p) / 2, 0.0, 1.0)  # share of wins among discordant rows
    wins = np.clip(least, 1, None)
    won = np.where(least <= differ, betainc(wins, np.maximum(differ - wins + 1, 1e-9), share), 0.0)
    return np.asarray((weight * np.where(least <= 0, 1.0, won)).sum(1))


def _fewest_wins(distance: float, n: int, difference: float, differ: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the fewest wins with a statistic of at least ``distance`` for each number of discordant rows, shape (B,).

    The statistic grows with wins; B + 1 if even B wins are too few.
    """
    low, high = np.zeros_like(differ), differ + 1
    while (low < high).any():
        middle = (low + high) // 2
        reached = (middle > differ) | (score(middle, differ - middle, n, difference) >= distance - _SLACK)
        low, high = np.where(reached, low, np.minimum(middle + 1, high)), np.where(reached, middle, high)
    return high


def score(better: NDArray[np.int64], worse: NDArray[np.int64], n: int, difference: float) -> Floats:
    """Return the score statistic under a difference: excess net wins over their standard error, shape (B,).

    Args:
        better: wins, shape (B,).
        worse: losses, shape (B,).
        n: rows.
        difference: p - q, in [-1, 1].

    Infinite if the standard error is 0, and 0 if the excess is 0 too.

    Source: Tango 1998, "Equivalence test and confidence interval for the difference in proportions for the
        paired-sample design"; q is the root of 2 n q^2 + (2 n m - m (b - c) - b - c) q - c m (1 - m) = 0.
    """
    net, m = better - worse, difference
    middle = (better + worse - (2 * n - net) * m) / (4 * n)
    chance = middle + np.sqrt(np.maximum(middle**2 + worse * m * (1 - m) / (2 * n), 0))  # of a loss, the likeliest
    variance = n * (2 * chance + m * (1 - m))
    beyond = net - n * m
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(np.abs(beyond) < _SLACK, 0.0, beyond / np.sqrt(np.maximum(variance, 0))))


LOOKS = 10  # number of looks that share half of the error


def level_of_look(look: int, confidence: float = 0.95) -> float:
    """Return the level of the interval at one look such that the intervals of all looks hold simultaneously.

    Look j has an error of (1 - confidence) c / ((j + c - 1) (j + c)), where c is ``LOOKS``. These errors decrease
    slowly up to look c, when half of the total is spent, and sum to 1 - confidence over infinitely many looks. By the
    union bound, this also bounds the probability that any interval misses its parameter: the number of looks need not
    be fixed in advance, and stopping at any look is valid.

    Args:
        look: from 1.
        confidence: of all intervals simultaneously, in (0, 1).

    Returns:
        In (confidence, 1).

    Raises:
        ValueError: if either is out of range.

    Source: the union bound over looks (Darling and Robbins 1967, "Confidence sequences for mean, variance, and
        median"); the shares telescope, 1 / (j + c - 1) - 1 / (j + c) each.

    >>> round(1 - level_of_look(1), 6), round(sum(1 - level_of_look(j) for j in range(1, 11)), 6)
    (0.004545, 0.025)
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    if look < 1:
        raise ValueError(f"looks are counted from 1, got {look}")
    return 1 - (1 - confidence) * LOOKS / ((look + LOOKS - 1) * (look + LOOKS))


def fewest_rows(bound: float, level: float, share: float = 1.0) -> int | None:
    """Return the number of rows from which the exact interval of a given accuracy lies at or above a bound.

    Args:
        bound: on the accuracy, in (0, 1).
        level: of the interval, in (0, 1).
        share: the accuracy, in [0, 1]; 1 gives the smallest possible number of rows.

    Returns:
        The smallest such number up to a few, since rounding to whole rows is not monotone; None if ``share`` is not
        above ``bound``.

    >>> fewest_rows(0.9, 0.95), fewest_rows(0.9, 0.95, 0.92), fewest_rows(0.9, 0.95, 0.9)
    (36, 931, None)
    """
    if share <= bound:
        return None
    if share == 1:
        return ceil(log((1 - level) / 2) / log(bound))

    def shown(n: int) -> bool:
        return clopper_pearson(floor(share * n), n, level).low >= bound

    few, many = 0, 1
    while not shown(many):
        few, many = many, 2 * many
    return few + 1 + bisect_left(range(few + 1, many), True, key=shown)
