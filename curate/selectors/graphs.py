"""The k nearest neighbours of a pool's rows, as the sparse selectors use them."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from curate.selectors.geometry import members, subset
from curate.selectors.pool import Pool
from scoring.errors import InputError

if TYPE_CHECKING:
    from scoring.search.links import Graph


MOST = 64  # neighbours that a graph holds at most
LOST = 0.75  # share of the neighbours that may be missing; where more are, another graph is computed


def check_neighbours(k: int, exact_rows: int = 1) -> None:
    """Refuse a number of neighbours that no graph has, or of rows that are compared all with all.

    Raises:
        InputError: if k is not between 1 and 64, or there is no such row.
    """
    if not 1 <= k <= MOST:
        raise InputError(f"neighbours must be between 1 and {MOST}, got {k}")
    if exact_rows < 1:
        raise InputError(f"exact_rows must be at least 1, got {exact_rows}")


def computes_graph(selector: object, n_rows: int) -> bool:
    """Return whether a selector computes the graph of a pool of so many rows where none is brought along."""
    return hasattr(selector, "neighbours") and n_rows > getattr(selector, "exact_rows", 0)


def neighbours(pool: Pool, k: int, seed: int) -> tuple[NDArray[np.int64], "Graph", tuple[str, ...]]:
    """Return the rows that a selector looks at, the graph of their nearest neighbours, and how good it is.

    Args:
        pool: with vectors.
        k: neighbours of a row; fewer where there are not so many rows.
        seed: of the search beyond its exact range.

    Returns:
        Rows of the pool, ascending, shape (M,); the graph, whose indices are positions among them; notes.
    """
    from scoring.search.graph import knn_graph

    rows = members(pool.candidates, pool.labelled)
    k = min(k, len(rows) - 1)
    notes: tuple[str, ...] = ()
    if pool.graph is not None and pool.graph.index.shape[1] >= k:
        graph = _among(pool.graph, rows, k)
        lost = float((graph.index < 0).mean())
        if not lost:
            return rows, graph, _recall_note(graph)
        notes = (f"{lost:.2%} of the neighbours that the graph names are left out rows",)
        if lost <= LOST:
            return rows, graph, (f"approximate: {notes[0]}",)
        notes = (f"{notes[0]}: a graph of the {len(rows):,} others is computed",)
    graph = knn_graph(subset(pool.array("vectors"), rows), k, seed=seed)
    return rows, graph, (*notes, *_recall_note(graph))


def graph_of_rows(pool: Pool, rows: NDArray[np.int64]) -> tuple["Graph | None", tuple[str, ...]]:
    """Return the graph that a pool brings along, among some of its rows, and how good it is; None without one.

    Args:
        pool: with or without a graph.
        rows: of the pool, ascending, shape (M,); indices of the graph are positions among them.
    """
    graph = pool.graph
    if graph is None:
        return None, ()
    if len(rows) < len(graph.index):
        graph = _among(graph, rows, graph.index.shape[1])
    return graph, _recall_note(graph)


def not_looked_at(pool: Pool, n_rows: int) -> tuple[str, ...]:
    """Return a note on a graph that a pool of so few rows does not need."""
    if pool.graph is None:
        return ()
    return (f"the graph is not looked at: {n_rows:,} rows are few enough to be compared all with all",)


def _recall_note(graph: "Graph") -> tuple[str, ...]:
    recall = graph.recall
    if recall.exact:
        return ()
    share = f"{recall.estimate:.2%} of the nearest neighbours ({recall.low:.2%} to {recall.high:.2%})"
    return (f"approximate: the graph has {share}",)


def _among(graph: "Graph", rows: NDArray[np.int64], k: int) -> "Graph":
    """Return the nearest k neighbours of some rows among these rows; -1 where the graph knows no further one."""
    from scoring.search.links import Graph

    place = np.full(len(graph.index) + 1, -1, np.int32)  # the last is for no neighbour at all
    place[rows] = np.arange(len(rows))
    index, cosine = place[graph.index[rows]], graph.cosine[rows]
    if (index[:, :k] < 0).any():
        order = np.argsort(index < 0, axis=1, kind="stable")[:, :k]
        index, cosine = np.take_along_axis(index, order, axis=1), np.take_along_axis(cosine, order, axis=1)
    index, cosine = index[:, :k], cosine[:, :k]
    return Graph(np.ascontiguousarray(index), np.where(index < 0, np.float32(-np.inf), cosine), graph.recall)
