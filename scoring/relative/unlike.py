"""Groups of images unlike the rest: sets of rows that one direction separates by a wide margin.

A group starts as a branch of a dendrogram (Ward 1963) of embeddings and visual features. Its rows are then reassigned
by Fisher's discriminant against the rest, until nothing changes or for 10 rounds; the bound is equally many standard
deviations from both means (Anderson and Bahadur 1962). So a domain with several classes is one group, and results
depend neither on a seed nor on the row order. Whether a group belongs to the dataset cannot be known from the images:
groups are reported, and only dropped on request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Floats
from scoring.metrics.ranking import auroc
from scoring.search.kmeans import MOST_PER_CENTROID, assign, spherical_kmeans

SIZES = (4, 6, 8, 10, 12, 15, 18, 21, 25, 30)
ROWS_A_CLUSTER = 4  # minimal mean number of rows per cluster
ITERATIONS = 20
FINE, FINE_ROWS = (8, 60), 25  # minimal and maximal number of fine clusters, and rows per cluster

Centroids = Mapping[int, NDArray[np.float32]]
Inside = NDArray[np.bool_]

MOST_GROUPS = 3
LEAST_ROWS, LEAST_SHARE = 5, 0.01  # rows of a group, and their share
LARGEST, MOST_LISTED = 0.2, 0.25  # share of the rows in one group, and in all
LEAST_APART = 0.95
APART_WEIGHT = 6.0  # weight of the log distance of a group, relative to its separation in standard deviations
LEAST_SCORE, OF_BEST = 2.0, 0.6  # minimal score of a listed group, absolute and relative to the best group
OVERLAP = 0.5  # largest share of a group's rows in earlier groups
DIMENSIONS, ROWS_A_DIMENSION = 64, 10  # maximal number of principal components, and minimal rows per component
SHRINKAGE = 0.05  # share of the mean variance added to all components
LEAST_BOUND, MOST_BOUND = 0.4, 0.9  # bounds of the threshold, between the mean of the rest (0) and the group's (1)
ROUNDS = 10
RIDGE = 0.02


def cluster_centres(units: NDArray[np.float32], *, seed: int = 0) -> Centroids:
    """Return the centres of a clustering at each size that the dataset allows: k -> shape (k, D).

    From centred rows (N, D) of unit length; deterministic for the same row order and seed.
    """
    possible = [k for k in SIZES if k * ROWS_A_CLUSTER <= len(units)]
    return {
        k: spherical_kmeans(units, k, seed=seed + k, iterations=ITERATIONS, sample=k * MOST_PER_CENTROID)
        for k in possible
    }


def fine_clusters(units: NDArray[np.float32], *, seed: int = 0) -> NDArray[np.float32]:
    """Return the centres of the clusters that rows are assigned to, (k, D): about 25 rows each, 8 to 60 clusters."""
    k = min(int(np.clip(len(units) // FINE_ROWS, *FINE)), len(units))
    return spherical_kmeans(units, k, seed=seed, iterations=ITERATIONS, sample=k * MOST_PER_CENTROID)


def labels_of(units: NDArray[np.float32], centres: Centroids) -> NDArray[np.int32]:
    """Return the cluster of each row in each clustering, shape (N, S); -1 for a zero row."""
    if not centres:
        return np.zeros((len(units), 0), np.int32)
    return np.stack([assign(units, middle)[0][:, 0] for middle in centres.values()], axis=1)


@dataclass(frozen=True)
class UnlikeGroup:
    """A group of images unlike the rest.

    Attributes:
        direction: direction and bound, shape (D + 1,), float32: rows whose inner product is above the bound are in the
            group.
        rows: indices of its rows in the sample that are in no earlier group.
        apart: median distance of its rows to the nearest row outside, relative to the typical distance between
            clusters.
        auroc: leave-one-out AUROC of a linear classifier on visual features, group against rest.
        nearest: the outside cluster that is nearest to most of its rows.
        score: ranks groups, higher is more unlike.
    """

    direction: NDArray[np.float32]
    rows: int
    apart: float
    auroc: float
    nearest: int
    score: float

    def to_json(self) -> dict[str, Any]:
        """Return the group as plain JSON for a table."""
        return {"apart": round(self.apart, 3), "auroc": round(self.auroc, 3), "nearest_cluster": self.nearest}


def unlike_groups(units: NDArray[np.float32], cluster: NDArray[np.int32], looks: Floats) -> list[UnlikeGroup]:
    """Return at most 3 groups of images unlike the rest, most unlike first; independent of the row order.

    Time and memory grow with N squared: use a sample of a few thousand rows.

    Args:
        units: centred rows of length 1, shape (N, D).
        cluster: of each row, shape (N,), to name the nearest cluster; -1 for a zero row.
        looks: scaled visual features, shape (N, F); without any, no group is returned, since distance alone finds
            classes.
    """
    from scipy.cluster.hierarchy import fcluster, linkage  # type: ignore[import-untyped]

    known = cluster >= 0
    units, cluster, looks = units[known], cluster[known], looks[known]
    n = len(units)
    if n < 2 * LEAST_ROWS or not looks.shape[1]:
        return []
    components, axes = _principal(units)
    if not components.any():
        return []
    tree = linkage(np.concatenate([_normalised(components), _normalised(looks - looks.mean(0))], axis=1), "ward")
    inside, directions = _reassigned(components, axes, _branches(tree, n))
    cosine = units @ units.T
    label = fcluster(tree, int(np.clip(n // FINE_ROWS, *FINE)), "maxclust")
    usual = float(np.median(np.concatenate([_nearest_outside(cosine, label == each)[0] for each in np.unique(label)])))
    if usual <= 0:
        return []
    groups = []
    for place in range(len(directions)):
        distance, row = _nearest_outside(cosine, inside[:, place])
        apart = float(np.median(distance)) / usual
        if apart < LEAST_APART:
            continue
        area = left_out_auroc(looks, inside[:, place])
        score = separation(area) + APART_WEIGHT * float(np.log(apart))
        near = int(np.bincount(cluster[row]).argmax())
        groups.append(UnlikeGroup(directions[place], len(distance), apart, area, near, score))
    return _best_groups(groups, units)


def group_numbers(units: NDArray[np.float32], directions: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return the index, from 1, of the first group that contains each row, or 0; shape (N,).

    Args:
        units: centred rows of length 1, shape (N, D).
        directions: of G groups, each with its bound, shape (G, D + 1).
    """
    if not len(directions):
        return np.zeros(len(units), np.int32)
    inside = units @ directions[:, :-1].T > directions[:, -1]
    return np.where(inside.any(1), inside.argmax(1) + 1, 0).astype(np.int32)


