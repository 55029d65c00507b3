"""Greedy maximisation of weighted coverage: the sum over rows of weight times the highest similarity to a pick.

All similarities are in memory. Gains are updated lazily: since the objective is submodular, an old gain is an upper
bound, and only rows whose bound could win are computed again.

Source: Minoux 1978, "Accelerated greedy algorithms for maximizing submodular set functions".
"""

import numpy as np
from numpy.typing import NDArray

from curate.selectors.geometry import spans, unit
from curate.selectors.picking import picking
from scoring.arrays import Array, Floats, Ints

CHUNK = 32  # rows whose gain is updated first
TIE = 1e-9  # gains closer than this, relative to the best, are ties
FLOOR = 1e-13  # also gains closer than this, relative to the total weight

TOGETHER = 512  # minimal rows compared with all earlier picks at once
FULL = 65_535  # a similarity of 1 as a whole number


def to_fixed(similarity: Array) -> NDArray[np.uint16]:
    """Return similarities, clipped to [0, 1], as integers in units of 1 / 65,535, rounded down."""
    fixed = (similarity * FULL).astype(np.int32)  # through int32, which is vectorised
    return np.minimum(fixed, FULL, out=fixed).astype(np.uint16)


class SelfCoverage:
    """The gain of rows from covering themselves: weight times (1 - similarity to the nearest labelled row or pick).

    One row in N hardly matters for few picks. For many, when all else is covered, it dominates and ranks rows by
    weight. Computed lazily when a row may be picked, from the picks since its last update; the first time from all,
    together with the rows that follow in ``order``. At most ``most`` picks are recorded.
    """

    def __init__(
        self, vectors: Array, rows: Ints, weights: Array, done: Ints, order: Ints, bandwidth: float, most: int
    ) -> None:
        self._vectors, self._rows, self._weights = vectors, rows, weights.astype(np.float64)
        self._order, self._next, self._bandwidth = order, 0, bandwidth
        self._done, self._known = done, np.full(len(rows), not len(done))  # known: held against those done before
        self._picked, self._count = np.empty((most, vectors.shape[1]), np.float32), 0
        self._covered, self._seen = np.zeros(len(rows), np.float32), np.zeros(len(rows), np.int64)

    def take(self, row: int) -> None:
        """Record a pick."""
        self._picked[self._count] = self._units(np.array([row]))[0]
        self._count += 1

    def gains(self, rows: Ints) -> Floats:
        """Return the gain of each row, shape (B,)."""
        fresh = self._with_next(rows[~self._known[rows]])
        if len(fresh):
            self._cover(fresh, covered(self._units(fresh), self._vectors, self._done, self._bandwidth))
            self._known[fresh] = True
        first = int(self._seen[rows].min())
        if first < self._count:
            units = self._units(rows)
            near = _similarity(units, _nearest(units, self._picked[first : self._count]), self._bandwidth)
            self._cover(rows, near)
            self._seen[rows] = self._count
        return self._weights[rows] * (1 - self._covered[rows].astype(np.float64))

    def _with_next(self, rows: Ints) -> Ints:
        """Return rows and some that are likely needed next, since updating several together costs no more."""
        while 0 < len(rows) < TOGETHER and self._next < len(self._order):
            ahead = self._order[self._next : self._next + TOGETHER]
            self._next += TOGETHER
            rows = np.union1d(rows, ahead[~self._known[ahead]])
        return rows

    def _cover(self, rows: Ints, similarity: Array) -> None:
        """Update the similarity to the nearest row, in blocks of fixed size, since the last bits depend on it."""
        self._covered[rows] = np.maximum(self._covered[rows], to_fixed(similarity) / np.float32(FULL))

    def _units(self, rows: Ints) -> NDArray[np.float32]:
        return unit(self._vectors[self._rows[rows]], np.float32)


