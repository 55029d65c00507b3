"""BADGE: rows whose loss gradients are large and unlike each other, without ever building a gradient."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.selectors.contract import Selector, blocks, check
from curate.selectors.geometry import spans
from curate.selectors.picking import picking
from curate.selectors.pool import Pool, Selection

ROUNDING = 1e-6  # squared distances below this share of the squared norms are float32 noise, and count as 0
BLOCK = 16_384  # rows whose bound is computed at a time


@dataclass(frozen=True)
class Badge(Selector):
    """k-means++ on the gradients of the last layer: uncertain rows that differ in class, or in kind.

    The gradient of a row with class probabilities p, likeliest class y and vector h, as if y were its label, is
    g = (p - e_y) (x) h, of C x D numbers. The first pick has the largest |g|; each next one is drawn with a probability
    proportional to the squared distance of its g to the nearest pick. Distances come from the factors,
    |g - g'|^2 = |d|^2 |h|^2 + |d'|^2 |h'|^2 - 2 (d . d') (h . h') with d = p - e_y, so nothing of C x D is built; the
    inner product of h is left out where |d . d'| |h| |h'| alone proves that the nearest pick stays the nearest. The
    proof is exact, and so are the picks. Quality in the pool, where there is one, scales g. Labelled rows shape
    nothing but p, as in the paper. Once every row left is like a pick, the rest are drawn with equal probabilities.

    Gains are squared distances to the nearest earlier pick; of the first, its own |g|^2.

    Source: Ash et al. 2020, arXiv:1906.03671, algorithm 1.
    """

    needs: ClassVar[tuple[str, ...]] = ("vectors", "probabilities")
    optional: ClassVar[tuple[str, ...]] = ("quality",)
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(K N (C + D)) time at most, in a pass of N x C a pick; O(N) memory beyond the arrays"

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        check(pool, budget, self.needs)
        gradients = _Gradients(pool)
        generator = np.random.default_rng(seed)
        nearest = np.full(len(pool.candidates), np.inf)
        free = np.ones(len(pool.candidates), bool)
        picks, gains = np.empty(budget, np.int64), np.empty(budget)
        pick = int(gradients.square.argmax())
        for k in picking(budget):
            if k:
                pick = _draw(nearest, free, generator)
            picks[k], gains[k] = pick, nearest[pick] if k else gradients.square[pick]
            free[pick] = False
            gradients.approach(nearest, pick)
        return Selection(pool.candidates[picks], gains, parts={"norm": np.sqrt(gradients.square[picks])})


def _draw(nearest: NDArray[np.float64], free: NDArray[np.bool_], generator: np.random.Generator) -> int:
    """Return a free row, drawn by its squared distance; picked rows are at distance 0 of themselves."""
    chance = nearest.cumsum()
    lot = generator.random()
    if not chance[-1] > 0:
        left = free.nonzero()[0]
        return int(left[int(lot * len(left))])
    return int(min(np.searchsorted(chance, lot * chance[-1], side="right"), np.searchsorted(chance, chance[-1])))


class _Gradients:
    """The gradients of the M candidates by their factors: d (M, C) from probabilities, h (M, D) as stored."""

    def __init__(self, pool: Pool) -> None:
        self.rows = pool.candidates
        self.whole = len(self.rows) == pool.n_rows  # then blocks are views
        self.h, self.p = pool.array("vectors"), pool.array("probabilities")
        self.top = self.p.argmax(1)[self.rows]
        m = len(self.rows)
        self.length = np.empty(m, np.float32)  # quality times |h|
        d_square = np.empty(m)
        for at in spans(len(self.rows), BLOCK):
            h, p = self._of(self.h, at).astype(np.float32, copy=False), self._of(self.p, at).astype(np.float64)
            p[np.arange(len(p)), self.top[at]] -= 1
            self.length[at] = np.sqrt(np.einsum("ij,ij->i", h, h))
            d_square[at] = np.einsum("ij,ij->i", p, p)
        self.quality = None if pool.quality is None else pool.quality[self.rows].astype(np.float32)
        if self.quality is not None:
            self.length *= self.quality
        self.square = d_square * self.length.astype(np.float64) ** 2  # |g|^2

    def approach(self, nearest: NDArray[np.float64], pick: int) -> None:
        """Lower each squared distance to the nearest pick, shape (M,) in place, to that to a new pick."""
        d = self.p[self.rows[pick]].astype(np.float32)
        d[self.top[pick]] -= 1
        h = self.h[self.rows[pick]].astype(np.float32)
        if self.quality is not None:
            h *= self.quality[pick]
        length, square = float(self.length[pick]), self.square[pick]
        for at in spans(len(self.rows), BLOCK):
            inner = np.einsum("ij,j->i", self._of(self.p, at), d) - d[self.top[at]]  # d . d'
            both = self.square[at] + square
            least = both * (1 - ROUNDING) - 2 * length * (np.abs(inner) * self.length[at])
            close = (least < nearest[at]).nonzero()[0]
            if len(close):
                rows = close + at.start
                cosine = self._products(rows, h)
                if self.quality is not None:
                    cosine *= self.quality[rows]
                gap = both[close] - 2.0 * inner[close] * cosine
                gap[gap < ROUNDING * both[close]] = 0
                nearest[rows] = np.minimum(nearest[rows], gap)
        nearest[pick] = 0

    def _products(self, rows: NDArray[np.int64], h: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return h_row . h, row by row in one thread: the same bits whatever rows are next to it."""
        products = np.empty(len(rows), np.float32)
        for start, part in blocks(rows, 2048):
            some = self.h[self.rows[part]].astype(np.float32, copy=False)
            products[start : start + len(part)] = np.einsum("ij,j->i", some, h)
        return products

    def _of(self, array: NDArray, at: slice) -> NDArray:
        return array[at] if self.whole else array[self.rows[at]]
