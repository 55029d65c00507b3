"""One row per cluster: k-means and TypiClust."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.selectors.contract import Pool, Selection, Selector
from curate.selectors.geometry import members, spans, squared_distances, subset, unit
from curate.selectors.picking import picking
from scoring.arrays import Array, Floats, Ints, Mask
from scoring.settings import require_between

ROUNDS = 25  # iterations of k-means, at most
PER_CENTROID = 256  # rows that train one centroid, at most
SAMPLE = 262_144  # rows that train all of them, at most
TINY = 5  # clusters of at most this size come last
NEAR = 20  # number of neighbours for typicality
DOUBLE = 1_024  # cluster size up to which distances are in float64
LARGEST = 20_000  # maximal rows of a cluster for the neighbour search
AT_ONCE = 512  # rows whose distances are measured at a time
LITTLE = 1e-5  # added to a mean distance, so that copies have a finite typicality
ALONE = 1e5  # typicality of the only row of a cluster


@dataclass(frozen=True)
class Clusters:
    """Rows by cluster.

    Attributes:
        rows: clustered rows of the pool, ascending, shape (M,).
        of_row: cluster of each, shape (M,) int32; zero rows form a cluster.
        centroids: unit vectors, shape (k, D); zero for the cluster of zero rows, if any.
        sizes: rows of each cluster, shape (k,).
        labelled: labelled rows of each cluster, shape (k,).
    """

    rows: Ints
    of_row: NDArray[np.int32]
    centroids: NDArray[np.float32]
    sizes: Ints
    labelled: Ints


@dataclass(frozen=True)
class KMeans(Selector):
    """Pick the row nearest to each centroid of a k-means clustering; gains are cluster sizes.

    There are as many clusters as picks and labelled rows together, up to ``most_clusters``, so enough of them have no
    labelled row. Clusters with the fewest labelled or picked rows come first, larger ones before smaller ones, and each
    gives its unpicked candidate nearest to the centroid. Spherical k-means on at most 256 rows per cluster and 262,144
    in all, at most 25 iterations. Picks of a smaller budget are no prefix of a larger one's.

    Source: Pourahmadi et al. 2021, arXiv:2110.12033, where it wins with few labels; skipping labelled clusters is as in
    TypiClust, not as in their method.
    """

    most_clusters: int = 4_096
    needs: ClassVar[tuple[str, ...]] = ("vectors",)
    prefix: ClassVar[bool] = False
    cost: ClassVar[str] = (
        "O(NkD) to assign, k = min(K + L, 4,096) clusters; 262,144 rows in bfloat16, and 16 bytes a row"
    )

    def __post_init__(self) -> None:
        require_between("most_clusters", self.most_clusters, 1)

    def _pick(self, pool: Pool, budget: int, seed: int) -> Selection:
        clusters, vectors = cluster(pool, min(budget + len(pool.labelled), self.most_clusters), seed)

        def nearness(positions: NDArray[np.int32]) -> Floats:
            centroid = clusters.centroids[clusters.of_row[positions[0]]].astype(np.float64)
            return np.concatenate(
                [unit(vectors[positions[span]], np.float64) @ centroid for span in spans(len(positions))]
            )

        picks, notes = _visit(pool, clusters, budget, nearness, np.zeros(len(clusters.sizes), bool))
        size = clusters.sizes[clusters.of_row[picks]].astype(np.float64)
        return Selection(clusters.rows[picks], size, notes=notes)


@dataclass(frozen=True)
class TypiClust(Selector):
    """Pick the most typical row of each cluster; gains are typicalities. Intended for the first labels.

    There are as many clusters as picks and labelled rows together, up to ``most_clusters``. Clusters with the fewest
    labelled or picked rows come first, larger ones before smaller ones; clusters of 5 rows or fewer come last.
    Typicality is 1 over the mean distance to the nearest 20 unlabelled rows of the cluster, or half of its rows if
    fewer; in clusters of more than 20,000 rows, among a random 20,000. It is computed once per cluster: a second pick
    is the second most typical row. Picks of a smaller budget are no prefix of a larger one's.

    Source: Hacohen et al. 2022, arXiv:2202.02794, section 3.3; theirs recomputes it after each pick.
    """

    most_clusters: int = 500
    needs: ClassVar[tuple[str, ...]] = ("vectors",)
    prefix: ClassVar[bool] = False
    cost: ClassVar[str] = "O(NkD + N n D), k = min(K + L, 500) clusters of n rows; 0.2 GB and 16 bytes a row"

    def __post_init__(self) -> None:
        require_between("most_clusters", self.most_clusters, 1)

    def _pick(self, pool: Pool, budget: int, seed: int) -> Selection:
        clusters, vectors = cluster(pool, min(budget + len(pool.labelled), self.most_clusters), seed)
        typical = np.zeros(len(clusters.rows))
        drawn: list[int] = []

        def typicality_of(positions: NDArray[np.int32]) -> Floats:
            typical[positions] = typicality(vectors[positions], seed)
            if len(positions) > LARGEST:
                drawn.append(len(positions))
            return typical[positions]

        picks, notes = _visit(pool, clusters, budget, typicality_of, clusters.sizes <= TINY)
        more = (f"approximate: neighbours in {len(drawn)} clusters drawn",) if drawn else ()
        return Selection(clusters.rows[picks], typical[picks], notes=(*notes, *more))


def typicality(vectors: Array, seed: int) -> Floats:
    """Return 1 / (mean distance to the nearest min(20, n / 2) others + 1e-5), for the vectors (n, D) of a cluster.

    Higher is denser. With more than 20,000 rows, neighbours are searched in a random sample of that size.
    """
    count = len(vectors)
    if count == 1:
        return np.full(1, ALONE)
    others = np.arange(count)
    if count > LARGEST:
        others = np.sort(np.random.default_rng(seed).choice(count, LARGEST, replace=False))
    near = min(NEAR, max(1, len(others) // 2))
    precision = np.float64 if count <= DOUBLE else np.float32
    units, distance = unit(vectors[others], precision), np.zeros(count)
    for span in spans(count, AT_ONCE):
        gaps = squared_distances(unit(vectors[span], precision), units)
        itself = np.flatnonzero((others >= span.start) & (others < span.stop))
        gaps[others[itself] - span.start, itself] = np.inf
        gaps.partition(near - 1, axis=1)
        distance[span] = np.sqrt(gaps[:, :near]).mean(axis=1, dtype=np.float64)
    return 1 / (distance + LITTLE)


def grouped(vectors: Array, k: int, seed: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the cluster of each row, -1 for zero rows, shape (M,), and the k centroids, unit rows (k, D)."""
    from scoring.search.kmeans import assign, spherical_kmeans

    sample = min(PER_CENTROID * k, max(SAMPLE, k), len(vectors))
    centroids = spherical_kmeans(vectors, k, seed=seed, iterations=ROUNDS, sample=sample)
    return assign(vectors, centroids)[0][:, 0], centroids


