"""How score columns rank rows against one another."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEWEST = 3  # rows that both columns have


def rank_correlations(columns: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    """Return Spearman's rank correlation of every pair of columns, over the rows that have a value in both.

    Args:
        columns: by name, shape (N,), NaN where there is no value.

    Returns:
        ``columns``, the symmetric matrix ``rho`` (null for fewer than three rows or a constant column), and ``n``.
    """
    from scoring.metrics.ranking import spearman

    names = list(columns)
    rho: list[list[float | None]] = [[None] * len(names) for _ in names]
    for i, a in enumerate(names):
        for j, b in enumerate(names[: i + 1]):
            both = np.isfinite(columns[a]) & np.isfinite(columns[b])
            value = spearman(columns[a][both], columns[b][both]) if both.sum() >= FEWEST else float("nan")
            rho[i][j] = rho[j][i] = None if np.isnan(value) else value
    return {"columns": names, "rho": rho, "n": len(next(iter(columns.values()), ()))}
