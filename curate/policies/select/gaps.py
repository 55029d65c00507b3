"""How far each pick is from what was chosen before it, and where picks come too near."""

import numpy as np
from numpy.typing import NDArray

from curate.selectors.geometry import spans, squared_distances, unit


def first_too_near(
    vectors: NDArray, labelled: NDArray[np.int64], picks: NDArray[np.int64], least: float
) -> tuple[int, float]:
    """Return how many picks come before the first that is nearer than ``least`` to an earlier pick or labelled row.

    Args:
        vectors: shape (N, D); scaled to unit length here.
        labelled: rows, shape (L,).
        picks: rows in the order picked, shape (K,).
        least: Euclidean distance between unit rows, in (0, 2].

    Returns:
        K and infinity where all picks are far enough; else the place of that pick, and its distance.
    """
    for block in spans(len(picks)):
        rows = unit(vectors[picks[block]], np.float64)  # in float32 copies would be some 0.0003 apart
        nearest = np.full(len(rows), np.inf)
        for earlier in (labelled, picks[: block.start]):
            for span in spans(len(earlier)):
                gaps = squared_distances(rows, unit(vectors[earlier[span]], np.float64))
                nearest = np.minimum(nearest, gaps.min(axis=1))
        between = squared_distances(rows, rows)
        between[np.triu_indices(len(rows))] = np.inf  # only those before it
        nearest = np.sqrt(np.minimum(nearest, between.min(axis=1)))
        near = np.flatnonzero(nearest < least)
        if len(near):
            return block.start + int(near[0]), float(nearest[near[0]])
    return len(picks), float("inf")
