"""Logistic regression of correctness on one score."""

from dataclasses import dataclass
from math import erfc, sqrt

import numpy as np
from numpy.typing import NDArray

MOST_STEPS = 100
MOST_HALVINGS = 40
Floats = NDArray[np.float64]


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


def logistic_regression(x: NDArray, y: NDArray) -> LogisticFit:
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


def separates(x: NDArray, y: NDArray) -> bool:
    """Return whether a threshold on x separates the classes perfectly (or one is missing): no finite fit exists."""
    if y.all() or not y.any():
        return True
    return bool(x[y].min() >= x[~y].max() or x[~y].min() >= x[y].max())


def newton_terms(x: NDArray, y: NDArray, fit: LogisticFit) -> Floats:
    """Return each row's contribution to gradient and information at the fit, shape (N, 5).

    Their sums, weighted by the counts of a resample, give its fit to first order by ``newton_step``, which costs a
    product instead of a fit. The difference to the full fit is O(1/N).
    """
    x = np.asarray(x, np.float64)
    probability = probability_of(fit.intercept + fit.coefficient * x)
    rest, curve = np.asarray(y, np.float64) - probability, probability * (1 - probability)
    return np.stack([rest, rest * x, curve, curve * x, curve * x * x], 1)


def newton_step(fit: LogisticFit, sums: NDArray) -> float:
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