class DenseCover:
    """Weighted coverage with all similarities in memory.

    Args:
        similarity: of M candidates to R references, shape (M, R), >= 0: float64, or uint16 from ``to_fixed``, with a
            quarter of the memory and several times faster.
        weights: of the references, shape (R,), >= 0.
        covered: best similarity so far, shape (R,), in [0, 1] with uint16.
        as_reference: index of each candidate among the references, -1 for none, shape (M,); if the references are a
            sample, the caller sets a row's similarity to itself to 0, so that sampled rows have no advantage, and it
            counts as covered when picked.
        most: upper bound on the gain of each candidate, shape (M,), if known; else computed.
        alone: additional gain of a row from covering itself; None for none.
    """

    def __init__(
        self,
        similarity: Array,
        weights: Array,
        covered: Array,
        as_reference: Ints | None = None,
        most: Floats | None = None,
        alone: SelfCoverage | None = None,
    ) -> None:
        self._similarity, self._as_reference, self._alone = similarity, as_reference, alone
        fixed = similarity.dtype == np.uint16
        self._type: type[np.floating] = np.float32 if fixed else np.float64
        self._full = FULL if fixed else 1  # how similar a row is to itself
        self._weights = weights.astype(self._type)
        self.covered: Array = to_fixed(covered) if fixed else covered.astype(self._type)
        self._floor = FLOOR * float(weights.sum(dtype=np.float64))
        self._round = 0
        self._measured = np.full(len(similarity), -1)  # the round in which a bound was exact
        self._bound = np.empty(len(similarity)) if most is None else most.astype(np.float64)  # upper bound of the gain
        for span in spans(len(similarity) if most is None else 0, 512):
            self._measure(np.arange(span.start, span.stop))

    def _measure(self, rows: Ints) -> None:
        reached = np.maximum(self._similarity[rows], self.covered)  # (B, R)
        reached -= self.covered
        gains = reached.astype(self._type, copy=False)
        gains *= self._weights
        self._bound[rows] = gains.sum(axis=1) / self._full
        if self._alone is not None:
            self._bound[rows] += self._alone.gains(rows)
        self._measured[rows] = self._round

    def best(self) -> tuple[int, float]:
        """Return the row with the largest gain, ties to the lower row, and its gain."""
        chunk, size = CHUNK, len(self._bound)
        while True:
            top = float(self._bound.max())
            current = self._measured == self._round
            known = float(np.where(current, self._bound, -np.inf).max()) if current.any() else -np.inf
            if known >= top - TIE * abs(top) - self._floor:
                stale = np.flatnonzero(~current & (self._bound >= known - TIE * abs(known) - self._floor))
                stale = stale[self._bound[stale] > 0]  # a gain of 0 stays 0
                if not len(stale):
                    return _lowest(self._bound, self._floor)
            else:
                bound = np.where(current, -np.inf, self._bound)
                count = min(chunk, size)
                stale = np.argpartition(bound, size - count)[size - count :]
                stale = np.sort(stale[np.isfinite(bound[stale])])
                chunk = min(2 * chunk, 1024)
            for span in spans(len(stale), 512):
                self._measure(stale[span])

    def take(self, row: int) -> None:
        """Pick a row: update the coverage, and never return it again."""
        better = np.maximum(self.covered, self._similarity[row])
        if self._as_reference is not None and self._as_reference[row] >= 0:
            better[self._as_reference[row]] = self._full
        if self._alone is not None:
            self._alone.take(row)
        if self._alone is not None or (better > self.covered).any():
            self.covered = better
            self._round += 1
        self._bound[row] = -np.inf
        self._measured[row] = np.iinfo(np.int64).max


def _lowest(gains: Floats, floor: float) -> tuple[int, float]:
    """Return the lowest row with the largest gain up to rounding, and that gain, >= 0."""
    top = float(gains.max())
    row = int((gains >= top - TIE * abs(top) - floor).argmax())
    return row, max(float(gains[row]), 0.0)


def greedy(cover: DenseCover, budget: int) -> tuple[Ints, Floats]:
    """Return the rows picked greedily, (budget,) int64, and their gains, float64; ties go to the lower row."""
    picks, gains = np.empty(budget, np.int64), np.empty(budget)
    for position in picking(budget):
        picks[position], gains[position] = cover.best()
        cover.take(int(picks[position]))
    return picks, gains


def covered(rows: Array, vectors: Array, done: Ints, bandwidth: float) -> Array:
    """Return the similarity of each of R unit rows to the nearest of ``done``, shape (R,); 0 without any."""
    best = np.full(len(rows), -np.inf, rows.dtype)
    for span in spans(len(done), 512):
        best = np.maximum(best, _nearest(rows, unit(vectors[done[span]], rows.dtype)))
    return _similarity(rows, best, bandwidth)


def _nearest(rows: Array, others: Array) -> Array:
    """Return the maximum of 2 x . y - |y|^2 for each row x, shape (R,): |x|^2 minus the smallest squared distance."""
    product = rows @ (2 * others).T  # (R, B)
    product -= np.einsum("nd,nd->n", others, others)
    return np.asarray(product.max(axis=1))


def _similarity(rows: Array, nearest: Array, bandwidth: float) -> Array:
    """Return the kernel value of each row with its nearest, in [0, 1], from ``_nearest``; 0 for -inf."""
    square = np.maximum(np.einsum("nd,nd->n", rows, rows) - nearest, 0)
    return np.asarray(np.exp(square * (-0.5 / bandwidth**2)))
