"""The cell of each row, and the order of rows within a cell."""

import numpy as np
from numpy.typing import NDArray

from curate.selectors.clusters import grouped, typicality
from curate.tables.rows import Codes
from scoring.errors import InputError

CERTAIN, TYPICAL, RANDOM = "certain", "typical", "random"
WITHIN = {
    CERTAIN: "the most certain by a score",
    TYPICAL: "those with the nearest neighbours in their cell",
    RANDOM: "drawn by the hash of the key",
}
CLUSTERS = "clusters"
USUAL_CLUSTERS = 100


def clustered(vectors: NDArray[np.floating], k: int | None, seed: int) -> Codes:
    """Return the cluster of each row by spherical k-means; empty clusters have no name.

    Args:
        vectors: unit rows, shape (M, D).
        k: clusters; None for 100, or for a tenth of the rows where those are fewer.
        seed: of the rows that it starts from.

    Raises:
        InputError: for more clusters than rows, or none.
    """
    n = len(vectors)
    k = max(1, min(USUAL_CLUSTERS, n // 10)) if k is None else k
    if not 1 <= k <= n:
        raise InputError(f"--clusters must be between 1 and the {n:,} rows with an embedding, got {k:,}")
    used, codes = np.unique(grouped(vectors, k, seed)[0], return_inverse=True)
    width = len(str(k - 1))
    return Codes(codes.astype(np.int32), [f"{number:0{width}}" for number in used.tolist()])


def typical(vectors: NDArray[np.floating], codes: NDArray[np.int32], seed: int) -> NDArray[np.float64]:
    """Return the density at each row within its cell, shape (M,); higher is denser."""
    density = np.empty(len(codes))
    order = np.argsort(codes, kind="stable").astype(np.int32)
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if len(rows):
            density[rows] = typicality(vectors[rows], seed)
    return density
