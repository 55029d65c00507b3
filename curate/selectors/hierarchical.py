"""Hierarchical k-means with resampling, and sampling balanced from the top of the hierarchy down."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.selectors.chance import turn_in_class
from curate.selectors.contract import Pool, Selection, Selector
from curate.selectors.geometry import members, subset
from scoring.arrays import Ints
from scoring.lookup import require_known
from scoring.settings import require_between

ROWS_A_CLUSTER = 16  # mean rows per cluster in small datasets
TRAINING = 262_144  # rows on which the finest clusters are found
MOST_RESAMPLED = 16  # maximal resampled rows per cluster
ROUNDS = 10  # iterations of each k-means, at most
PICKS = ("random", "closest")


@dataclass(frozen=True)
class Hierarchical(Selector):
    """Split picks evenly among clusters at each level of a hierarchy; gains are sizes of the finest cluster.

    k-means puts most clusters where most rows are. Here centroids are computed again, ``resamples`` times, from the few
    rows nearest to each earlier centroid, which spreads them evenly over the occupied space. Centroids are clustered in
    turn, up to ``levels``. Picks alternate between the clusters of the highest level, then between their sub-clusters,
    and so on: every prefix of the picks is balanced on every level, as far as rows suffice. Labelled rows count as
    picks. The finest level has at most ``most_clusters``, each further level ``branching`` times fewer. Clustering uses
    at most 262,144 rows.

    Args:
        levels: of clusters, >= 1. More levels come closer to uniform over the occupied space, including outliers.
        most_clusters: of the finest level.
        branching: clusters per cluster of the next level.
        resamples: repeated clusterings of each level; 0 is plain hierarchical k-means.
        pick: "random" rows of a finest cluster, or those "closest" to its centroid.

    Source: Vo et al. 2024, arXiv:2405.15613, algorithm 1 and section 3.3. Theirs divides a budget from the top down;
    alternating gives the same shares for every budget. Theirs uses Euclidean k-means, ours spherical.
    """

    levels: int = 2
    most_clusters: int = 4_096
    branching: int = 8
    resamples: int = 10
    pick: str = "random"
    needs: ClassVar[tuple[str, ...]] = ("vectors",)
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(NkD), k = min(N / 16, 4,096) clusters; 262,144 rows in bfloat16, and 60 bytes a row"

    def __post_init__(self) -> None:
        least = {"levels": 1, "most_clusters": 1, "branching": 2, "resamples": 0}
        for name, lowest in least.items():
            require_between(name, getattr(self, name), lowest)
        require_known(self.pick, PICKS, "unknown pick")

    def _pick(self, pool: Pool, budget: int, seed: int) -> Selection:
        rows = members(pool.candidates, pool.labelled)
        vectors = subset(pool.array("vectors"), rows)
        finest = max(1, min(self.most_clusters, len(rows) // ROWS_A_CLUSTER))
        sizes = [max(1, finest // self.branching**level) for level in range(self.levels)]
        home, nearness, parents = hierarchy(vectors, sizes, resamples=self.resamples, seed=seed)
        free = np.isin(rows, pool.candidates, assume_unique=True)
        taken = np.bincount(home[~free], minlength=sizes[0] + 1)
        first = -nearness[free] if self.pick == "closest" else None
        picks = np.flatnonzero(free)[balanced(home[free], parents, taken, first=first, seed=seed)[:budget]]
        size = np.bincount(home, minlength=sizes[0] + 1)
        return Selection(rows[picks], size[home[picks]].astype(np.float64))


def hierarchy(
    vectors: NDArray[np.floating], sizes: Sequence[int], *, resamples: int, seed: int
) -> tuple[NDArray[np.int32], NDArray[np.float32], list[NDArray[np.int32]]]:
    """Return the finest cluster of each row, its cosine to the centroid, and the parent of each cluster by level.

    Args:
        vectors: unit rows, shape (N, D), N >= 1; zero rows form a cluster on every level.
        sizes: clusters k of each level, finest first, non-increasing.
        resamples: repeated clusterings of each level.
        seed: of random draws.

    Returns:
        Cluster of each row, shape (N,), in [0, sizes[0]], the last for zero rows; cosines, shape (N,); and for each
        level except the highest, the parent of each cluster, shape (k + 1,).
    """
    from scoring.search.kmeans import assign

    generator = np.random.default_rng(seed)
    points, parents = vectors, []
    for level, k in enumerate(sizes):
        centroids = spread_centroids(points, k, resamples=resamples, generator=generator)
        index, cosine = assign(points, centroids)
        cluster = np.where(index[:, 0] < 0, k, index[:, 0]).astype(np.int32)
        if level == 0:
            home, nearness = cluster, cosine[:, 0]
        else:
            parents.append(np.append(cluster, np.int32(k)))
        points = centroids
    return home, nearness, parents


def spread_centroids(
    points: NDArray[np.floating], k: int, *, resamples: int, generator: np.random.Generator
) -> NDArray[np.float32]:
    """Return k centroids, shape (k, D), unit rows; more resampling makes them follow the density of points less.

    Args:
        points: shape (M, D), M >= k; a random 262,144 of them are used.
        k: number of clusters.
        resamples: number of repetitions on the points nearest to each centroid (half of the mean number, at most 16)
            instead of all.
        generator: of random draws.
    """
    from scoring.search.kmeans import assign, spherical_kmeans

    def clustered(some: NDArray[np.floating]) -> NDArray[np.float32]:
        seed = int(generator.integers(2**31))
        return spherical_kmeans(some, k, seed=seed, iterations=ROUNDS, sample=len(some))

    if len(points) > TRAINING:
        points = points[np.sort(generator.choice(len(points), max(TRAINING, k), replace=False))]
    centroids = clustered(points)
    n_resampled = min(MOST_RESAMPLED, len(points) // (2 * k))
    for _ in range(resamples if n_resampled > 1 else 0):  # one point per cluster would give the same centroids
        index, cosine = assign(points, centroids)
        near = nearest_of_each(index[:, 0], cosine[:, 0], n_resampled)
        if len(near) < k:
            break  # too few distinct points
        centroids = clustered(points[near])
    return centroids


def nearest_of_each(cluster: NDArray[np.int32], nearness: NDArray[np.float32], most: int) -> Ints:
    """Return the rows nearest to each centroid, at most ``most`` per cluster, ascending; none of cluster -1."""
    return np.flatnonzero((turn_in_class(cluster, -nearness) < most) & (cluster >= 0))


def balanced(
    home: NDArray[np.int32],
    parents: Sequence[NDArray[np.int32]],
    taken: Ints,
    *,
    first: NDArray[np.floating] | None = None,
    seed: int,
) -> Ints:
    """Return all rows in an order of which every prefix is shared evenly among clusters at each level.

    Args:
        home: finest cluster of each row, shape (N,).
        parents: parent of each cluster, level by level.
        taken: number of previous picks in each finest cluster, shape (k,).
        first: lower values are picked first in a cluster, shape (N,); None for a random order.
        seed: of the order of rows in a cluster, and of clusters with equal picks.
    """
    generator = np.random.default_rng([seed, 1])
    cell, rank = home, turn_in_class(home, generator.random(len(home)) if first is None else first)
    top = int(parents[-1].max()) + 1 if parents else len(taken)
    for parent in [*parents, np.zeros(top, np.int32)]:
        turn = rank + taken[cell]
        lot = generator.permutation(len(taken))[cell]
        cell = parent[cell]
        order = np.lexsort((lot, turn, cell))
        grouped = cell[order]
        rank[order] = np.arange(len(grouped)) - np.searchsorted(grouped, grouped)  # earlier rows of the same cell
        taken = np.bincount(parent, taken).astype(np.int64)
    return order