def cluster(pool: Pool, k: int, seed: int) -> tuple[Clusters, Array]:
    """Return k clusters of all candidates and labelled rows, and the vectors of these rows, shape (M, D)."""
    rows = members(pool.candidates, pool.labelled)
    vectors = subset(pool.array("vectors"), rows)
    index, centroids = grouped(vectors, k, seed)
    of_row = np.where(index < 0, k, index).astype(np.int32)
    centroids = np.vstack([centroids, np.zeros((1, centroids.shape[1]), np.float32)])
    taken = np.isin(rows, pool.labelled, assume_unique=True)
    sizes = np.bincount(of_row, minlength=k + 1)
    return Clusters(rows, of_row, centroids, sizes, np.bincount(of_row[taken], minlength=k + 1)), vectors


def _best_last(positions: NDArray[np.int32], score: Floats) -> NDArray[np.int32]:
    """Return positions sorted by score, best last; scores equal in float32 put the lower row last."""
    return positions[np.argsort(-score.astype(np.float32), kind="stable")].astype(np.int32)[::-1]


def _visit(
    pool: Pool, clusters: Clusters, budget: int, score: Callable[[NDArray[np.int32]], Floats], last: Mask
) -> tuple[Ints, tuple[str, ...]]:
    """Return positions in the order picked: repeatedly one from the cluster with the fewest picks.

    Args:
        pool: of the rows.
        clusters: of its rows.
        budget: number of picks.
        score: positions of a cluster's unlabelled rows -> scores; higher is picked first.
        last: clusters that are used when all others are exhausted.
    """
    free = np.isin(clusters.rows, pool.candidates, assume_unique=True)
    order = np.argsort(clusters.of_row, kind="stable").astype(np.int32)
    until = np.cumsum(clusters.sizes)
    queue = [
        (bool(last[number]), int(clusters.labelled[number]), -int(size), number)
        for number, size in enumerate(clusters.sizes)
        if size > clusters.labelled[number]
    ]
    heapq.heapify(queue)
    waiting: dict[int, NDArray[np.int32]] = {}
    picks = np.empty(budget, np.int64)
    again = 0
    for position in picking(budget):
        small, count, size, number = heapq.heappop(queue)
        if number not in waiting:
            positions = order[until[number] + size : until[number]]
            positions = positions[free[positions]]
            waiting[number] = _best_last(positions, score(positions))
        again += count > 0
        picks[position], waiting[number] = waiting[number][-1], waiting[number][:-1]
        if len(waiting[number]):
            heapq.heappush(queue, (small, count + 1, size, number))
    if not again:
        return picks, ()
    return picks, (f"{again:,} of {budget:,} picks are from clusters that had a labelled or picked row already",)
