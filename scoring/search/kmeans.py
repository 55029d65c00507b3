"""Spherical k-means: centroids of directions, and the nearest centroids of each row."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.search.rows import BLOCK, Vectors, check_vectors, padded, unit_rows
from scoring.tasks import IN_PROCESS, Held, Shared, Tasks, cuts, tasks_for

PRODUCTS = 4_194_304  # cosines at a time: 8 MB of bfloat16, which stays in the cache
LOOKED_AT = 12  # number of groups searched, more if needed
ROWS = 16_384  # rows per block with groups

Near = tuple[Tensor, Tensor]  # index (N, P), int64, and cosine (N, P), bfloat16, the nearest first
PER_CENTROID = 64  # rows that train one centroid, by default
MOST_PER_CENTROID = 256  # more rows per centroid do not improve it
FLAT = 4096  # centroids; more of them are trained, and found by the rows of a search, by way of groups


@dataclass(frozen=True)
class Centroids:
    """k centroids, grouped by proximity if there are many.

    Finding the nearest of k takes k products per row, through sqrt(k) groups only about 13 sqrt(k). The nearest may be
    in a group that is not searched: callers measure this loss on sampled rows, and search more groups.

    Attributes:
        vectors: shape (k, D), float32.
        heads: mean directions of the groups, shape (C, D), float32; None without groups.
        members: centroids sorted by group, shape (k, D), float32; None without groups.
        numbers: index of each member among ``vectors``, shape (k,), int64; None without groups.
        starts: first member of each group, and the end of the last.
        looked_at: number of groups that a row searches.
    """

    vectors: Shared[Tensor]
    heads: Shared[Tensor] | None = None
    members: Shared[Tensor] | None = None
    numbers: Shared[Tensor] | None = None
    starts: tuple[int, ...] = ()
    looked_at: int = LOOKED_AT

    def __len__(self) -> int:
        return len(self.vectors.value)

    @property
    def products(self) -> float:
        """Approximate number of products per row."""
        k, width = self.vectors.value.shape
        n_groups = len(self.starts) - 1
        return float(width * (k if n_groups < 1 else n_groups + self.looked_at * k // n_groups))

    def wider(self) -> Iterator["Centroids"]:
        """Yield these centroids, then versions that search twice as many groups each, up to all."""
        yield self
        n_groups, looked_at = len(self.starts) - 1, self.looked_at
        while looked_at < n_groups:
            looked_at = min(2 * looked_at, n_groups)
            yield replace(self, looked_at=looked_at)

    def shared_by(self, tasks: Tasks) -> "Centroids":
        """Return a version shared with tasks."""
        if tasks is IN_PROCESS:
            return self
        groups = (part and tasks.shared(part.value) for part in (self.heads, self.members, self.numbers))
        heads, members, numbers = groups
        return Centroids(tasks.shared(self.vectors.value), heads, members, numbers, self.starts, self.looked_at)

    def nearest(self, units: Tensor, probes: int = 1) -> Near:
        """Return index and cosine of the centroids nearest to unit rows, nearest first, shape (N, probes) each.

        ``units`` is (N, D), bfloat16, on the device of the centroids. The first result does not depend on ``probes``,
        even with ties, so that equal rows share a list.
        """
        index = torch.empty((len(units), probes), dtype=torch.long, device=units.device)
        value = torch.empty((len(units), probes), dtype=torch.bfloat16, device=units.device)
        for start in range(0, len(units), ROWS):
            block = slice(start, start + ROWS)
            some = units[block]
            if not self.starts:
                index[block], value[block] = self._nearest_of_all(some, probes)
                continue
            index[block], value[block] = self._nearest_of_groups(some, probes)
            short = value[block, -1].isneginf().nonzero().flatten()  # the searched groups have too few centroids
            if len(short):
                index[start + short], value[start + short] = self._filled(
                    some[short], index[block][short], value[block][short]
                )
        return index, value

    def _filled(self, units: Tensor, index: Tensor, value: Tensor) -> Near:
        """Complete the lists of nearest centroids of rows whose groups contained fewer than needed."""
        k, probes = len(self), index.shape[1]
        middle, parts = self.vectors.value.to(torch.bfloat16).T, []
        for some, known, cosine in zip(
            *(each.split(max(1, PRODUCTS // k)) for each in (units, index, value)), strict=True
        ):
            products = torch.mm(some, middle)
            rank = products.float()
            row, place = (~cosine.isneginf()).nonzero(as_tuple=True)
            rank[row, known[row, place]] = (2 + probes - place).float()  # found ones first, in their order
            at = _largest(rank, probes)[0]
            parts.append((at, products.gather(1, at)))
        return torch.cat([at for at, _ in parts]), torch.cat([cosine for _, cosine in parts])

    def _nearest_of_all(self, units: Tensor, probes: int) -> Near:
        """Return the nearest of all centroids."""
        middle = self.vectors.value.to(torch.bfloat16).T
        step = max(1, PRODUCTS // len(self))
        room = units.new_empty((min(step, len(units)), len(self)))  # one for all: freed blocks were not used again
        parts = [_largest(torch.mm(some, middle, out=room[: len(some)]), probes) for some in units.split(step)]
        return torch.cat([index for index, _ in parts]), torch.cat([value for _, value in parts])

    def _nearest_of_groups(self, units: Tensor, probes: int) -> Near:
        """Return the nearest centroids in the groups that unit rows search; -inf if these have fewer."""
        if self.heads is None or self.members is None or self.numbers is None:
            raise ValueError("there are no groups")
        n, looked_at = len(units), min(self.looked_at, len(self.starts) - 1)
        near = torch.mm(units, self.heads.value.to(torch.bfloat16).T).topk(looked_at, dim=1).indices  # (N, G)
        value = torch.full((n * looked_at, probes), -torch.inf, dtype=torch.bfloat16, device=units.device)
        index = torch.zeros((n * looked_at, probes), dtype=torch.int32, device=units.device)
        for start, stop, at in self._queries_by_group(near.flatten()):
            mine, members = units[at // looked_at], self.members.value[start:stop].to(torch.bfloat16)
            cosine = (padded(mine) @ padded(members).T)[: len(at), : stop - start]
            place, best = _largest(cosine, min(probes, stop - start))
            value[at, : best.shape[1]] = best
            index[at, : best.shape[1]] = self.numbers.value[start + place].int()
        value, index = value.view(n, looked_at, probes), index.view(n, looked_at, probes)
        first = value[:, :, 0].max(1, keepdim=True).indices * probes  # (N, 1), among G P
        flat = value.flatten(1)
        order = flat.scatter(1, first, torch.inf).topk(probes, dim=1).indices
        return index.flatten(1).gather(1, order).long(), flat.gather(1, order)

    def _queries_by_group(self, near: Tensor) -> list[tuple[int, int, Tensor]]:
        """Return the range of members of each group, and the entries of ``near`` (M,) that contain the group."""
        order = near.argsort(stable=True)
        until = torch.bincount(near, minlength=len(self.starts) - 1).cumsum(0).tolist()
        return [
            (start, stop, order[begin:end])
            for start, stop, begin, end in zip(self.starts, self.starts[1:], [0, *until], until, strict=False)
            if end > begin and stop > start
        ]


def _largest(cosine: Tensor, probes: int) -> Near:
    """Return index and value of the largest entries of each row of (B, k), which is overwritten; see ``topk``."""
    at, best = _first_largest(cosine)
    if probes == 1:
        return at, best
    further = cosine.scatter_(1, at, torch.inf).topk(probes, dim=1)
    return further.indices, torch.cat([best, further.values[:, 1:]], 1)


def _first_largest(cosine: Tensor) -> Near:
    """Return index and value of the largest entry of each row of (B, k), shape (B, 1) each; the first of equal ones.

    On the CPU this takes a fifth of the time of ``max`` in bfloat16: positive floats have the order of their bits as
    integers, and all others are smaller.
    """
    if cosine.dtype != torch.bfloat16 or cosine.device.type != "cpu":
        best, at = cosine.max(1, keepdim=True)
        return at, best
    at = torch.from_numpy(cosine.view(torch.int16).numpy().argmax(1)[:, None])
    best = cosine.gather(1, at)
    if len(others := (~(best > 0)).flatten().nonzero().flatten()):  # rows without a value above zero, or with NaN
        best[others], at[others] = cosine[others].max(1, keepdim=True)
    return at, best


def groups_of(home: NDArray[np.integer], n_groups: int) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Return the centroids sorted by group, shape (k,), and the first position of each group."""
    order = np.argsort(home, kind="stable").astype(np.int64)
    return order, tuple(np.searchsorted(home[order], np.arange(n_groups + 1)).tolist())


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

    Trained on a sample of the non-zero rows with equal weights. A cluster that lost all its rows is restarted at a
    random row. With more than 4,096 clusters the assignment is approximate. Memory: the sample in bfloat16.

    Args:
        vectors: shape (N, D), float16, float32 or int8, of any length; may be a memory map.
        k: number of clusters, 1 <= k <= N.
        seed: of the sample and of the start.
        iterations: maximal number; stops when no row changes its cluster.
        sample: number of training rows; by default 64 per cluster, at most 256 per cluster.
        order: a permutation of the rows that does not depend on their order, shape (N,), such as by a hash of their
            keys, to make the sample independent of the order too.
        device: torch device of the products; the CPU by default.

    Returns:
        Shape (k, D), float32, of length 1. Some are equal if fewer than k rows differ; zeros if all rows are zero.

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
    heads = heads[used]  # of equal heads only one has members; remove the others
    order, starts = groups_of(home, len(used))
    numbers = torch.from_numpy(order).to(centroids.device)
    on_device = torch.from_numpy(heads).to(centroids.device)
    return Centroids(Held(centroids), Held(on_device), Held(centroids[numbers]), Held(numbers), starts, LOOKED_AT)


