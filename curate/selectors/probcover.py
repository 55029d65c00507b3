"""ProbCover: balls of one radius that hold as many rows as possible."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.selectors.contract import Selector, check
from curate.selectors.cover import SparseCover, greedy
from curate.selectors.geometry import members, spans, squared_distances, subset, unit
from curate.selectors.graphs import check_neighbours, neighbours, not_looked_at
from curate.selectors.pool import Pool, Selection
from scoring.errors import InputError

PROBES = 1_000  # rows by which the purity of balls is measured
CLOSE = 1e-6  # squared distances that are no further beyond the radius's are on the ball


@dataclass(frozen=True)
class ProbCover(Selector):
    """Pick the row whose ball holds most rows that no ball holds yet; gains are their share of all.

    The radius is a distance between unit rows. Without one it is the largest at which ``purity`` of the balls hold one
    cluster only, of as many k-means clusters as there are classes, or 50 where that is unknown. The method depends
    on it a lot (MaxHerding does not), so it is noted. When every row is in a ball, the rest follows in row order.

    Up to ``exact_rows`` candidates and labelled rows balls are exact. Beyond, a row is in the balls of its
    ``neighbours`` nearest at most; the share of rows that this cuts short is noted.

    Source: Yehuda et al. 2022, arXiv:2205.11320, Algorithm 1; the purity rule is their section 4.
    """

    radius: float | None = None
    purity: float = 0.95
    neighbours: int = 64
    exact_rows: int = 5_000
    needs: ClassVar[tuple[str, ...]] = ("vectors",)
    optional: ClassVar[tuple[str, ...]] = ("probabilities", "labels")
    uses_graph: ClassVar[bool] = True
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = (
        "O(M^2 D) up to 5,000 rows, at most 0.3 GB; beyond, the graph of 64 neighbours, N K to pick and 1.2 KB a row"
    )

    def __post_init__(self) -> None:
        if self.radius is not None and not 0 < self.radius < 2:
            raise InputError(f"the radius must be above 0 and below 2, a distance between unit rows, got {self.radius}")
        if not 0 < self.purity <= 1:
            raise InputError(f"the purity must be above 0 and at most 1, a share of balls, got {self.purity}")
        check_neighbours(self.neighbours, self.exact_rows)

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        check(pool, budget, self.needs)
        rows = members(pool.candidates, pool.labelled)
        vectors = subset(pool.array("vectors"), rows)
        notes: tuple[str, ...] = ()
        radius = self.radius
        if radius is None:
            radius = pure_radius(vectors, _classes(pool), self.purity, seed)
            notes = (f"radius {radius:.4f}: the largest at which {self.purity:.0%} of the balls hold one cluster",)
        taken = np.flatnonzero(np.isin(rows, pool.labelled, assume_unique=True))
        cover, more = self._balls(pool, vectors, radius, taken, seed)
        picks, gains = greedy(cover, budget)
        idle = int((gains == 0).sum())
        if idle:
            more += (f"every row is in a ball before the last {idle:,} picks; a smaller radius would use them",)
        return Selection(rows[picks], gains / len(rows), notes=notes + more)

    def _balls(
        self, pool: Pool, vectors: NDArray, radius: float, taken: NDArray[np.int64], seed: int
    ) -> tuple[SparseCover, tuple[str, ...]]:
        open_rows = np.ones(len(vectors), bool)
        open_rows[taken] = False
        notes: tuple[str, ...] = ()
        if len(vectors) <= self.exact_rows:
            start, server = _within(vectors, radius)
            notes = not_looked_at(pool, len(vectors))
        else:
            _, graph, notes = neighbours(pool, self.neighbours, seed)
            inside = graph.cosine >= 1 - (radius**2 + CLOSE) / 2  # (M, k); -inf where there is no neighbour
            counts = inside.sum(axis=1)
            start = np.concatenate([[0], np.cumsum(counts + 1)])
            server = np.empty(start[-1], np.int32)
            server[start[:-1]] = np.arange(len(vectors))
            rest = np.ones(len(server), bool)
            rest[start[:-1]] = False
            server[rest] = graph.index[inside]
            cut = float((counts == graph.index.shape[1]).mean())
            notes += (f"approximate: {cut:.1%} of the rows are in more balls than their {self.neighbours} nearest",)
            del graph, inside, rest  # half a gigabyte of a million rows
        alike = np.broadcast_to(np.float32(1), len(server))  # in the ball or not
        return SparseCover(start, server, alike, open_rows, taken), notes


def _classes(pool: Pool) -> int:
    if pool.probabilities is not None:
        return pool.probabilities.shape[1]
    return max(2, int(pool.labels.max()) + 1) if pool.labels is not None and len(pool.labels) else 50


def pure_radius(vectors: NDArray, classes: int, purity: float, seed: int) -> float:
    """Return the largest radius at which that share of the balls around rows holds one cluster only.

    Args:
        vectors: unit rows, shape (M, D).
        classes: clusters of a k-means.
        purity: share of balls, in (0, 1].
        seed: of the clusters, and of the 1,000 rows whose balls are looked at where there are more.

    Returns:
        A distance, in (0, 2); 1 where there is one cluster only.
    """
    from scoring.search.kmeans import assign, spherical_kmeans

    k = min(classes, len(vectors))
    label = assign(vectors, spherical_kmeans(vectors, k, seed=seed, iterations=25))[0][:, 0]
    drawn = np.arange(len(vectors))
    if len(drawn) > PROBES:
        drawn = np.sort(np.random.default_rng(seed).choice(len(drawn), PROBES, replace=False))
    probes = unit(vectors[drawn], np.float32)
    nearest = np.full(len(drawn), np.inf)
    for span in spans(len(vectors)):
        gaps = squared_distances(probes, unit(vectors[span], np.float32))
        gaps[label[drawn][:, None] == label[span]] = np.inf
        nearest = np.minimum(nearest, gaps.min(axis=1))
    if not np.isfinite(nearest).all():
        return 1.0
    impure = int(np.floor((1 - purity) * len(nearest) + 1e-9))  # balls that may hold another cluster
    return float(np.clip(np.sqrt(np.partition(nearest, impure)[impure]) * (1 - 1e-6), 1e-6, 2 - 1e-6))


def _within(vectors: NDArray, radius: float) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return, for each row, the rows no farther than the radius, itself first among them in no order: start, server."""
    rows = unit(vectors, np.float64)
    counts, server = [np.zeros(1, np.int64)], []
    for span in spans(len(rows), 512):
        inside = squared_distances(rows[span], rows) <= radius**2 + CLOSE
        counts.append(inside.sum(axis=1))
        server.append(np.nonzero(inside)[1].astype(np.int32))
    return np.cumsum(np.concatenate(counts)), np.concatenate(server)
