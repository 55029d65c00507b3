"""Spherical k-means: directions that rows cluster around, and the nearest of them for each row."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.search.centroids import LOOKED_AT, ROWS, Centroids, Near, groups_of
from scoring.search.rows import BLOCK, Vectors, check_vectors, unit_rows
from scoring.tasks import IN_PROCESS, Held, Shared, Tasks, cuts, tasks_for

PER_CENTROID = 64  # rows that train one centroid, by default
MOST_PER_CENTROID = 256  # more of them move a centroid no further
FLAT = 4096  # centroids; more of them are trained, and found by the rows of a search, by way of groups


def spherical_kmeans(
    vectors: Vectors,
    k: int,
    *,
    seed: int,
    iterations: int = 10,
    sample: int | None = None,
    order: NDArray[np.int64] | None = None,
    device: str | None = None,
) -> NDArray[np.float32]:
    """Return k unit vectors, each the mean direction of its nearest rows.

    They are trained on a sample of the rows, of which every one that has a length counts the same. A cluster that
    lost all its rows starts again from a random one. More than 4,096 clusters find most of the rows that are nearest
    to them, and not all. Memory: the sample in bfloat16, whatever N.

    Args:
        vectors: shape (N, D), float16, float32 or int8, of any length; may be a memory map.
        k: clusters, 1 <= k <= N.
        seed: of the sample and of the start.
        iterations: at most; it ends earlier when no row changes its cluster.
        sample: rows to train on; by default 64 a cluster, and never more than 256 a cluster.
        order: rows in an order that does not depend on their place, shape (N,), such as by a hash of their keys;
            then neither does the sample. By default the order of the rows.
        device: where products are made; the processor by default.

    Returns:
        Shape (k, D), float32, of length 1. Where fewer than k rows differ, some are equal; where all rows are zero,
        so are they.

    Raises:
        ValueError: if k or the sample is out of range, or a sampled row is not finite.

    Source: Dhillon & Modha 2001, "Concept decompositions for large sparse text data using clustering".
    """
    check_vectors(vectors)
    if not 1 <= k <= len(vectors):
        raise ValueError(f"k must be between 1 and {len(vectors)} (rows), got {k}")
    n_sample = k * PER_CENTROID if sample is None else sample
    if n_sample < 1 or iterations < 1:
        raise ValueError(f"sample and iterations must be >= 1, got {n_sample} and {iterations}")
    generator = np.random.default_rng(seed)
    units = _sampled(vectors, min(max(n_sample, k), k * MOST_PER_CENTROID, len(vectors)), order, generator).to(device)
    if not len(units):
        return np.zeros((k, vectors.shape[1]), np.float32)
    start = generator.permutation(len(units))[np.arange(k) % len(units)]
    centroids = _unit(units[torch.from_numpy(start).to(units.device)].float())
    before, table = None, None
    for _ in range(iterations):
        middle = in_groups(centroids, seed)
        table = table or _tasks_of(units, middle).shared(units)
        label = nearest_centroids(units, middle, shared=table)[0][:, 0]
        if before is not None and torch.equal(label, before):
            break
        centroids, before = _means(units, label, k, generator), label
    return centroids.cpu().numpy()


def in_groups(centroids: Tensor, seed: int) -> Centroids:
    """Return centroids, shape (k, D), float32, grouped by proximity if there are more than 4,096."""
    if len(centroids) <= FLAT:
        return Centroids(Held(centroids))
    plain, n_groups = centroids.cpu().numpy(), math.isqrt(len(centroids))
    heads = spherical_kmeans(plain, n_groups, seed=seed)
    used, home = np.unique(assign(plain, heads)[0][:, 0].clip(min=0), return_inverse=True)
    heads = heads[used]  # of equal ones a single one has all members, and no row may look at the others instead
    order, starts = groups_of(home, len(used))
    numbers = torch.from_numpy(order).to(centroids.device)
    on_device = torch.from_numpy(heads).to(centroids.device)
    return Centroids(Held(centroids), Held(on_device), Held(centroids[numbers]), Held(numbers), starts, LOOKED_AT)


def assign(
    vectors: Vectors, centroids: NDArray[np.float32] | Centroids, probes: int = 1, *, device: str | None = None
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the nearest centroids of each row, nearest first.

    Products are made in bfloat16: a cosine is right to about 0.01, and of two that are closer than that either may
    come first.

    Args:
        vectors: shape (N, D), float16, float32 or int8, of any length; may be a memory map.
        centroids: unit vectors, shape (k, D); or in groups, on the device, of which most of the nearest are found.
        probes: how many centroids a row gets, 1 <= probes <= k.
        device: where products are made; the processor by default.

    Returns:
        Indices, shape (N, probes), int32, -1 for a row of length zero; cosines, float32, -inf for such a row.

    Raises:
        ValueError: if ``probes`` is out of range, or a row is not finite.
    """
    check_vectors(vectors)
    if not 1 <= probes <= len(centroids):
        raise ValueError(f"probes must be between 1 and {len(centroids)} (centroids), got {probes}")
    index = np.full((len(vectors), probes), -1, np.int32)
    cosine = np.full((len(vectors), probes), -np.inf, np.float32)
    if not isinstance(centroids, Centroids):
        centroids = Centroids(Held(torch.from_numpy(centroids).to(device)))
    tasks = tasks_for(centroids.products * len(vectors)) if device in (None, "cpu") else IN_PROCESS
    table, middle = tasks.shared(vectors), centroids.shared_by(tasks)
    parts = cuts(len(vectors), BLOCK, centroids.products, tasks.grain)
    some = (Assigning(table, middle, start, stop, probes) for start, stop in parts)
    for start, best, value in (part for parts in tasks.run(assigned, some) for part in parts):
        index[start : start + len(best)], cosine[start : start + len(best)] = best, value
    return index, cosine


