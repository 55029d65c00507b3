"""A score that was fitted to a heap: what it keeps of the heap, and what it says of rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scoring.errors import InputError
from scoring.heap.clusters import Centroids, cluster_centres, labels_of
from scoring.heap.columns import AMBIGUOUS, FITTED, NEIGHBOUR, OUTLIER
from scoring.heap.grades import graded, quantiles_of
from scoring.heap.junk import JunkScale, junk_scale
from scoring.heap.neighbours import EXACT_ROWS, Near, near_in, near_to
from scoring.heap.rule import WEIGHTS, combined, composed, outlier, outlier_chance
from scoring.heap.signals import ALONE, CLOSE, SIGNALS, Place, View, likeness
from scoring.heap.space import BLOCK, Centred, centred, mean_of, unit
from scoring.search.links import Recall

REFERENCES = 20_000  # the most rows that a fitted model keeps to compare others with
LEAST_ROWS = 20  # a heap of fewer tells nothing
FEW_ROWS = 50  # and one of fewer little
AMBIGUITY = "ambiguity"  # what the rule makes of the signals
LIKENESS = "likeness"
FAR = 0.99  # quantile of the distances in the heap beyond which a row lies outside of it
Floats = NDArray[np.float64]
NO_NEAR = np.zeros((0, CLOSE), np.int32)


@dataclass(frozen=True)
class Said:
    """What a fitted score says of N rows.

    Attributes:
        columns: by name, each shape (N,), float32; see ``scoring.heap.columns``.
        outside: share of the rows that lie farther from the heap than 99 % of its own; 0 without rows.
        recall: share of the true neighbours that the search found.
    """

    columns: dict[str, NDArray[np.float32]]
    outside: float
    recall: Recall = field(default_factory=Recall.of_everything)


@dataclass(frozen=True)
class HeapFit:
    """A score fitted to a heap of N rows.

    Attributes:
        mean: of the heap's rows at length 1, shape (D,), float32.
        references: rows that others are compared with, as stored, shape (R, D), float16, R <= 20,000; of a larger heap
            a draw.
        centres: of clusterings at several sizes, k -> shape (k, D), float32.
        quantiles: of each signal among the references, and of ``ambiguity``, shape (1001,) each.
        near: the 10 nearest references of each, shape (R, 10), int32.
        usual_likeness: median likeness of the heap's rows to the heap.
        junk: what is usual in the heap of the columns that rise on junk.
        weights: of the rule.
    """

    mean: NDArray[np.float32]
    references: NDArray[np.float16]
    centres: Centroids
    quantiles: Mapping[str, NDArray[np.float32]]
    near: NDArray[np.int32]
    usual_likeness: float = 0.0
    junk: JunkScale = field(default_factory=JunkScale)
    weights: Mapping[str, float] = field(default_factory=lambda: dict(WEIGHTS))

    @property
    def n_bytes(self) -> int:
        """Bytes that it keeps."""
        held = self.mean.nbytes + self.references.nbytes + self.near.nbytes
        return held + sum(each.nbytes for each in (*self.centres.values(), *self.quantiles.values()))

    @cached_property
    def _placed(self) -> tuple[Centred, Place]:
        """The references centred, and where each lies."""
        rows = centred(self.references, self.mean)
        return rows, _place(rows, self.centres)

    def score(self, embeddings: NDArray, columns: Mapping[str, NDArray] | None = None) -> Said:
        """Say how certain rows are, each by itself: the same for a row of the heap as for a new one.

        A row that is among the references itself is a copy there, and copies do not count.

        Args:
            embeddings: shape (N, D), of any length above 0; taken in float16, as tables store them.
            columns: of the same rows, by name, each shape (N,): those of the model's heads, which tell junk.
        """
        references, of_references = self._placed
        signals = []
        for part in _blocks(_stored(embeddings)):
            rows = centred(part, self.mean)
            near = near_to(rows, references)
            signals.append(_signals(View(near, _place(rows, self.centres), of_references, self.near)))
        whole = {
            name: np.concatenate([each[name] for each in signals] or [np.zeros(0)]) for name in (*SIGNALS, LIKENESS)
        }
        return self._said(whole, columns or {}, Recall.of_everything())

    def _said(self, signals: Mapping[str, Floats], columns: Mapping[str, NDArray], recall: Recall) -> Said:
        ambiguity = combined({name: graded(signals[name], self.quantiles[name]) for name in self.weights}, self.weights)
        share = graded(ambiguity, self.quantiles[AMBIGUITY])
        outliers = outlier(signals[LIKENESS], self.usual_likeness)
        heads = self.junk.chance(columns)
        chance = np.maximum(outlier_chance(outliers), 0 if heads is None else heads)
        found = {NEIGHBOUR: signals["distance"], AMBIGUOUS: share, OUTLIER: outliers, FITTED: composed(chance, share)}
        far = float(self.quantiles["distance"][round(FAR * (len(self.quantiles["distance"]) - 1))])
        outside = float((signals["distance"] > far).mean()) if len(share) else 0.0
        return Said({name: values.astype(np.float32) for name, values in found.items()}, outside, recall)


def fit_heap(
    embeddings: NDArray, columns: Mapping[str, NDArray] | None = None, *, seed: int = 0, most: int = REFERENCES
) -> tuple[HeapFit, Said]:
    """Fit a score to a heap, without labels, and say it of every row of the heap.

    Up to 100,000 rows each is judged among all others. A fit to more than ``most`` rows keeps a draw to judge new rows
    by, whose ranks are its own; beyond 100,000 the rows of the heap are judged by that draw as well.

    Args:
        embeddings: shape (N, D), of any length above 0; taken in float16. The same order gives the same fit.
        columns: of the heads, by name, each shape (N,).
        seed: of the clusterings and of the draw.
        most: rows that are kept.

    Raises:
        InputError: for fewer than 20 rows, or rows that are all copies of one another.
    """
    if len(embeddings) < LEAST_ROWS:
        raise InputError(
            f"expected at least {LEAST_ROWS} images with an embedding to fit a score to, got {len(embeddings):,}; "
            "score more of them, or go by the model's own columns"
        )
    stored, columns = _stored(embeddings), columns or {}
    drawn = np.arange(len(stored))
    if len(stored) > most:
        drawn = np.sort(np.random.default_rng(seed).choice(len(stored), most, replace=False))
    mean = mean_of(stored)
    kept = centred(stored[drawn], mean)
    centres = cluster_centres(kept.units, seed=seed)
    bare = HeapFit(mean, stored[drawn], centres, {}, NO_NEAR, junk=junk_scale(columns))
    fit, said = _judged(bare, kept, {} if len(drawn) < len(stored) else columns)
    if said.columns[NEIGHBOUR].min() >= ALONE:
        raise InputError(
            f"expected images that differ, got {len(stored):,} that are all copies of one another: nothing can be told "
            "apart; curate dedup keeps one of them"
        )
    if len(drawn) == len(stored):
        return fit, said
    if len(stored) > EXACT_ROWS:
        return fit, fit.score(stored, columns)
    return fit, _judged(bare, centred(stored, mean), columns)[1]


def said_of(embeddings: NDArray, column: str, *, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Return one column of a heap, every row judged among all others; zeros for fewer than two rows.

    Args:
        embeddings: shape (N, D); more than 100,000 rows find their neighbours by the inverted-file search.
        column: ``unc_neighbour`` or ``unc_ambiguous``.
        seed: of the clusterings.
    """
    if len(embeddings) < 2:
        return {column: np.zeros(len(embeddings), np.float32)}
    stored = _stored(embeddings)
    mean = mean_of(stored)
    heap = centred(stored, mean)
    bare = HeapFit(mean, stored[:0], cluster_centres(heap.units, seed=seed), {}, NO_NEAR)
    return {column: _judged(bare, heap, {})[1].columns[column]}


