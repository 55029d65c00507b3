"""Monotone maps from a score to a probability, logistic regression, and monotonicity under growing strength."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import erfc, sqrt
from statistics import NormalDist
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array, Floats
from scoring.metrics.resampling import Interval

MOST_KNOTS = 1_000_000  # of a map that is read


class Calibrator(Protocol):
    """A non-decreasing map from a score, higher is worse, to the probability of being bad."""

    @classmethod
    def fit(cls, x: Floats, y: Floats, weights: Floats) -> Self:
        """Fit the map to N rows.

        Args:
            x: scores, higher is more likely bad, shape (N,), finite.
            y: badness in [0, 1], shape (N,); not constant.
            weights: > 0, shape (N,).
        """

    def predict(self, x: Floats) -> Floats:
        """Return the probability of being bad for M scores, in [0, 1]; constant beyond the fitted range."""

    def to_json(self) -> dict[str, Any]:
        """Return its numbers as plain JSON."""

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Return the map that ``to_json`` wrote; KeyError, TypeError or ValueError for an invalid value."""


@dataclass(frozen=True)
class Isotonic:
    """Isotonic regression (least squares), interpolated linearly between blocks of scores.

    Attributes:
        x: knots, ascending, shape (K,).
        p: probability at each, ascending, shape (K,).

    Source: pool adjacent violators, Ayer et al. 1955; for calibration Zadrozny and Elkan 2002, "Transforming classifier
    scores into accurate multiclass probability estimates".

    >>> Isotonic.fit(np.array([1.0, 2, 3, 4]), np.array([0.0, 1, 0, 1]), np.ones(4)).predict(np.array([0.0, 2, 3.5]))
    array([0.  , 0.5 , 0.75])
    """

    x: Floats
    p: Floats
    meaning: ClassVar[str] = "share of bad rows among rows of similar score, made to rise with it"

    @classmethod
    def fit(cls, x: Floats, y: Floats, weights: Floats) -> Self:
        """See ``Calibrator.fit``; rows of equal score count as one with their mean."""
        from scipy.optimize import isotonic_regression  # type: ignore[import-untyped]

        at, place = np.unique(x, return_inverse=True)
        weight = np.asarray(np.bincount(place, weights), np.float64)
        p = np.clip(isotonic_regression(np.bincount(place, weights * y) / weight, weights=weight).x, 0.0, 1.0)
        inside = np.ones(len(at), bool)  # only the ends of runs of equal probabilities are kept
        inside[1:-1] = (p[1:-1] != p[:-2]) | (p[1:-1] != p[2:])
        return cls(at[inside], p[inside])

    def predict(self, x: Floats) -> Floats:
        """See ``Calibrator.predict``."""
        return np.interp(x, self.x, self.p)

    def to_json(self) -> dict[str, Any]:
        """See ``Calibrator.to_json``."""
        return {"x": self.x.tolist(), "p": self.p.tolist()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """See ``Calibrator.from_json``."""
        x, p = (np.array(record[name], np.float64) for name in ("x", "p"))
        if x.shape != p.shape or x.ndim != 1 or not 1 <= len(x) <= MOST_KNOTS:
            raise ValueError(f"knots of shapes {x.shape} and {p.shape}")
        if not (np.isfinite(x).all() and (np.diff(x) > 0).all()):
            raise ValueError("knots that do not ascend")
        if not ((p >= 0).all() and (p <= 1).all() and (np.diff(p) >= 0).all()):
            raise ValueError("probabilities that do not ascend in [0, 1]")
        return cls(x, p)


@dataclass(frozen=True)
class Logistic:
    """log(p / (1 - p)) = intercept + slope * x within the fitted range of scores; slope >= 0.

    The targets are Platt's: (bad + 1) / (bad + 2) for a bad row and 1 / (good + 2) for a good one, so that the fit is
    finite for separable classes. If bad rows have lower scores, the best non-decreasing map is constant.

    Attributes:
        intercept: log odds at x = 0.
        slope: per unit of x.
        low: lowest fitted score.
        high: highest fitted score.

    Source: Platt 1999, "Probabilistic outputs for support vector machines", sec. 2.2; Newton steps as Lin, Lin and Weng
    2007, "A note on Platt's probabilistic outputs".
    """

    intercept: float
    slope: float
    low: float
    high: float
    meaning: ClassVar[str] = "logistic curve in the score (Platt)"

    @classmethod
    def fit(cls, x: Floats, y: Floats, weights: Floats) -> Self:
        """See ``Calibrator.fit``; weighted rows count as their effective sample size (Kish)."""
        low, high = float(x.min()), float(x.max())
        n = weights.sum() ** 2 / (weights**2).sum()
        bad = float(n * (weights @ y) / weights.sum())
        targets = y * (bad + 1) / (bad + 2) + (1 - y) / (n - bad + 2)
        rate = float(weights @ targets / weights.sum())
        flat = float(np.log(rate / (1 - rate)))
        middle, spread = x.mean(), x.std()
        if not spread > 0:
            return cls(flat, 0.0, low, high)
        beta = most_likely((x - middle) / spread, targets, np.array([flat, 0.0]), weights * (n / weights.sum()))
        if beta is None or not beta[1] > 0:
            return cls(flat, 0.0, low, high)
        slope = float(beta[1] / spread)
        return cls(float(beta[0] - slope * middle), slope, low, high)

    def predict(self, x: Floats) -> Floats:
        """See ``Calibrator.predict``."""
        return probability_of(self.intercept + self.slope * np.clip(x, self.low, self.high))

    def to_json(self) -> dict[str, Any]:
        """See ``Calibrator.to_json``."""
        return {"intercept": self.intercept, "slope": self.slope, "low": self.low, "high": self.high}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """See ``Calibrator.from_json``."""
        fitted = cls(*(float(record[name]) for name in ("intercept", "slope", "low", "high")))
        if not np.isfinite([fitted.intercept, fitted.slope, fitted.low, fitted.high]).all():
            raise ValueError("a number that is invalid")
        if fitted.slope < 0 or fitted.low > fitted.high:
            raise ValueError(f"a slope of {fitted.slope:g} between {fitted.low:g} and {fitted.high:g}")
        return fitted


CALIBRATORS: dict[str, type[Calibrator]] = {"isotonic": Isotonic, "logistic": Logistic}  # to add one, add a line


def cross_fitted(kind: type[Calibrator], x: Floats, y: Floats, weights: Floats, fold: NDArray[np.integer]) -> Floats:
    """Return the probability of each row from a map fitted on all other folds, shape (N,).

    Args:
        kind: of map.
        x: scores, higher is more likely bad, shape (N,).
        y: badness, shape (N,).
        weights: shape (N,).
        fold: integers, shape (N,), at least two distinct ones.
    """
    p = np.empty(len(x))
    for number in np.unique(fold):
        out = fold == number
        p[out] = kind.fit(x[~out], y[~out], weights[~out]).predict(x[out])
    return p


MOST_STEPS = 100
MOST_HALVINGS = 40


@dataclass(frozen=True)
class LogisticFit:
    """log(p / (1 - p)) = intercept + coefficient * x, by maximum likelihood.

    Attributes:
        coefficient: per unit of x; positive if the probability grows with x.
        intercept: at x = 0.
        error: standard error of the coefficient (Wald).
        p: two-sided p value of the coefficient being 0 (Wald).
        converged: False if a threshold on x separates the classes, one is absent, or float64 finds no maximum (nearly
            separable); then all values are NaN.
    """

    coefficient: float
    intercept: float
    error: float
    p: float
    converged: bool


def logistic_regression(x: Array, y: Array) -> LogisticFit:
    """Fit the probability of y given x, without a penalty.

    Args:
        x: shape (N,), finite, not constant.
        y: shape (N,), bool.

    Raises:
        ValueError: if x is not finite, or the shapes differ.

    Source: the fit of Nakamura et al. 2023, arXiv:2203.11437, appendix C; Newton steps on the standardised score,
    each halved until the likelihood does not fall, since full steps overshoot for scores with heavy tails.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if x.shape != y.shape or x.ndim != 1 or not np.isfinite(x).all():
        raise ValueError(f"x and y must both have shape (N,), and x be finite; got {x.shape} and {y.shape}")
    failed = LogisticFit(np.nan, np.nan, np.nan, np.nan, False)
    spread = x.std() if len(x) else 0.0
    if not spread > 0 or separates(x, y > 0):
        return failed
    z = (x - x.mean()) / spread
    ones = np.ones(len(z))
    beta = most_likely(z, y, np.array([np.log(y.mean() / (1 - y.mean())), 0.0]), ones)
    if beta is None:
        return failed
    _, information = _newton_terms(z, y, beta, ones)
    error = float(np.sqrt(np.linalg.inv(information)[1, 1]))
    coefficient = beta[1] / spread
    return LogisticFit(
        float(coefficient),
        float(beta[0] - coefficient * x.mean()),
        error / float(spread),
        erfc(abs(float(beta[1]) / error) / sqrt(2)),  # of a standard normal
        True,
    )


def most_likely(z: Floats, y: Floats, beta: Floats, weights: Floats) -> Floats | None:
    """Return the maximum-likelihood intercept and slope, shape (2,); None if the iteration finds none.

    Args:
        z: shape (N,), standardised.
        y: targets in [0, 1], shape (N,).
        beta: initial values, shape (2,).
        weights: of the rows, shape (N,).
    """
    height = _log_likelihood(z, y, beta, weights)
    for _ in range(MOST_STEPS):
        gradient, information = _newton_terms(z, y, beta, weights)
        if not np.linalg.det(information) > 0:
            return None
        step = np.linalg.solve(information, gradient)
        if np.abs(step).max() < 1e-10 * (1 + np.abs(beta).max()):
            return beta + step
        for _ in range(MOST_HALVINGS):
            reached = _log_likelihood(z, y, beta + step, weights)
            if reached >= height - 1e-12 * abs(height):  # the concave likelihood rises along a Newton step
                break
            step = step / 2
        beta, height = beta + step, reached
    return None


def separates(x: Array, y: Array) -> bool:
    """Return whether a threshold on x separates the classes perfectly (or one is missing): no finite fit exists."""
    if y.all() or not y.any():
        return True
    return bool(x[y].min() >= x[~y].max() or x[~y].min() >= x[y].max())


def newton_terms(x: Array, y: Array, fit: LogisticFit) -> Floats:
    """Return each row's contribution to gradient and information at the fit, shape (N, 5).

    Their sums, weighted by the counts of a resample, give its fit to first order by ``newton_step``, which costs a
    product instead of a fit. The difference to the full fit is O(1/N).
    """
    x = np.asarray(x, np.float64)
    probability = probability_of(fit.intercept + fit.coefficient * x)
    rest, curve = np.asarray(y, np.float64) - probability, probability * (1 - probability)
    return np.stack([rest, rest * x, curve, curve * x, curve * x * x], 1)


def newton_step(fit: LogisticFit, sums: Array) -> float:
    """Return the coefficient after one Newton step from the fit, given the sums of a resample, shape (5,)."""
    (g0, g1, h00, h01, h11) = sums
    determinant = h00 * h11 - h01 * h01
    return float(fit.coefficient + (h00 * g1 - h01 * g0) / determinant) if determinant > 0 else float("nan")


def probability_of(logit: Floats) -> Floats:
    """Return 1 / (1 + exp(-logit)), without overflow."""
    return 0.5 * (1 + np.tanh(logit / 2))


def _log_likelihood(z: Floats, y: Floats, beta: Floats, weights: Floats) -> float:
    logit = beta[0] + beta[1] * z
    return float((weights * (y * logit - np.logaddexp(0, logit))).sum())


def _newton_terms(z: Floats, y: Floats, beta: Floats, weights: Floats) -> tuple[Floats, Floats]:
    p = probability_of(beta[0] + beta[1] * z)
    rest, curve = weights * (y - p), weights * p * (1 - p)
    return np.array([rest.sum(), rest @ z]), np.array([[curve.sum(), curve @ z], [curve @ z, (curve * z) @ z]])


CONFIDENCE = 0.95  # of intervals


@dataclass(frozen=True)
class Rise:
    """Change of the values of N items over S strengths.

    Attributes:
        end: mean change from the first strength to the last, with its 95 % interval.
        fall: mean change between the two strengths with the most significant decrease, weaker one first, with a 95 %
            interval simultaneous over all pairs of strengths.
        between: the indices of these two strengths.
    """

    end: Interval
    fall: Interval
    between: tuple[int, int]


def rise(values: Array) -> Rise:
    """Measure whether values rise with strength.

    Intervals are normal ones of paired differences over images; for decreases with Bonferroni's correction for all S (S
    - 1) / 2 pairs of strengths. Raises ValueError unless values, of N items at S ascending strengths, have shape (S >=
    2, N >= 2).

    >>> found = rise(np.array([[0.0, 0.1, 0.2], [0.5, 0.5, 0.6], [0.2, 0.4, 0.4]]))
    >>> found.between, round(found.end.value, 3), round(found.fall.value, 3)
    ((1, 2), 0.233, -0.2)
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 2 or min(values.shape) < 2:
        raise ValueError(f"expected values of shape (S, N), S and N at least 2, got {values.shape}")
    pairs = list(combinations(range(len(values)), 2))
    share = (1 - CONFIDENCE) / len(pairs)
    changes = [mean_change(values[early], values[late], 1 - share) for early, late in pairs]
    smallest = min(range(len(pairs)), key=lambda at: changes[at].high)
    return Rise(mean_change(values[0], values[-1]), changes[smallest], pairs[smallest])


def mean_change(before: Floats, after: Floats, confidence: float = CONFIDENCE) -> Interval:
    """Return the mean of paired differences (N >= 2,) and its normal interval."""
    change = np.asarray(after, np.float64) - before
    half = NormalDist().inv_cdf((1 + confidence) / 2) * float(change.std(ddof=1)) / sqrt(len(change))
    middle = float(change.mean())
    return Interval(middle, middle - half, middle + half)


def mean_bands(values: Floats) -> Sequence[Floats]:
    """Return means over the last axis of (..., N >= 2), and bounds of their 95 % normal intervals, (...,) each."""
    middle = values.mean(-1)
    half = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * values.std(-1, ddof=1) / sqrt(values.shape[-1])
    return middle, middle - half, middle + half
