"""Monotone calibration maps from a score to a probability: isotonic and logistic regression."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from curate.statistics.logistic import most_likely, probability_of

Floats = NDArray[np.float64]
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


def outside_by_chance(n: int, others: int, outside: int) -> float:
    """Return the probability that at least ``outside`` new rows of the same distribution leave the range of ``n``.

    The share of a distribution beyond the range of n rows has a Beta(2, n - 1) distribution without ties, so the number
    of ``others`` outside is beta-binomial. Ties make the result conservative. n >= 2.

    >>> round(outside_by_chance(2, 1, 1), 4)  # the third of three is the middle one in a third of all orders
    0.6667
    """
    if n < 2 or not 0 <= outside <= others:
        raise ValueError(f"expected n >= 2 and 0 <= outside <= others, got {n}, {outside}, {others}")
    if not outside:
        return 1.0
    from scipy.special import betaln  # type: ignore[import-untyped]

    k = np.arange(outside)  # fewer
    choices = -np.log(others + 1) - betaln(others - k + 1, k + 1)
    return float(max(0.0, 1 - np.exp(choices + betaln(k + 2, others - k + n - 1) - betaln(2, n - 1)).sum()))
