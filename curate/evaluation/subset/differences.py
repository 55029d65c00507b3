"""Paired differences between models trained on different rows, with intervals over test rows and draws."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scoring.metrics.resampling import Interval

LEVEL = 0.95
MOST_DF = 1e4  # Student's t is the normal distribution by then
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Gap:
    """A difference of two means over the same rows.

    Attributes:
        interval: the difference and its 95 % interval.
        p: two-sided, of there being none; 1 where nothing varies and there is no difference.
        n: rows.
    """

    interval: Interval
    p: float
    n: int


@dataclass(frozen=True)
class ChanceLevel:
    """The share of the variance of a mean that comes from the draw of training rows.

    Attributes:
        variance: of the mean between draws of one size, >= 0.
        from_rows: the part of it that comes from n test rows alone.
        df: degrees of freedom.
        draws: how many were averaged on one side, R.
    """

    variance: float
    from_rows: float
    df: int
    draws: int


def chance_level_of(draws: NDArray, weight: Floats) -> ChanceLevel:
    """Return the chance level estimated from random draws.

    Args:
        draws: whether every draw is right on every row, shape (R, N), R >= 2.
        weight: of the rows, shape (N,), sum 1.
    """
    alone = float((draws.astype(np.float64).var(0, ddof=1) * weight**2).sum())
    return ChanceLevel(float((draws @ weight).var(ddof=1)), alone, len(draws) - 1, len(draws))


def gap(first: NDArray, second: NDArray, chance_level: ChanceLevel, weight: Floats | None = None) -> Gap:
    """Return the difference of two means, with an interval over test rows and draws.

    The variance has two parts. The test rows: the paired differences vary from row to row. The draw: a subset may be a
    lucky draw, as random ones of its size are, and the mean of R random draws is one too. What random draws vary by on
    these test rows holds the test rows' own part once more, which is taken off. Student's t, with Satterthwaite's
    degrees of freedom.

    Args:
        first: whether a model is right on each row, or any number, shape (N,); or (A, N) for a mean over A models.
        second: the same.
        chance_level: of random draws, on the same rows and weights.
        weight: of the rows, shape (N,), sum 1; equal by default.

    Source: Satterthwaite 1946; the two parts as in Dietterich 1998, "Approximate statistical tests for comparing
    supervised classification learning algorithms", section 2.
    """
    paired = np.atleast_2d(first).mean(0, dtype=np.float64) - np.atleast_2d(second).mean(0, dtype=np.float64)
    n = len(paired) if weight is None else int((weight > 0).sum())
    weight = np.full(len(paired), 1 / len(paired)) if weight is None else weight
    value = float(weight @ paired)
    rows = float((weight**2 * np.square(paired - value)).sum()) * n / max(n - 1, 1)
    factor = 1 + 1 / chance_level.draws
    drawn = factor * chance_level.variance
    variance = rows + max(0.0, drawn - factor * chance_level.from_rows)
    df = chance_level.df * max(1.0, variance / drawn) ** 2 if drawn > 0 else MOST_DF
    return _tested(value, variance, min(df, MOST_DF), n)


def gap_of_draws(value: float, draws: Floats) -> Gap:
    """Return by how much a number of the subset exceeds its value in random subsets, shape (R,), R >= 2.

    The interval holds 0 in 95 % of random subsets.
    """
    spread = float(draws.var(ddof=1)) * (1 + 1 / len(draws))
    return _tested(value - float(draws.mean()), spread, len(draws) - 1, len(draws))


def _tested(value: float, variance: float, df: float, n: int) -> Gap:
    error = float(np.sqrt(variance))
    if error <= 1e-12:
        return Gap(Interval(value, value, value), 1.0 if abs(value) < 1e-9 else 0.0, n)
    from scipy.special import stdtr, stdtrit  # type: ignore[import-untyped]

    half = float(stdtrit(df, (1 + LEVEL) / 2)) * error
    return Gap(Interval(value, value - half, value + half), 2 * float(stdtr(df, -abs(value / error))), n)