@dataclass(frozen=True)
class Assigning:
    """A task: the nearest centroids of rows ``start`` to ``stop`` of a table (N, D)."""

    vectors: Shared[Vectors]
    centroids: Centroids
    start: int
    stop: int
    probes: int


def assigned(task: Assigning) -> list[tuple[int, NDArray[np.int32], NDArray[np.float32]]]:
    """Return the first row of each block, and the result of ``assign`` for its rows."""
    vectors, device, blocks = task.vectors.value, task.centroids.vectors.value.device, []
    for start in range(task.start, task.stop, BLOCK):
        stop = min(start + BLOCK, task.stop)
        rows = unit_rows(vectors[start:stop], numbers=range(start, stop))
        index = np.full((stop - start, task.probes), -1, np.int32)
        cosine = np.full((stop - start, task.probes), -np.inf, np.float32)
        usable = rows.squares > 0
        best, value = task.centroids.nearest(rows.units.to(device), task.probes)
        index[usable], cosine[usable] = best.cpu().numpy()[usable], value.float().cpu().numpy()[usable]
        blocks.append((start, index, cosine))
    return blocks


def nearest_centroids(
    units: Tensor, centroids: Centroids, probes: int = 1, *, shared: Shared[Tensor] | None = None
) -> Near:
    """Return index and cosine of the centroids nearest to unit rows, shape (N, probes) each.

    Args:
        units: shape (N, D), bfloat16, on the device of the centroids.
        centroids: of the caller that looks.
        probes: how many of them.
        shared: the unit rows, where they are shared already.
    """
    tasks = _tasks_of(units, centroids)
    if tasks is IN_PROCESS:
        return centroids.nearest(units, probes)
    table, middle = shared or tasks.shared(units), centroids.shared_by(tasks)
    parts = cuts(len(units), ROWS, middle.products, tasks.grain)
    blocks = list(tasks.run(near_some, ((table, middle, start, stop, probes) for start, stop in parts)))
    return torch.cat([index for index, _ in blocks]), torch.cat([value for _, value in blocks])


def near_some(task: tuple[Shared[Tensor], Centroids, int, int, int]) -> Near:
    """Return ``nearest_centroids`` of the rows between two."""
    units, centroids, start, stop, probes = task
    return centroids.nearest(units.value[start:stop], probes)


def _tasks_of(units: Tensor, centroids: Centroids) -> Tasks:
    return tasks_for(len(units) * centroids.products) if units.device.type == "cpu" else IN_PROCESS


def _sampled(vectors: Vectors, size: int, order: NDArray[np.int64] | None, generator: np.random.Generator) -> Tensor:
    """Return ``size`` random rows at unit length, bfloat16, without zero rows."""
    rows = np.sort(generator.choice(len(vectors), size, replace=False)) if size < len(vectors) else np.arange(size)
    rows = rows if order is None else order[rows]
    units = torch.empty((size, vectors.shape[1]), dtype=torch.bfloat16)
    kept = 0
    for start in range(0, size, BLOCK):
        chosen = rows[start : start + BLOCK]
        block = unit_rows(vectors[chosen], numbers=chosen)
        usable = block.units[torch.from_numpy(block.squares > 0)]
        units[kept : kept + len(usable)] = usable
        kept += len(usable)
    return units[:kept]


def _means(units: Tensor, label: Tensor, k: int, generator: np.random.Generator) -> Tensor:
    """Return the mean direction of each cluster; a random row's if it has none."""
    sums = torch.zeros((k, units.shape[1]), device=units.device)
    for start in range(0, len(units), BLOCK):
        sums.index_add_(0, label[start : start + BLOCK], units[start : start + BLOCK].float())
    lost = (sums.norm(dim=1) < 1e-6).nonzero().flatten()
    fresh = torch.from_numpy(generator.integers(0, len(units), len(lost))).to(units.device)
    sums[lost] = units[fresh].float()
    return _unit(sums)


def _unit(rows: Tensor) -> Tensor:
    """Return rows divided by their lengths, which are above zero."""
    return rows / rows.norm(dim=1, keepdim=True)