def assign(
    vectors: Vectors, centroids: NDArray[np.float32] | Centroids, probes: int = 1, *, device: str | None = None
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the nearest centroids of each row, nearest first.

    Products are computed in bfloat16: cosines have an error of about 0.01, and closer ones may be swapped.

    Args:
        vectors: shape (N, D), float16, float32 or int8, of any length; may be a memory map.
        centroids: unit vectors, shape (k, D); or grouped centroids on the device, for an approximate result.
        probes: number of centroids per row, 1 <= probes <= k.
        device: torch device of the products; the CPU by default.

    Returns:
        Indices, shape (N, probes), int32, -1 for a zero row; cosines, float32, -inf for such a row.

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
        centroids: not shared with tasks.
        probes: number of centroids per row.
        shared: the unit rows, if already shared with tasks.
    """
    tasks = _tasks_of(units, centroids)
    if tasks is IN_PROCESS:
        return centroids.nearest(units, probes)
    table, middle = shared or tasks.shared(units), centroids.shared_by(tasks)
    parts = cuts(len(units), ROWS, middle.products, tasks.grain)
    blocks = list(tasks.run(near_some, ((table, middle, start, stop, probes) for start, stop in parts)))
    return torch.cat([index for index, _ in blocks]), torch.cat([value for _, value in blocks])


def near_some(task: tuple[Shared[Tensor], Centroids, int, int, int]) -> Near:
    """Return ``nearest_centroids`` for a range of rows."""
    units, centroids, start, stop, probes = task
    return centroids.nearest(units.value[start:stop], probes)


def _tasks_of(units: Tensor, centroids: Centroids) -> Tasks:
    return tasks_for(len(units) * centroids.products) if units.device.type == "cpu" else IN_PROCESS


def _sampled(vectors: Vectors, size: int, order: NDArray[np.int64] | None, generator: np.random.Generator) -> Tensor:
    """Return ``size`` random non-zero rows at unit length, bfloat16."""
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
    """Return the mean direction of each cluster, or a random row if it is empty."""
    sums = torch.zeros((k, units.shape[1]), device=units.device)
    for start in range(0, len(units), BLOCK):
        sums.index_add_(0, label[start : start + BLOCK], units[start : start + BLOCK].float())
    lost = (sums.norm(dim=1) < 1e-6).nonzero().flatten()
    fresh = torch.from_numpy(generator.integers(0, len(units), len(lost))).to(units.device)
    sums[lost] = units[fresh].float()
    return _unit(sums)


def _unit(rows: Tensor) -> Tensor:
    """Return rows divided by their norms, which must be above zero."""
    return rows / rows.norm(dim=1, keepdim=True)