def _stored(embeddings: NDArray) -> NDArray[np.float16]:
    """Return rows at length 1 in float16, as tables store them; those that are in float16 stay as they are."""
    if embeddings.dtype == np.float16:
        return embeddings
    return np.concatenate([unit(part).astype(np.float16) for part in _blocks(embeddings)])


def _blocks(rows: NDArray) -> Iterator[NDArray]:
    for start in range(0, len(rows), BLOCK):
        yield rows[start : start + BLOCK]


def _judged(bare: HeapFit, heap: Centred, columns: Mapping[str, NDArray]) -> tuple[HeapFit, Said]:
    """Judge the rows of a heap among one another; return the fit with their quantiles, and what it says of them."""
    place, near = _place(heap, bare.centres), near_in(heap)
    close = _closest(near)
    signals = _signals(View(near, place, place, close))
    fit = _with_quantiles(bare, signals, close)
    return fit, fit._said(signals, columns, near.recall)


def _with_quantiles(fit: HeapFit, signals: Mapping[str, Floats], near: NDArray[np.int32]) -> HeapFit:
    """Return the fit with the quantiles of signals, and of what the rule makes of them, and with who is near whom."""
    quantiles = {name: quantiles_of(signals[name]) for name in SIGNALS}
    ambiguity = combined({name: graded(signals[name], quantiles[name]) for name in fit.weights}, fit.weights)
    usual = float(np.median(signals[LIKENESS])) if len(ambiguity) else 0.0
    return replace(fit, quantiles={**quantiles, AMBIGUITY: quantiles_of(ambiguity)}, near=near, usual_likeness=usual)


def _signals(view: View) -> dict[str, Floats]:
    return {name: signal(view) for name, signal in SIGNALS.items()} | {LIKENESS: likeness(view)}


def _place(rows: Centred, centres: Centroids) -> Place:
    return Place(labels_of(rows.units, centres), rows.along)


def _closest(near: Near) -> NDArray[np.int32]:
    """Return the 10 nearest rows of each, shape (N, 10); -1 where there are fewer."""
    index = near.index[:, :CLOSE].astype(np.int32)
    return np.pad(index, ((0, 0), (0, CLOSE - index.shape[1])), constant_values=-1)
