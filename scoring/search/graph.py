"""The k nearest other rows of every row, among any number of rows."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from scoring.metrics.neighbours import nearest
from scoring.search.kmeans import assign, spherical_kmeans
from scoring.search.links import Recall
from scoring.search.rows import Vectors, check_vectors, inverse_lengths, units_float32
from scoring.search.shelves import Shelves

MOST_NEIGHBOURS = 64
CLUSTER = 500  # rows a cluster has on average
ROOTS = 4  # but no more clusters than this many times the root of N
ITERATIONS = 6
MOST_PROBES = 64
SAMPLE = 512  # rows compared with all rows: one half decides, the other reports
QUERIES = 16_384  # rows at a time, neighbours in the order of the clusters


@dataclass(frozen=True)
class Graph:
    """The neighbours of N rows, the nearest first.

    Attributes:
        index: rows, shape (N, k), int32; -1 where there is no further row, and for a row of length zero.
        cosine: to each, shape (N, k), float32; -inf where ``index`` is -1.
        recall: share of the true k nearest that are there.
    """

    index: NDArray[np.int32]
    cosine: NDArray[np.float32]
    recall: Recall


def knn_graph(
    vectors: Vectors,
    k: int,
    *,
    exact_rows: int = 50_000,
    recall: float = 0.99,
    seed: int = 0,
) -> Graph:
    """Return the k rows of the highest cosine to each row, itself left out.

    Up to ``exact_rows`` rows all are compared with all, by the search that the metrics use: it settles cosines that are
    too close to call in float64, and equal ones go to the lower row. Beyond, a row is compared with the rows of the few
    clusters nearest to it; how few, and which share of the neighbours that finds, is measured on rows drawn at random.
    Rows of length zero have no neighbour and are nobody's.

    Memory: the graph, 8 N k bytes, and where it is exact the rows in float32, 4 N D bytes; blocks beside.

    Args:
        vectors: shape (N, D), float16, float32 or int8, of any length; may be a memory map.
        k: neighbours, 1 <= k <= 64; where there are fewer others, the rest is -1.
        exact_rows: the most rows that are compared with all.
        recall: share of neighbours that the choice of clusters aims at, 0 < recall < 1.
        seed: of the clusters and of the sample.

    Raises:
        ValueError: if an argument is out of range, or a row holds NaN or infinity; names the row.
    """
    check_vectors(vectors)
    if not 1 <= k <= MOST_NEIGHBOURS or not 0 < recall < 1:
        raise ValueError(f"k must be between 1 and {MOST_NEIGHBOURS} and recall in (0, 1), got {k} and {recall}")
    n_clusters = min(len(vectors) // CLUSTER, ROOTS * int(len(vectors) ** 0.5))
    if len(vectors) <= exact_rows or n_clusters < 2:
        return _exact_graph(vectors, k)
    middle = _near_together(spherical_kmeans(vectors, n_clusters, seed=seed, iterations=ITERATIONS), seed)
    shelves = Shelves(vectors, assign(vectors, middle)[0][:, 0], middle)
    index = np.full((len(vectors), k), -1, np.int32)
    cosine = np.full((len(vectors), k), -np.inf, np.float32)
    if not len(shelves.order):
        return Graph(index, cosine, Recall.of_everything())
    probes, measured = _choose_probes(shelves, k, recall, seed)
    for start in range(0, len(shelves.order), QUERIES):  # cluster by cluster: they look at the same ones
        rows = shelves.order[start : start + QUERIES]
        index[rows], cosine[rows] = shelves.neighbours(rows, k, probes)
    return Graph(index, cosine, measured)


def _exact_graph(vectors: Vectors, k: int) -> Graph:
    """Return the graph of few rows: all are compared with all."""
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
    """Return centroids in an order in which near ones follow one another: rows of a block look at the same clusters."""
    coarse = spherical_kmeans(centroids, max(1, int(len(centroids) ** 0.5)), seed=seed, iterations=ITERATIONS)
    return centroids[np.argsort(assign(centroids, coarse)[0][:, 0], kind="stable")]


def _choose_probes(shelves: Shelves, k: int, wanted: float, seed: int) -> tuple[int, Recall]:
    """Return how many clusters to look at, and the share of neighbours that this finds: of rows that meet all rows."""
    most = min(MOST_PROBES, shelves.n_clusters)
    rows = np.random.default_rng([seed, 2]).permutation(shelves.order)[:SAMPLE]
    index = shelves.neighbours(rows, k, None)[0]
    probed = shelves.probed(rows, most)
    known = index >= 0
    home = np.where(known, shelves.home[index], -1)
    rank = np.where(known, np.full(index.shape, most), most + 1)  # most + 1: no neighbour at all
    for number in range(most - 1, -1, -1):
        rank[known & (home == probed[:, number : number + 1])] = number
    counts = np.stack([np.bincount(row, minlength=most + 2)[: most + 1] for row in rank])
    share = counts[0::2, :most].sum(0).cumsum() / max(1, counts[0::2].sum())
    reached = np.flatnonzero(share >= wanted)
    probes = int(reached[0]) + 1 if len(reached) else most
    reporting = counts[1::2]
    return probes, Recall.of_sample(reporting[:, :probes].sum(1), reporting.sum(1))