def directions_of(groups: Sequence[UnlikeGroup], width: int) -> NDArray[np.float32]:
    """Return the directions of groups with their bounds, shape (G, D + 1), for embeddings of width D."""
    return np.array([each.direction for each in groups], np.float32).reshape(len(groups), width + 1)


def separation(area: float) -> float:
    """Return the distance, >= 0, in standard deviations of two equal-variance normals with a given AUROC.

    >>> round(separation(0.92), 2)
    1.99
    """
    return float(np.sqrt(2) * NormalDist().inv_cdf(min(max(area, 0.5), 0.9995)))


def _best_groups(groups: list[UnlikeGroup], units: NDArray[np.float32]) -> list[UnlikeGroup]:
    """Return the highest-ranked groups that mostly contain rows of no earlier group, with these rows."""
    least = max([LEAST_SCORE, *(OF_BEST * each.score for each in groups)])
    good = sorted((each for each in groups if each.score >= least), key=lambda each: (-each.score, -each.rows))
    listed: list[UnlikeGroup] = []
    taken = np.zeros(len(units), bool)
    for group in good:
        inside = group_numbers(units, group.direction[None]) > 0
        new = inside & ~taken
        if new.sum() < (1 - OVERLAP) * inside.sum() or (taken | inside).sum() > MOST_LISTED * len(units):
            continue
        listed.append(replace(group, rows=int(new.sum())))
        taken |= inside
        if len(listed) == MOST_GROUPS:
            break
    return listed


