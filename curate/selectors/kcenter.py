"""k-center: repeatedly pick the row farthest from all picks."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from curate.selectors.contract import Pool, Selection, Selector
from curate.selectors.geometry import spans, unit, widened
from curate.selectors.picking import picking
from scoring.arrays import Array, Ints

FRONT, ROOTS = 4096, 16  # rows with exact distances: at least this many, or 16 sqrt(N), the fastest number
ALIKE = 512  # rows of similar age that are updated together
CENTRES = 64  # picks per update
EXACT_NUMBERS = 8_000_000  # number of elements up to which everything is in float64
TIE = 1e-12  # relative difference of float64 distances below which they are ties


@dataclass(frozen=True)
class KCenter(Selector):
    """Pick the row whose nearest pick is farthest; gains are those distances. Prefers outliers.

    It minimises the largest distance, so junk that resembles nothing comes first: worse than random at small budgets in
    most studies. Use it to find outliers, or to stop at a distance.

    Without labelled rows the first pick is random, and its gain is inf. Exact at any size: the distance to earlier
    picks is an upper bound, so it is only updated for rows that could still win. Distances that float32 cannot separate
    are computed again in float64; ties go to the lower row. When all remaining rows are copies of a pick (nearer than
    0.0015, or 1e-6 up to 8 million numbers), they follow in row order with gains of 0. With ``unit`` False, vectors are
    not normalised.

    Source: Gonzalez 1985, "Clustering to minimize the maximum intercluster distance"; Sener & Savarese 2018,
    arXiv:1708.00489, Algorithm 1.
    """

    unit: bool = True
    needs: ClassVar[tuple[str, ...]] = ("vectors",)
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(NKD) at worst, far less where old distances rule rows out; 40 N + 64 D sqrt(N) bytes"

    def _pick(self, pool: Pool, budget: int, seed: int) -> Selection:
        first = int(np.random.default_rng(seed).integers(len(pool.candidates)))
        search = Farthest(pool.array("vectors"), pool.candidates, pool.labelled, budget, first, unit_length=self.unit)
        gains = [] if len(pool.labelled) else [np.inf]
        for position in picking(budget):
            if position < len(gains):  # a random first pick
                continue
            row, distance = search.farthest()
            if row < 0:
                break
            search.take(row)
            gains.append(distance)
        rest = search.fill(budget - len(gains))
        notes = (f"the last {rest:,} picks are near-copies of others",) if rest else ()
        return Selection(search.picks, np.array(gains + [0.0] * rest), notes=notes)


class Farthest:
    """Squared distances of M candidates to labelled and picked rows, computed only as needed.

    Args:
        vectors: of the pool, shape (N, D).
        candidates: rows that may be picked, shape (M,).
        labelled: rows that count as picked, shape (L,).
        budget: number of picks.
        first: index of the first pick among the candidates, if nothing is labelled.
        unit_length: whether rows are normalised first.
    """

    def __init__(
        self, vectors: Array, candidates: Ints, labelled: Ints, budget: int, first: int, *, unit_length: bool
    ) -> None:
        size = len(candidates)
        small = size * vectors.shape[1] <= EXACT_NUMBERS
        self._type: type[np.floating] = np.float64 if small else np.float32
        self._unit_length = unit_length
        self._vectors, self._candidates, self._start = vectors, candidates, len(labelled)
        largest = max(float((self._cast(vectors[candidates[span]]) ** 2).sum(axis=1).max()) for span in spans(size))
        self._close = (1e-12 if small else 2e-6) * largest  # tolerance of squared distances
        self._done = np.concatenate([labelled, np.zeros(budget, np.int64)])  # labelled, then picks
        self._total = len(labelled)
        self._bound = np.full(size, np.inf, self._type)  # squared distance to the first _seen of _done: from above
        self._seen = np.zeros(size, np.int32)
        self._nearest = np.zeros(size, np.int32)  # index of the nearest in _done
        self._open = np.ones(size, bool)
        self._front, self._rows = np.zeros(0, np.int64), np.zeros((0, vectors.shape[1]), self._type)
        self._floor = np.inf  # rows outside the front are at most this far; rows in the front are exact
        if not len(labelled):
            self.take(first)
        for span in spans(size):
            rows = np.arange(span.start, span.stop)
            self._update_distances(rows, self._vectors_of(rows), 0, min(CENTRES, self._total))
        self._bound[~self._open] = -np.inf

    @property
    def picks(self) -> Ints:
        """Rows of the pool in the order picked."""
        return self._done[self._start : self._total].copy()

    def take(self, row: int) -> None:
        """Pick the candidate with index ``row``."""
        self._done[self._total] = self._candidates[row]
        self._total += 1
        self._open[row] = False
        self._bound[row] = -np.inf
        if len(self._front):
            self._update_distances(self._front, self._rows, self._total - 1, self._total)

    def fill(self, count: int) -> int:
        """Pick the lowest ``count`` of the remaining rows; return the count."""
        rows = np.flatnonzero(self._open)[:count]
        self._done[self._total : self._total + len(rows)] = self._candidates[rows]
        self._total += len(rows)
        return len(rows)

    def farthest(self) -> tuple[int, float]:
        """Return the candidate farthest from all picks, ties to the lower row, and its distance; -1 if only copies."""
        while True:
            top = float(self._bound[self._front].max(initial=-np.inf))
            if top > self._floor + self._close:
                if top <= self._close:
                    return -1, 0.0
                return self._exact(np.sort(self._front[self._bound[self._front] >= top - self._close]))
            self._renew_front()
            top = float(self._bound[self._front].max(initial=-np.inf))
            if top < self._floor - self._close:
                self._sweep(top)
            elif top <= self._floor + self._close:
                if top <= self._close:
                    return -1, 0.0
                rows = self._tied(top)
                if len(rows):
                    return self._exact(rows)

    def _renew_front(self) -> None:
        """Make the rows that may be farthest the front, and update their distances."""
        size = len(self._bound)
        rest = max(0, size - max(FRONT, ROOTS * math.isqrt(size)))
        front = np.argpartition(self._bound, rest)[rest:]
        others = np.ones(size, bool)
        others[front] = False
        self._floor = float(self._bound.max(initial=-np.inf, where=others))
        front = front[self._open[front]]
        front = front[np.argsort(self._seen[front], kind="stable")]
        rows = self._vectors_of(front)
        for span in spans(len(front), ALIKE):
            self._catch_up(front[span], rows[span])
        current = self._seen[front] == self._total
        self._front, self._rows = front[current], rows[current]

    def _sweep(self, top: float) -> None:
        """Update every row whose distance may exceed ``top``, the exact distance of one row."""
        self._floor = top  # rows below it need no exact distance
        rows = np.flatnonzero(self._open & (self._bound > top + self._close) & (self._seen < self._total))
        far = min(ALIKE, len(rows))
        lead = np.argpartition(self._bound[rows], len(rows) - far)[len(rows) - far :]
        self._raise_floor(rows[lead])  # a first lower bound, so that few rows need exact distances
        rows = rows[(self._bound[rows] > self._floor + self._close) & (self._seen[rows] < self._total)]
        rows = rows[np.argsort(self._seen[rows], kind="stable")]
        for span in spans(len(rows)):
            self._raise_floor(rows[span][self._bound[rows[span]] > self._floor])

    def _raise_floor(self, rows: Ints) -> None:
        """Update rows; the farthest of them becomes the new floor if it is higher."""
        self._catch_up(rows, self._vectors_of(rows))
        known = self._bound[rows[self._seen[rows] == self._total]]
        self._floor = max(self._floor, float(known.max(initial=-np.inf)))

    def _tied(self, top: float) -> Ints:
        """Update every row whose distance may reach ``top``; return the rows at it, none if some are farther."""
        rows = np.flatnonzero(self._bound >= top - self._close)
        stale = rows[self._seen[rows] < self._total]
        for span in spans(len(stale), ALIKE):
            self._catch_up(stale[span], self._vectors_of(stale[span]))
        top = float(self._bound.max())
        rows = np.flatnonzero(self._bound >= top - self._close)
        return rows if (self._seen[rows] == self._total).all() else rows[:0]

    def _catch_up(self, rows: Ints, vectors: Array) -> None:
        """Update rows, stopping early for rows below the front's lowest distance."""
        first = int(self._seen[rows].min(initial=self._total))
        while first < self._total and len(rows):
            last = min(first + CENTRES, self._total)
            self._update_distances(rows, vectors, first, last)
            first = last
            going = self._bound[rows] >= self._floor - 2 * self._close
            if not going.all():
                rows, vectors = rows[going], vectors[going]

    def _update_distances(self, rows: Ints, vectors: Array, first: int, last: int) -> None:
        """Update distances for the labelled rows and picks with indices ``first`` to ``last``."""
        centres = self._cast(self._vectors[self._done[first:last]])
        squares = vectors @ centres.T  # (B, c)
        squares *= -2
        squares += np.einsum("nd,nd->n", vectors, vectors)[:, None]
        squares += np.einsum("nd,nd->n", centres, centres)
        at = squares.argmin(axis=1)
        value = np.maximum(squares[np.arange(len(rows)), at], 0)
        closer = value < self._bound[rows]
        self._bound[rows[closer]] = value[closer]
        self._nearest[rows[closer]] = first + at[closer]
        self._seen[rows] = np.maximum(self._seen[rows], last)

    def _exact(self, rows: Ints) -> tuple[int, float]:
        """Return the row farthest from its nearest pick, ties to the lower row, and that distance, in float64."""
        row, best = -1, -1.0
        for span in spans(len(rows)):
            near = self._done[self._nearest[rows[span]]]
            gap = self._cast(self._vectors[self._candidates[rows[span]]], np.float64)
            gap -= self._cast(self._vectors[near], np.float64)
            distance = np.sqrt((gap * gap).sum(axis=1))
            top = float(distance.max())
            if top > best * (1 + TIE):
                row, best = int(rows[span][int((distance >= top * (1 - TIE)).argmax())]), top
        return row, best

    def _vectors_of(self, rows: Ints) -> Array:
        return self._cast(self._vectors[self._candidates[rows]])

    def _cast(self, vectors: Array, precision: type[np.floating] | None = None) -> Array:
        cast = unit if self._unit_length else widened
        return cast(vectors, precision or self._type)
