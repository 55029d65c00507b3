"""Clusterings of a dataset at several sizes: coarse ones separate scenes, fine ones kinds."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from scoring.search.kmeans import MOST_PER_CENTROID, assign, spherical_kmeans

SIZES = (4, 6, 8, 10, 12, 15, 18, 21, 25, 30)
ROWS_A_CLUSTER = 4  # a dataset has no more clusters than lets each have so many rows
ITERATIONS = 20
FINE, FINE_ROWS = (8, 60), 25  # clusters that rows get the numbers of: the fewest and the most, and rows in each

Centroids = Mapping[int, NDArray[np.float32]]


def cluster_centres(units: NDArray[np.float32], *, seed: int = 0) -> Centroids:
    """Return the centres of a clustering at each size that the dataset allows: k -> shape (k, D).

    Args:
        units: centred rows of length 1, shape (N, D); the same result for the same order of rows.
        seed: of the starts.
    """
    possible = [k for k in SIZES if k * ROWS_A_CLUSTER <= len(units)]
    return {
        k: spherical_kmeans(units, k, seed=seed + k, iterations=ITERATIONS, sample=k * MOST_PER_CENTROID)
        for k in possible
    }


def fine_clusters(units: NDArray[np.float32], *, seed: int = 0) -> NDArray[np.float32]:
    """Return the centres of the numbered clusters, shape (k, D): about 25 rows each, 8 to 60 clusters.

    Args:
        units: as in ``cluster_centres``.
        seed: of the start.
    """
    k = min(int(np.clip(len(units) // FINE_ROWS, *FINE)), len(units))
    return spherical_kmeans(units, k, seed=seed, iterations=ITERATIONS, sample=k * MOST_PER_CENTROID)


def labels_of(units: NDArray[np.float32], centres: Centroids) -> NDArray[np.int32]:
    """Return the cluster of each row in each clustering, shape (N, S); -1 for a row without direction."""
    if not centres:
        return np.zeros((len(units), 0), np.int32)
    return np.stack([assign(units, middle)[0][:, 0] for middle in centres.values()], axis=1)
