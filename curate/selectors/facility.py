"""Facility location: every row is served by the pick that is most similar to it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.selectors.contract import Selector, check
from curate.selectors.cover import Cover, DenseCover, SparseCover, greedy
from curate.selectors.geometry import members, subset, unit
from curate.selectors.pool import Pool, Selection
from scoring.errors import InputError
from scoring.search.links import MOST_NEIGHBOURS

TRIAL = 2_000  # rows on which the sparse form is held against the dense one
TRIAL_PICKS = 200


@dataclass(frozen=True)
class FacilityLocation(Selector):
    """Pick the row that adds most to the mean cosine of a row to its most similar pick; negative cosines count as 0.

    Greedy, which reaches at least 1 - 1/e of the best there is. Up to ``exact_rows`` candidates and labelled rows all
    similarities are held. Beyond, a row can be served on its own and its ``neighbours`` nearest only; what that loses
    is measured on 2,000 rows drawn from the pool and noted.

    Source: Mirzasoleiman et al. 2013, "Distributed submodular maximization"; lazy as in Minoux 1978.
    """

    neighbours: int = 64
    exact_rows: int = 5_000
    needs: ClassVar[tuple[str, ...]] = ("vectors",)
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = (
        "O(M^2 D), 0.2 GB up to 5,000 rows; beyond, the graph of 64 neighbours, N K to pick and 1.1 KB a row"
    )

    def __post_init__(self) -> None:
        if not 1 <= self.neighbours <= MOST_NEIGHBOURS:
            raise InputError(f"neighbours must be between 1 and {MOST_NEIGHBOURS}, got {self.neighbours}")
        if self.exact_rows < 1:
            raise InputError(f"exact_rows must be at least 1, got {self.exact_rows}")

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        check(pool, budget, self.needs)
        cover, rows, notes = _cover(pool, self.neighbours, self.exact_rows, budget, seed)
        picks, gains = greedy(cover, budget)
        return Selection(rows[picks], gains / len(rows), notes=notes)


def _cover(
    pool: Pool, k: int, exact_rows: int, budget: int, seed: int
) -> tuple[Cover, NDArray[np.int64], tuple[str, ...]]:
    """Return the coverage by the labelled rows, the pool's rows that its numbers represent, and notes."""
    vectors = pool.array("vectors")
    rows = members(pool.candidates, pool.labelled)
    taken = np.flatnonzero(np.isin(rows, pool.labelled, assume_unique=True))
    if len(rows) <= exact_rows:
        return _dense(vectors[rows], taken), rows, ()
    from scoring.search.graph import knn_graph

    graph = knn_graph(subset(vectors, rows), min(k, len(rows) - 1), seed=seed)
    recall, notes = graph.recall, tuple[str, ...]()
    if not recall.exact:
        recalled = f"{recall.estimate:.2%} of the nearest neighbours ({recall.low:.2%} to {recall.high:.2%})"
        notes = (f"approximate: the graph has {recalled}",)
    near, entries = graph.index.shape[1], _entries(graph.index, graph.cosine)
    del graph  # half a gigabyte of a million rows, which the entries hold again
    cover = _sparse(*entries, taken)
    share = _trial(vectors, rows, k, min(budget, TRIAL_PICKS), seed)
    note = (
        f"approximate: a row is served by its {near} nearest only; on {min(TRIAL, len(rows)):,} rows"
        f" drawn, with as many neighbours for their number, this reaches {share:.2%} of what all similarities reach"
    )
    return cover, rows, (*notes, note)


def _dense(vectors: NDArray, taken: NDArray[np.int64]) -> DenseCover:
    units = unit(vectors, np.float64)
    similarity = np.maximum(units @ units.T, 0)
    np.fill_diagonal(similarity, 1.0)
    covered = similarity[taken].max(axis=0, initial=0.0)
    cover = DenseCover(similarity, np.ones(len(units)), covered)
    for row in taken:
        cover.take(int(row))
    return cover


def _entries(index: NDArray[np.int32], cosine: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the rows that can serve each row, itself and its neighbours, and how well: both of shape (M, 1 + k)."""
    size, k = index.shape
    server, similarity = np.empty((size, k + 1), np.int32), np.empty((size, k + 1), np.float32)
    itself = np.arange(size, dtype=np.int32)
    server[:, 0], similarity[:, 0] = itself, 1
    server[:, 1:] = index
    np.clip(cosine, 0, 1, out=similarity[:, 1:])
    missing = server < 0  # a graph that found fewer neighbours: the row serves itself, for nothing
    np.copyto(server, itself[:, None], where=missing)
    np.copyto(similarity, 0, where=missing)
    return server, similarity


def _sparse(server: NDArray[np.int32], similarity: NDArray[np.float32], taken: NDArray[np.int64]) -> SparseCover:
    size, width = server.shape
    open_rows = np.ones(size, bool)
    open_rows[taken] = False
    start = np.arange(size + 1, dtype=np.int64) * width
    return SparseCover(start, server.ravel(), similarity.ravel(), open_rows, taken)


def _trial(vectors: NDArray, rows: NDArray[np.int64], k: int, budget: int, seed: int) -> float:
    """Return the objective of the sparse form over the dense one's, on rows drawn, both by all similarities.

    A row of the trial gets the same share of the rows as neighbours as in the pool, but 8 at least: with fewer rows,
    64 neighbours would be a richer graph than the one that is used.
    """
    drawn = np.sort(np.random.default_rng(seed).choice(rows, min(TRIAL, len(rows)), replace=False))
    units = unit(vectors[drawn], np.float64)
    similarity = np.maximum(units @ units.T, 0)
    np.fill_diagonal(similarity, 1.0)
    near = min(max(8, round(k * len(drawn) / len(rows))), len(drawn) - 1)
    budget = min(budget, len(drawn))
    none = np.zeros(0, np.int64)
    masked = similarity.copy()
    np.fill_diagonal(masked, -1)
    index = np.argpartition(-masked, near - 1, axis=1)[:, :near].astype(np.int32)
    cosine = np.take_along_axis(similarity, index, axis=1).astype(np.float32)
    sparse, _ = greedy(_sparse(*_entries(index, cosine), none), budget)
    dense, _ = greedy(_dense(vectors[drawn], none), budget)
    best = float(similarity[dense].max(axis=0).sum())
    return float(similarity[sparse].max(axis=0).sum()) / best if best > 0 else 1.0
