"""A score that was fitted to a heap: what it keeps of the heap, and what it says of rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from scoring.heap.clusters import Centroids, labels_of
from scoring.heap.columns import AMBIGUOUS, COLUMNS, FITTED, LOCAL, NEIGHBOUR, OUTLIER
from scoring.heap.grades import graded, quantiles_of
from scoring.heap.junk import JunkScale
from scoring.heap.local import among_neighbours
from scoring.heap.neighbours import Near, near_in, near_to
from scoring.heap.rule import (
    OUTLIER_AT,
    WEIGHTS,
    chance_of,
    combined,
    composed,
    lifted,
    outlier,
    outlier_chance,
    outlier_cut,
)
from scoring.heap.signals import CLOSE, SIGNALS, Place, View, likeness
from scoring.heap.space import BLOCK, Centred, centred, unit
from scoring.heap.taught import OTHER, Learned, Taught
from scoring.search.links import Recall

AMBIGUITY = "ambiguity"  # what the rule makes of the signals
LIKENESS = "likeness"
FAR = 0.99  # quantile of the distances in the heap beyond which a row lies outside of it
FAR_SHARE = 0.05  # of rows outside, above which somebody should know
FEW_FAR = 3  # rows outside that luck brings into any few
Floats = NDArray[np.float64]
NO_NEAR = np.zeros((0, CLOSE), np.int32)


def far_from(outside: int, rows: int) -> str:
    """Return a warning where many of N rows lie outside of the heap that a model was fitted to, else nothing."""
    if outside <= max(FAR_SHARE * rows, FEW_FAR):
        return ""
    return (
        f"{outside / rows:.0%} of the images lie farther from the heap that the model was fitted to than 99 % of its "
        "own: what unc_fitted says of them is a guess; fit anew with them"
    )


@dataclass(frozen=True)
class Said:
    """What a fitted score says of N rows.

    Attributes:
        columns: by name, each shape (N,), float32; see ``scoring.heap.columns``.
        outside: share of the rows that lie farther from the heap than 99 % of its own; 0 without rows.
        recall: share of the true neighbours that the search found.
        learned: what labels were worth; None without.
    """

    columns: dict[str, NDArray[np.float32]]
    outside: float
    recall: Recall = field(default_factory=Recall.of_everything)
    learned: Learned | None = None


@dataclass(frozen=True)
class Standing:
    """What the rows near a row bring to its score: of N rows, each float32 and of shape (N,).

    Attributes:
        share: how ambiguous each is.
        level: log odds of junk; 0 where nothing tells.
        fitted: the score.
    """

    share: NDArray[np.float32]
    level: NDArray[np.float32]
    fitted: NDArray[np.float32]


NOBODY = Standing(*(np.zeros(0, np.float32),) * 3)


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
        outlier_at: how unlike the heap a row is that belongs to another as likely as not.
        junk: what is usual in the heap of the columns that rise on junk.
        weights: of the rule.
        taught: what labels of some rows say of the others; None without labels.
        standing: of the references.
    """

    mean: NDArray[np.float32]
    references: NDArray[np.float16]
    centres: Centroids
    quantiles: Mapping[str, NDArray[np.float32]]
    near: NDArray[np.int32]
    usual_likeness: float = 0.0
    outlier_at: float = OUTLIER_AT
    junk: JunkScale = field(default_factory=JunkScale)
    weights: Mapping[str, float] = field(default_factory=lambda: dict(WEIGHTS))
    taught: Taught | None = None
    standing: Standing = NOBODY

    @property
    def n_bytes(self) -> int:
        """Bytes that it keeps."""
        held = self.mean.nbytes + self.references.nbytes + self.near.nbytes + 3 * self.standing.share.nbytes
        held += self.taught.n_bytes if self.taught else 0
        return held + sum(each.nbytes for each in (*self.centres.values(), *self.quantiles.values()))

    @property
    def far(self) -> float:
        """The distance beyond which a row lies outside of the heap: 99 % of its own rows lie nearer."""
        quantiles = self.quantiles["distance"]
        return float(quantiles[round(FAR * (len(quantiles) - 1))])

    @cached_property
    def _placed(self) -> tuple[Centred, Place]:
        """The references centred, and where each lies."""
        rows = centred(self.references, self.mean)
        return rows, place_of(rows, self.centres)

    def score(self, embeddings: NDArray, columns: Mapping[str, NDArray] | None = None) -> Said:
        """Say how certain rows are, each by itself: the same for a row of the heap as for a new one.

        A row that is among the references itself is a copy there, and copies do not count.

        Args:
            embeddings: shape (N, D), of any length above 0; taken in float16, as tables store them.
            columns: of the same rows, by name, each shape (N,): those of the model's heads, which tell junk.
        """
        references, of_references = self._placed
        found: list[dict[str, NDArray[np.float32]]] = []
        start = 0
        for part in blocks(stored(embeddings)):
            rows, here = centred(part, self.mean), slice(start, start + len(part))
            near = near_to(rows, references)
            signals = signals_of(View(near, place_of(rows, self.centres), of_references, self.near))
            more = {OTHER: self.taught.other_class(rows.units, near)} if self.taught else {}
            heads = {name: values[here] for name, values in (columns or {}).items()}
            found.append(self.columns_of(signals | more, heads, near, self.standing)[0])
            start = here.stop
        none = np.zeros(0, np.float32)
        return self.said({name: np.concatenate([none, *(each[name] for each in found)]) for name in COLUMNS})

    def with_quantiles(self, signals: Mapping[str, Floats]) -> Self:
        """Return the fit with the quantiles of signals, of those of the heap, and of what the rule makes of them."""
        quantiles = {name: quantiles_of(values) for name, values in signals.items() if name != LIKENESS}
        usual = float(np.median(signals[LIKENESS])) if len(signals[LIKENESS]) else 0.0
        cut = outlier_cut(outlier(signals[LIKENESS], usual))
        fit = replace(self, quantiles=quantiles, usual_likeness=usual, outlier_at=cut)
        return replace(fit, quantiles={**quantiles, AMBIGUITY: quantiles_of(fit.ambiguity(signals))})

    def ambiguity(self, signals: Mapping[str, Floats]) -> Floats:
        """Return what the rule makes of signals, shape (N,), in [0, 1]."""
        return combined({name: graded(signals[name], self.quantiles[name]) for name in self.weights}, self.weights)

    def columns_of(
        self,
        signals: Mapping[str, Floats],
        columns: Mapping[str, NDArray],
        near: Near,
        others: Standing | None = None,
    ) -> tuple[dict[str, NDArray[np.float32]], Standing]:
        """Return the columns of N rows, and their standing.

        Args:
            signals: of the rows.
            columns: of the heads.
            near: neighbours of the rows among the others.
            others: their standing; None where they are the rows themselves.
        """
        share = graded(self.ambiguity(signals), self.quantiles[AMBIGUITY])
        outliers = outlier(signals[LIKENESS], self.usual_likeness)
        level = self.junk.level(columns)
        chance = np.maximum(outlier_chance(outliers, self.outlier_at), 0 if level is None else chance_of(level))
        odds = np.zeros(len(share), np.float32) if level is None else level.astype(np.float32)
        own = Standing(share.astype(np.float32), odds, NOBODY.fitted)
        of = others or own
        raised = lifted(own.share, own.level, near.index[:, 0], (of.share, of.level))
        fitted = composed(chance, raised.astype(np.float64)).astype(np.float32)
        local = among_neighbours(fitted, near, fitted if others is None else others.fitted)
        distance, unlike = signals["distance"].astype(np.float32), outliers.astype(np.float32)
        found = {NEIGHBOUR: distance, AMBIGUOUS: own.share, OUTLIER: unlike, FITTED: fitted, LOCAL: local}
        return found, replace(own, fitted=fitted)

    def said(self, columns: dict[str, NDArray[np.float32]], recall: Recall | None = None) -> Said:
        """Return columns with how many of the rows lie outside of what was fitted."""
        distance = columns[NEIGHBOUR]
        outside = float((distance > self.far).mean()) if len(distance) else 0.0
        return Said(columns, outside, recall or Recall.of_everything())


