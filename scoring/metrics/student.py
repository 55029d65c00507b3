"""Student's t distribution: how far a mean may be off whose spread was itself estimated from a few numbers."""

from math import exp, inf, lgamma, log, pi, sqrt
from statistics import NormalDist

_NEWTON = 200
_STEPS = 10_000  # of the continued fraction, which needs about sqrt(df)
_TINY = 1e-300
_SLACK = 1e-15
NORMAL = 1e7  # degrees of freedom from which on nothing but the normal distribution is left


def student_p(t: float, df: float) -> float:
    """Return the probability that a number of Student's t distribution is at least |t| away from 0.

    Args:
        t: any number.
        df: degrees of freedom, > 0; more than ten million are taken for that many.

    Raises:
        ValueError: if ``df`` is not above 0.

    Source: Abramowitz and Stegun 1964, 26.7.1 and 26.5.8.

    >>> round(student_p(2.776445, 4), 6)
    0.05
    """
    if not df > 0:
        raise ValueError(f"df must be above 0, got {df}")
    df = min(df, NORMAL)
    return _regular_beta(df / (df + t * t), t * t / (df + t * t), df / 2, 0.5)


def student_quantile(level: float, df: float) -> float:
    """Return the number that |t| stays below with probability ``level``.

    Args:
        level: in (0, 1).
        df: degrees of freedom, > 0.

    >>> round(student_quantile(0.95, 4), 3), round(student_quantile(0.95, 1e6), 3)
    (2.776, 1.96)
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}")
    df = min(df, NORMAL)
    low, high = 0.0, inf
    t = NormalDist().inv_cdf((1 + level) / 2)
    scale = 2 * exp(lgamma((df + 1) / 2) - lgamma(df / 2)) / sqrt(df * pi)
    for _ in range(_NEWTON):  # steps of Newton's that stay between the bounds known so far, else their middle
        beyond = student_p(t, df) - (1 - level)
        low, high = (t, high) if beyond > 0 else (low, t)
        step = beyond / (scale * (1 + t * t / df) ** (-(df + 1) / 2))
        following = t + step
        if not low <= following <= high:
            following = (low + high) / 2 if high < inf else 2 * t
        if abs(following - t) <= 1e-14 * t:
            break
        t = following
    return t


def _regular_beta(x: float, rest: float, a: float, b: float) -> float:
    """Return the incomplete beta function over the whole, I_x(a, b), for x in [0, 1] and rest = 1 - x to all digits."""
    if x <= 0 or rest <= 0:
        return float(rest <= 0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _regular_beta(rest, x, b, a)
    front = exp(a * log(x) + b * log(rest) - (lgamma(a) + lgamma(b) - lgamma(a + b))) / a
    return min(1.0, front * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function, from the front (Lentz's method)."""
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            found *= c * d
        if abs(c * d - 1) < _SLACK:
            break
    return found


def _away(value: float) -> float:
    """Return a number that can be divided by."""
    return value if abs(value) > _TINY else _TINY
