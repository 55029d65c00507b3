"""What probes of the studies learn from."""

import numpy as np
from numpy.typing import NDArray


def principal(vectors: NDArray, count: int) -> NDArray[np.float64]:
    """Return the directions of most variance, the first the one of most, shape (D, min(count, D)).

    Args:
        vectors: shape (N, D), N >= 2.
        count: how many.
    """
    rows = vectors.astype(np.float64)
    _, directions = np.linalg.eigh(np.cov((rows - rows.mean(0)).T))
    return np.asarray(directions[:, ::-1][:, :count])