@dataclass(frozen=True)
class Laid:
    """N rows laid out among one another: as directions, their neighbours, and their signals."""

    rows: Centred
    near: Near
    signals: dict[str, Floats]

    @property
    def closest(self) -> NDArray[np.int32]:
        """The 10 nearest rows of each, shape (N, 10); -1 where there are fewer."""
        index = self.near.index[:, :CLOSE].astype(np.int32)
        return np.pad(index, ((0, 0), (0, CLOSE - index.shape[1])), constant_values=-1)


def laid_out(rows: Centred, centres: Centroids) -> Laid:
    """Lay the rows of a heap out among one another."""
    place, near = place_of(rows, centres), near_in(rows)
    bare = Laid(rows, near, {})
    return replace(bare, signals=signals_of(View(near, place, place, bare.closest)))


def signals_of(view: View) -> dict[str, Floats]:
    """Return every signal of rows by its name, and how alike they are to the heap."""
    return {name: signal(view) for name, signal in SIGNALS.items()} | {LIKENESS: likeness(view)}


def place_of(rows: Centred, centres: Centroids) -> Place:
    """Return where rows lie, each by itself."""
    return Place(labels_of(rows.units, centres), rows.along)


def stored(embeddings: NDArray) -> NDArray[np.float16]:
    """Return rows at length 1 in float16, as tables store them; those that are in float16 stay as they are."""
    if embeddings.dtype == np.float16:
        return embeddings
    return np.concatenate([unit(part).astype(np.float16) for part in blocks(embeddings)])


def blocks(rows: NDArray) -> Iterator[NDArray]:
    """Yield rows, some thousands at a time."""
    for start in range(0, len(rows), BLOCK):
        yield rows[start : start + BLOCK]
