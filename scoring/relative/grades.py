"""Quantiles of a dataset, which turn a value into the share of rows below it, also for new rows."""

import numpy as np
from numpy.typing import NDArray

POINTS = 1001  # quantiles that are kept
LEVELS = np.linspace(0, 1, POINTS)


def quantiles_of(values: NDArray) -> NDArray[np.float32]:
    """Return the quantiles of values, shape (1001,), ascending; all 0 without values."""
    if not len(values):
        return np.zeros(POINTS, np.float32)
    return np.quantile(np.asarray(values, np.float64), LEVELS).astype(np.float32)


def graded(values: NDArray, quantiles: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the share of a dataset that lies below each value, ties counting half, in [0, 1].

    Between two quantiles it is interpolated; a value that many rows of the dataset have gets the middle of their
    shares.

    >>> graded(np.array([-1.0, 0.5, 2.0]), np.linspace(0, 1, POINTS).astype(np.float32)).tolist()
    [0.0, 0.5, 1.0]
    """
    different, first, count = np.unique(quantiles.astype(np.float64), return_index=True, return_counts=True)
    levels = (LEVELS[first] + LEVELS[first + count - 1]) / 2
    return np.interp(np.asarray(values, np.float64), different, levels, left=0.0, right=1.0)
