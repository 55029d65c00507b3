"""How near labelled rows are to the others, and a fixed sample of rows on which rounds are compared."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_SAMPLE = 2_000  # rows on which rounds are compared
REACHED = 0.5  # Euclidean distance between unit rows within which a row counts as covered: the reach of `auto`


@dataclass(frozen=True)
class PoolCoverage:
    """Distances of sampled rows to the nearest labelled one, between unit vectors, in [0, 2].

    Attributes:
        mean: of them.
        most: the largest.
        within: share of rows that are no further than ``REACHED``.
    """

    mean: float
    most: float
    within: float


def sample_of(rows: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return the rows on which rounds are compared, ascending: random, and the same in every round."""
    generator = np.random.default_rng([seed, 1])
    return np.sort(generator.permutation(rows)[:N_SAMPLE])


def coverage(vectors: NDArray, sample: NDArray[np.int64], labelled: NDArray[np.int64]) -> PoolCoverage | None:
    """Return how far sampled rows are from the nearest labelled one; None without labelled rows.

    Args:
        vectors: shape (N, D); scaled to unit length here.
        sample: rows, shape (S,).
        labelled: rows, shape (L,).
    """
    if not len(labelled) or not len(sample):
        return None
    from curate.selectors.geometry import spans, unit

    cosine = np.full(len(sample), -1.0, np.float32)
    rows = unit(vectors[sample], np.float32)
    for span in spans(len(labelled)):
        cosine = np.maximum(cosine, (rows @ unit(vectors[labelled[span]], np.float32).T).max(1))
    distance = np.sqrt(np.maximum(2 - 2 * cosine.astype(np.float64), 0))
    return PoolCoverage(float(distance.mean()), float(distance.max()), float((distance <= REACHED).mean()))
