"""Rows sorted by cluster, and the nearest of those in the clusters that a row looks at."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.search.kmeans import nearest_centroids
from scoring.search.rows import Vectors, inverse_lengths, unit_rows, units_float32

PRODUCTS = 8_388_608  # cosines at a time: 32 MB
CLOSE = 2e-6  # cosines nearer than this may be in the wrong order after a float32 product
SLACK = 4  # neighbours beyond k that are kept until the last look, for cosines too close to call
AT_ONCE = 128  # rows at a time whose neighbours are measured again


class Shelves:
    """Rows by cluster, read from where they are stored when they are needed.

    Attributes:
        order: rows that have a length, by cluster and then by row, shape (M,), int64.
        n_clusters: C.
    """

    def __init__(self, vectors: Vectors, home: NDArray[np.int32], centroids: NDArray[np.float32]) -> None:
        self.vectors, self.n_clusters = vectors, len(centroids)
        self.home = home
        order = np.argsort(home, kind="stable").astype(np.int64)
        self.starts = np.searchsorted(home[order], np.arange(self.n_clusters + 1))
        self.order = order[self.starts[0] :]
        self.starts -= self.starts[0]
        self._centroids = torch.from_numpy(centroids)
        self._inverse = inverse_lengths(vectors)

    def _unit(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return rows at length 1, shape (B, D)."""
        return units_float32(self.vectors, self._inverse, rows)

    def probed(self, rows: NDArray[np.int64], probes: int) -> NDArray[np.int64]:
        """Return the clusters nearest to rows, shape (B, probes); first of all the one that a row lies in."""
        units = unit_rows(self.vectors[rows], numbers=rows).units
        return nearest_centroids(units, self._centroids, probes)[0].numpy()

    def neighbours(
        self, rows: NDArray[np.int64], k: int, probes: int | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the nearest rows in the clusters that each row looks at, or in all, shape (B, k) each."""
        unit = torch.from_numpy(self._unit(rows))
        best = torch.full((len(rows), k + SLACK), -torch.inf)
        index = torch.full((len(rows), k + SLACK), -1, dtype=torch.long)
        everyone = torch.arange(len(rows))
        number = torch.from_numpy(rows)
        for members, looking in self._meetings(rows, probes):
            asked = everyone if looking is None else torch.from_numpy(looking)
            step = max(1, PRODUCTS // len(asked))
            for start in range(0, len(members), step):
                some = members[start : start + step]
                cosine = unit[asked] @ torch.from_numpy(self._unit(some)).T
                there = torch.from_numpy(some)
                cosine[number[asked].view(-1, 1) == there] = -torch.inf
                best[asked], index[asked] = _merged(best[asked], index[asked], cosine, there)
        return self._settled(unit, best, index, k)

    def _meetings(
        self, rows: NDArray[np.int64], probes: int | None
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64] | None]]:
        """Return members of a cluster, and which of the rows look at them; None for all of them."""
        if probes is None:
            return [(self.order, None)]
        probed = self.probed(rows, probes).ravel()
        by_cluster = np.argsort(probed, kind="stable")
        looking = by_cluster // probes
        cluster, at = np.unique(probed[by_cluster], return_index=True)
        return [
            (self.order[self.starts[c] : self.starts[c + 1]], some)
            for c, some in zip(cluster, np.split(looking, at[1:]), strict=True)
        ]

    def _settled(
        self, unit: Tensor, best: Tensor, index: Tensor, k: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the best k; where cosines are too close to call they are made again in float64, ties by row."""
        close = (((best[:, :-1] - best[:, 1:]) < CLOSE) & (index[:, 1:] >= 0)).any(1).nonzero().flatten()
        for start in range(0, len(close), AT_ONCE):
            some = close[start : start + AT_ONCE]
            index[some] = torch.where(index[some] < 0, len(self.vectors), index[some]).sort(dim=1).values
            there = index[some]
            missing = there == len(self.vectors)
            stored = self._unit(there.clamp(max=len(self.vectors) - 1).flatten().numpy())
            points = torch.from_numpy(stored).view(*there.shape, -1).double()
            exact = torch.einsum("bkd,bd->bk", points, unit[some].double()).float().masked_fill(missing, -torch.inf)
            order = exact.argsort(dim=1, descending=True, stable=True)
            best[some], index[some] = exact.gather(1, order), there.masked_fill(missing, -1).gather(1, order)
        return index[:, :k].numpy().astype(np.int32), best[:, :k].clamp(max=1).numpy()


def _merged(best: Tensor, index: Tensor, cosine: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best of those that were known and those that are new."""
    width = best.shape[1]
    if cosine.shape[1] > width:
        cosine, at = cosine.topk(width, dim=1)
        new = there[at]
    else:
        new = there.expand(len(cosine), -1)
    both, which = torch.cat([best, cosine], 1), torch.cat([index, new], 1)
    which = which.masked_fill(both == -torch.inf, -1)
    best, at = both.topk(width, dim=1)
    return best, which.gather(1, at)
