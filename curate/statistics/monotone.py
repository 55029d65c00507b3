"""Monotonicity of values under growing strength, measured on the same items, with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from scoring.metrics.resampling import Interval

Floats = NDArray[np.float64]
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


def rise(values: NDArray) -> Rise:
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
