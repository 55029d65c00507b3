"""The k nearest other rows of every row, among any number of rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from scoring.metrics.neighbours import nearest
from scoring.search.centroids import Centroids
from scoring.search.inverted import ITERATIONS, InvertedLists, list_centroids
from scoring.search.kmeans import assign, spherical_kmeans
from scoring.search.links import MOST_NEIGHBOURS, Graph, Recall
from scoring.search.nearest import NearestSearch
from scoring.search.probes import MOST_PROBES, ProbeCounts, choose
from scoring.search.rows import Vectors, check_vectors, inverse_lengths, unit_rows, units_float32
from scoring.tasks import Shared, cuts, tasks_for

SAMPLE = 512  # rows compared with all rows: one half decides, the other reports
QUERIES = 16_384  # rows at a time, neighbours in the order of the lists


def knn_graph(
    vectors: Vectors,
    k: int,
    *,
    exact_rows: int = 50_000,
    recall: float = 0.99,
    seed: int = 0,
) -> Graph:
    """Return the k rows with the highest cosine to each row, without itself.

    Up to ``exact_rows`` rows all are compared with all, by the search that the metrics use: it settles cosines that are
    too close to call in float64, and equal ones go to the lower row. Beyond, a row is compared with the rows of the few
    inverted lists nearest to it; how few, and which share of the neighbours that finds, is measured on rows drawn at
    random. Rows of length zero have no neighbour and are no row's neighbour.

    Memory: the graph, 8 N k bytes, and where it is exact the rows in float32, 4 N D bytes; blocks are added to that.

    Args:
        vectors: shape (N, D), float16, float32 or int8, of any length; may be a memory map.
        k: neighbours, 1 <= k <= 64; where there are fewer others, the rest is -1.
        exact_rows: the most rows that are compared with all.
        recall: share of neighbours that the choice of probes aims at, 0 < recall < 1.
        seed: of the lists and of the sample.

    Raises:
        ValueError: if an argument is out of range, or a row holds NaN or infinity; names the row.
    """
    check_vectors(vectors)
    if not 1 <= k <= MOST_NEIGHBOURS or not 0 < recall < 1:
        raise ValueError(f"k must be between 1 and {MOST_NEIGHBOURS} and recall in (0, 1), got {k} and {recall}")
    centroids = list_centroids(vectors, exact_rows=exact_rows, seed=seed)
    if centroids is None:
        return _exact_graph(vectors, k)
    lists = InvertedLists.by_centroids(vectors, _near_together(centroids, seed))
    index = np.full((len(vectors), k), -1, np.int32)
    cosine = np.full((len(vectors), k), -np.inf, np.float32)
    if not len(lists.rows):
        return Graph(index, cosine, Recall.of_everything())
    search = NearestSearch(vectors, lists)
    probes, measured = choose_lists(search, k, recall, seed)
    for rows, near, value in _neighbours_of_all(search, k, probes):
        index[rows], cosine[rows] = near, value
    return Graph(index, cosine, measured)


@dataclass(frozen=True)
class Neighbouring:
    """A task: the k nearest rows of those at ``start`` to ``stop`` in the lists, in the lists they search.

    Attributes:
        vectors: the table, shape (N, D).
        inverse: one over the length of each row, shape (N,).
        home: the list of each row, as in ``InvertedLists``.
        centroids: of the lists.
        order: as in ``InvertedLists``.
        start: of ``InvertedLists.rows``.
        stop: the same.
        k: neighbours.
        probes: lists that each row looks at.
    """

    vectors: Shared[Vectors]
    inverse: Shared[NDArray[np.float64]]
    home: Shared[NDArray[np.int32]]
    order: Shared[NDArray[np.int64]]
    centroids: Centroids
    start: int
    stop: int
    k: int
    probes: int


RowNeighbours = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]


def neighboured(task: Neighbouring) -> list[RowNeighbours]:
    """Return rows, their neighbours and the cosines of these, block by block."""
    lists = InvertedLists(task.home.value, len(task.centroids), task.centroids, order=task.order.value)
    search, blocks = NearestSearch(task.vectors.value, lists, task.inverse.value), []
    for start in range(task.start, task.stop, QUERIES):  # list by list: they look at the same ones
        rows = lists.rows[start : min(start + QUERIES, task.stop)]
        blocks.append((rows, *search.neighbours(rows, task.k, task.probes)))
    return blocks


def _neighbours_of_all(search: NearestSearch, k: int, probes: int) -> Iterator[RowNeighbours]:
    """Yield rows, their neighbours and cosines, by the caller that runs tasks."""
    lists, vectors = search.lists, search.vectors
    if lists.centroids is None:
        raise ValueError("expected centroids for lists: not all rows are compared with all")
    compared = float(vectors.shape[1]) * probes * len(lists.rows) / lists.n_lists  # products of a row, about
    tasks = tasks_for(compared * len(lists.rows))
    share = tasks.shared
    middle = lists.centroids.shared_by(tasks)
    held = (share(vectors), share(search.inverse), share(lists.home), share(lists.order), middle)
    parts = cuts(len(lists.rows), QUERIES, compared, tasks.grain or 1)  # here block by block: results are large
    some = (Neighbouring(*held, start, stop, k, probes) for start, stop in parts)
    for blocks in tasks.run(neighboured, some):
        yield from blocks


def _exact_graph(vectors: Vectors, k: int) -> Graph:
    """Return the exact graph of few rows."""
    index = np.full((len(vectors), k), -1, np.int32)
    cosine = np.full((len(vectors), k), -np.inf, np.float32)
    inverse = inverse_lengths(vectors)
    rows = np.flatnonzero(inverse)
    width = min(k, len(rows) - 1)
    if width > 0:
        points = torch.from_numpy(units_float32(vectors, inverse, rows))
        near, at = nearest(points, points, width, same=True)
        index[rows, :width], cosine[rows, :width] = rows[at.numpy()], near.clamp(max=1).numpy()
    return Graph(index, cosine, Recall.of_everything())


def _near_together(centroids: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """Return centroids in an order with near ones next to each other, so that rows of a block share lists."""
    coarse = spherical_kmeans(centroids, max(1, int(len(centroids) ** 0.5)), seed=seed, iterations=ITERATIONS)
    return centroids[np.argsort(assign(centroids, coarse)[0][:, 0], kind="stable")]


def choose_lists(search: NearestSearch, k: int, share: float, seed: int) -> tuple[int, Recall]:
    """Return the number of lists to search for a given recall on sampled rows, and the recall.

    Args:
        search: of the table; how its rows look for lists is set.
        k: neighbours of each.
        share: of the neighbours that are to be found, in (0, 1).
        seed: of the rows, which are compared with all.
    """
    rows = np.random.default_rng([seed, 2]).permutation(search.lists.rows)[:SAMPLE]
    index = search.neighbours(rows, k, None)[0]
    query, place = np.nonzero(index >= 0)
    home, units = search.lists.home[index[query, place]], unit_rows(search.vectors[rows], numbers=rows).units

    def counts(lists: InvertedLists) -> NDArray[np.int64]:
        pairs = ProbeCounts(lists.probed(units, min(MOST_PROBES, lists.n_lists)), lists.n_lists)
        pairs.add(query, home)
        return pairs.counts

    search.lists, probes, recall = choose(search.lists, counts, share)
    return probes, recall
