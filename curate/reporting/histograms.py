"""Histograms with exact counts, and quantiles by class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 60
CORE = (0.001, 0.999)  # of the values: where the bins lie when the rest is far away
FAR = 20  # times as wide as the core is what all values span
SKEWED = 20  # times the 1 % quantile is the 99 % quantile
EXACT = 2**53  # whole numbers beyond are not separated
LARGE, SMALL = 1e300, 1e-300
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def histogram(values: NDArray[Any]) -> dict[str, Any]:
    """Return bin edges and counts; the counts add up to the number of finite values.

    A value is in bin i where ``edges[i] <= value < edges[i + 1]``, in the last also at its right edge. Whole numbers
    of few values have a bin each. A single value is in the middle of empty bins. Where a few values lie far from all
    others, the bins span the others, and the first and the last bin count what lies beyond them: ``clipped`` says how
    many.

    Args:
        values: shape (N,); NaN and infinities are left out.
    """
    finite = values[np.isfinite(values)]
    edges, is_log = bin_edges(finite)
    counts = bin_counts(finite, edges)
    clipped = [int((finite < edges[0]).sum()), int((finite > edges[-1]).sum())]
    facts = {"edges": edges.tolist(), "counts": counts.tolist(), "log": is_log}
    return facts | ({"clipped": clipped} if any(clipped) else {})


def bin_counts(finite: NDArray[Any], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number of finite values in each bin, shape (B,); the outer bins include all values beyond."""
    place = np.searchsorted(edges, finite.astype(np.float64), side="right") - 1
    return np.bincount(place.clip(0, len(edges) - 2), minlength=len(edges) - 1)


def bin_edges(finite: NDArray[Any]) -> tuple[NDArray[np.float64], bool]:
    """Return ascending bin edges for finite values, and whether they are logarithmic."""
    if not len(finite):
        return np.array([0.0, 1.0]), False
    low, high = float(finite.min()), float(finite.max())
    if np.issubdtype(finite.dtype, np.integer) and high - low < BINS and max(-low, high) < EXACT:
        beyond = int(low == high)  # an empty bin on both sides of a single value
        return np.arange(low - beyond, high + 2 + beyond) - 0.5, False
    if low == high:  # in the middle, with empty bins from 0 to twice the value
        width = min(abs(low), float(np.finfo(np.float64).max) / 2) if abs(low) > SMALL else 1.0
        middle = np.clip(low, -width, width) if abs(low) > SMALL else 0.0
        return _ascending(middle + width * np.linspace(-1, 1, BINS + 2), middle - width, middle + width), False
    if is_steep(finite):
        return _ascending(np.geomspace(low, high, BINS + 1), low, high), True
    core = _quantile(finite, CORE)
    if core[1] > core[0] and (high / 2 - low / 2) / FAR > core[1] / 2 - core[0] / 2:
        low, high = float(core[0]), float(core[1])
    even = (low / 2 + (high / 2 - low / 2) * (np.arange(BINS + 1) / BINS)) * 2  # halves: their difference is finite
    return _ascending(even, low, high), False


def _ascending(edges: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Return edges made ascending with exact ends, after rounding."""
    edges[[0, -1]] = low, high
    return np.maximum.accumulate(edges.clip(low, high))


def is_steep(finite: NDArray[Any]) -> bool:
    """Return whether finite values need a logarithmic axis: positive, of a wide range, and mostly low.

    Values that are even between 0 and 1 are far apart, too, and no more of them are low than high.
    """
    if not len(finite) or not finite.min() > 0 or float(finite.max()) > LARGE:
        return False
    first, middle, last = _quantile(finite, (0.01, 0.5, 0.99))
    return bool(last > SKEWED * first and last - middle > 2 * (middle - first))


def quantiles(values: NDArray[Any]) -> list[float]:
    """Return the 5, 25, 50, 75 and 95 % quantiles of finite values, at least one, interpolated linearly."""
    return _quantile(values, QUANTILES).tolist()


def _quantile(values: NDArray[Any], shares: Sequence[float]) -> NDArray[np.float64]:
    """Return quantiles of finite values whose differences may overflow."""
    numbers = values.astype(np.float64)
    large = np.abs(numbers).max() > LARGE
    return np.quantile(numbers / 4, shares) * 4 if large else np.quantile(numbers, shares)
