"""The nearest centroids of rows: among all, or, if there are many, among those in the nearest groups."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.search.rows import padded
from scoring.tasks import IN_PROCESS, Shared, Tasks

PRODUCTS = 4_194_304  # cosines at a time: 8 MB of bfloat16, which stays in the cache
LOOKED_AT = 12  # groups, the nearest ones; more where that finds too little
ROWS = 16_384  # at a time, where there are groups

Near = tuple[Tensor, Tensor]  # index (N, P), int64, and cosine (N, P), bfloat16, the nearest first


@dataclass(frozen=True)
class Centroids:
    """k centroids, grouped by proximity if there are many.

    To find the nearest of k takes k products a row; by way of sqrt(k) groups it takes some 13 sqrt(k). What is nearest
    is in another group now and then: the caller that searches measures on sampled rows what that loses, and looks at
        more.

    Attributes:
        vectors: shape (k, D), float32.
        heads: the mean directions of the groups, shape (C, D), float32; None where there are no groups.
        members: the centroids, group by group, shape (k, D), float32; the same.
        numbers: which centroid each member is, shape (k,), int64; the same.
        starts: where each group begins among the members, and the end of the last.
        looked_at: groups that a row looks at.
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
        """Yield these, then versions that search twice as many groups each, up to all."""
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

        The first is the same however many are requested, also where several tie, so that equal rows share a list.

        Args:
            units: shape (N, D), bfloat16, on the device of the centroids.
            probes: how many, 1 <= probes <= k.
        """
        index = torch.empty((len(units), probes), dtype=torch.long, device=units.device)
        value = torch.empty((len(units), probes), dtype=torch.bfloat16, device=units.device)
        for start in range(0, len(units), ROWS):
            block = slice(start, start + ROWS)
            some = units[block]
            if not self.starts:
                index[block], value[block] = self._of_all(some, probes)
                continue
            index[block], value[block] = self._of_groups(some, probes)
            short = value[block, -1].isneginf().nonzero().flatten()  # the groups that a row looks at have too few
            if len(short):
                index[start + short], value[start + short] = self._filled(
                    some[short], index[block][short], value[block][short]
                )
        return index, value

    def _filled(self, units: Tensor, index: Tensor, value: Tensor) -> Near:
        """Return the nearest centroids of rows whose groups had too few: those first, then others."""
        k, probes = len(self), index.shape[1]
        middle, parts = self.vectors.value.to(torch.bfloat16).T, []
        for some, known, cosine in zip(
            *(each.split(max(1, PRODUCTS // k)) for each in (units, index, value)), strict=True
        ):
            products = torch.mm(some, middle)
            rank = products.float()
            row, place = (~cosine.isneginf()).nonzero(as_tuple=True)
            rank[row, known[row, place]] = (2 + probes - place).float()  # in their order, before all others
            at = _best(rank, probes)[0]
            parts.append((at, products.gather(1, at)))
        return torch.cat([at for at, _ in parts]), torch.cat([cosine for _, cosine in parts])

    def _of_all(self, units: Tensor, probes: int) -> Near:
        """Return the nearest of all centroids."""
        middle = self.vectors.value.to(torch.bfloat16).T
        step = max(1, PRODUCTS // len(self))
        room = units.new_empty((min(step, len(units)), len(self)))  # one for all: freed blocks were not used again
        parts = [_best(torch.mm(some, middle, out=room[: len(some)]), probes) for some in units.split(step)]
        return torch.cat([index for index, _ in parts]), torch.cat([value for _, value in parts])

    def _of_groups(self, units: Tensor, probes: int) -> Near:
        """Return the nearest in the groups searched by unit rows; -inf if these have fewer."""
        if self.heads is None or self.members is None or self.numbers is None:
            raise ValueError("there are no groups")
        n, looked_at = len(units), min(self.looked_at, len(self.starts) - 1)
        near = torch.mm(units, self.heads.value.to(torch.bfloat16).T).topk(looked_at, dim=1).indices  # (N, G)
        value = torch.full((n * looked_at, probes), -torch.inf, dtype=torch.bfloat16, device=units.device)
        index = torch.zeros((n * looked_at, probes), dtype=torch.int32, device=units.device)
        for start, stop, at in self._looking(near.flatten()):
            mine, members = units[at // looked_at], self.members.value[start:stop].to(torch.bfloat16)
            cosine = (padded(mine) @ padded(members).T)[: len(at), : stop - start]
            place, best = _best(cosine, min(probes, stop - start))
            value[at, : best.shape[1]] = best
            index[at, : best.shape[1]] = self.numbers.value[start + place].int()
        value, index = value.view(n, looked_at, probes), index.view(n, looked_at, probes)
        first = value[:, :, 0].max(1, keepdim=True).indices * probes  # (N, 1), among G P
        flat = value.flatten(1)
        order = flat.scatter(1, first, torch.inf).topk(probes, dim=1).indices
        return index.flatten(1).gather(1, order).long(), flat.gather(1, order)

    def _looking(self, near: Tensor) -> list[tuple[int, int, Tensor]]:
        """Return the range of members of each group, and the entries of ``near`` (M,) that name it."""
        order = near.argsort(stable=True)
        until = torch.bincount(near, minlength=len(self.starts) - 1).cumsum(0).tolist()
        return [
            (start, stop, order[begin:end])
            for start, stop, begin, end in zip(self.starts, self.starts[1:], [0, *until], until, strict=False)
            if end > begin and stop > start
        ]


def _best(cosine: Tensor, probes: int) -> Near:
    """Return place and value of the largest of each row of (B, k), which is spoilt; ``topk`` breaks ties in its way."""
    at, best = _first_largest(cosine)
    if probes == 1:
        return at, best
    further = cosine.scatter_(1, at, torch.inf).topk(probes, dim=1)
    return further.indices, torch.cat([best, further.values[:, 1:]], 1)


def _first_largest(cosine: Tensor) -> Near:
    """Return place and value of the largest of each row of (B, k), shape (B, 1) each; the first of equal ones.

    On the CPU this takes a fifth of the time of ``max`` in bfloat16: floats above zero are in the order of their bits,
    as integers, and all others are below them.
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
    """Return centroids group by group, shape (k,), and where each group begins, of the group of each, shape (k,)."""
    order = np.argsort(home, kind="stable").astype(np.int64)
    return order, tuple(np.searchsorted(home[order], np.arange(n_groups + 1)).tolist())