def _principal(units: NDArray[np.float32]) -> tuple[Floats, Floats]:
    """Return the principal components of rows, shape (N, P), and the affine map to them, shape (D + 1, P)."""
    mean = units.mean(0, dtype=np.float64)
    moved = units - mean
    count = max(1, min(DIMENSIONS, units.shape[1], len(units) // ROWS_A_DIMENSION))
    axes = np.linalg.eigh(moved.T @ moved)[1][:, ::-1][:, :count]
    return moved @ axes, np.concatenate([axes, -(mean @ axes)[None]])


def _normalised(rows: Floats) -> Floats:
    """Return rows scaled to a mean squared norm of 1."""
    return rows / max(float(np.sqrt(np.square(rows).sum(1).mean())), 1e-12)


def _branches(tree: Floats, n: int) -> Inside:
    """Return the rows of every branch of a dendrogram of N rows that may form a group, as a mask (N, B)."""
    rows = [[row] for row in range(n)]
    branches = []
    for first, second, _, size in tree:
        small = size <= LARGEST * n
        rows.append(rows[int(first)] + rows[int(second)] if small else [])
        if small and size >= max(LEAST_ROWS, LEAST_SHARE * n):
            branches.append(rows[-1])
    inside = np.zeros((n, len(branches)), bool)
    for place, branch in enumerate(branches):
        inside[branch, place] = True
    return inside


def _reassigned(components: Floats, axes: Floats, inside: Inside) -> tuple[Inside, NDArray[np.float32]]:
    """Return groups that a direction separates from the rest, (N, G), without repeats, and directions, (G, D + 1).

    For whitened rows, Fisher's discriminant is the difference of the means. The bound is equally many standard
    deviations from both means.

    Args:
        components: of the rows, shape (N, P).
        axes: the affine map to the components, shape (D + 1, P).
        inside: initial groups as a mask, shape (N, B).
    """
    variance = np.square(components).mean(0)
    scale = 1 / np.sqrt(variance + SHRINKAGE * variance.mean())
    white = components * scale
    for _ in range(ROUNDS):
        ways, inner, outer = _discriminants(white, inside)
        before, inside = inside, white @ ways > (inner + outer) / 2
        if np.array_equal(before, inside):
            break
    ways, inner, outer = _discriminants(white, inside)
    value = white @ ways
    wide, narrow = _spread(value, ~inside, outer), _spread(value, inside, inner)
    between = np.clip(wide / np.maximum(wide + narrow, 1e-12), LEAST_BOUND, MOST_BOUND)  # equal rows have no spread
    bound = outer + between * (inner - outer)
    inside = value > bound
    directions = axes @ (ways * scale[:, None])
    directions[-1] = bound - directions[-1]
    possible = (inside.sum(0) >= LEAST_ROWS) & (inside.mean(0) <= LARGEST)
    inside, places = np.unique(inside[:, possible], axis=1, return_index=True)
    return inside, directions[:, possible][:, places].T.astype(np.float32)


def _discriminants(white: Floats, inside: Inside) -> tuple[Floats, Floats, Floats]:
    """Return the direction from the mean of the other rows to the group's mean, (P, G), and both means along it.

    From whitened rows (N, P) and a mask of the groups (N, G).
    """
    size = np.maximum(inside.sum(0), 1)
    inner, outer = white.T @ inside / size, white.T @ ~inside / np.maximum(len(white) - size, 1)
    ways = inner - outer
    return ways, (ways * inner).sum(0), (ways * outer).sum(0)


def _spread(value: Floats, inside: Inside, mean: Floats) -> Floats:
    """Return the standard deviation around ``mean`` of the values of each group's rows, shape (G,)."""
    return np.sqrt((np.square(value - mean) * inside).sum(0) / np.maximum(inside.sum(0), 1))


def _nearest_outside(cosine: NDArray[np.float32], inside: Inside) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return 1 - cosine of each row inside to the nearest row outside, and the index of that row."""
    outside = np.flatnonzero(~inside)
    between = cosine[np.ix_(inside, ~inside)]
    return 1 - between.max(1, initial=-1), outside[between.argmax(1)]


def left_out_auroc(looks: Floats, inside: Inside) -> float:
    """Return the leave-one-out AUROC of a ridge discriminant (Allen 1974, PRESS)."""
    wide = np.concatenate([looks, np.ones((len(looks), 1))], axis=1)
    target = np.where(inside, 1.0, -1.0)
    weighted = wide * np.where(inside, 0.5 / inside.sum(), 0.5 / (~inside).sum())[:, None]
    inverse = np.linalg.inv(weighted.T @ wide + RIDGE * np.eye(wide.shape[1]))
    leverage = ((weighted @ inverse) * wide).sum(1)
    predicted = wide @ (inverse @ (weighted.T @ target))
    return auroc((predicted - leverage * target) / (1 - leverage), inside)
