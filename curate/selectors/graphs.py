"""The k nearest neighbours of a pool's rows, as the sparse selectors use them."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from curate.selectors.geometry import members, subset
from curate.selectors.pool import Pool
from scoring.errors import InputError

if TYPE_CHECKING:
    from scoring.search.graph import Graph


MOST = 64  # neighbours that a graph holds at most


def check_neighbours(k: int) -> None:
    """Refuse a number of neighbours that no graph has.

    Raises:
        InputError: if k is not between 1 and 64.
    """
    if not 1 <= k <= MOST:
        raise InputError(f"neighbours must be between 1 and {MOST}, got {k}")


def neighbours(pool: Pool, k: int, seed: int) -> tuple[NDArray[np.int64], "Graph", tuple[str, ...]]:
    """Return the rows that a selector looks at, the graph of their nearest neighbours, and what it is worth.

    Args:
        pool: with vectors.
        k: neighbours of a row; fewer where there are not so many rows.
        seed: of the search beyond its exact range.

    Returns:
        Rows of the pool, ascending, shape (M,); the graph, whose indices are positions among them; notes.
    """
    from scoring.search.graph import knn_graph

    if pool.vectors is None:
        raise ValueError("a pool that was checked has vectors")
    rows = members(pool.candidates, pool.labelled)
    graph = knn_graph(subset(pool.vectors, rows), min(k, len(rows) - 1), seed=seed)
    if graph.recall.exact:
        return rows, graph, ()
    recall = graph.recall
    found = f"{recall.estimate:.2%} of the nearest neighbours ({recall.low:.2%} to {recall.high:.2%})"
    return rows, graph, (f"approximate: the graph has {found}",)
