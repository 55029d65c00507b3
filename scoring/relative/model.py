"""The score fitted to a dataset: what is stored, and the columns it computes for rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array, Floats
from scoring.relative.columns import AMBIGUOUS, CLUSTER, FITTED, JUNK, LOCAL, NEIGHBOUR, UNLIKE, USABLE
from scoring.relative.junk.classifier import JunkClassifier, probability_of
from scoring.relative.junk.features import JunkInputs
from scoring.relative.neighbours import Near, near_in, near_to
from scoring.relative.propagated import OTHER, Learned, Propagated
from scoring.relative.rule import WEIGHTS, combined, composed, lifted
from scoring.relative.signals import CLOSE, SIGNALS, RowPlaces, RowsAmongOthers
from scoring.relative.space import BLOCK, Centred, centred, unit
from scoring.relative.unlike import Centroids, group_numbers, labels_of
from scoring.search.links import Recall

POINTS = 1001  # number of stored quantiles
LEVELS = np.linspace(0, 1, POINTS)
AMBIGUITY = "ambiguity"  # name of the combined signals
FAR = 0.99  # quantile of distances above which a row counts as outside
FAR_SHARE = 0.05  # share of rows outside above which a note is shown
FEW_FAR = 3  # rows outside that occur by chance in a small set
NO_JUNK = -10.0  # log odds of junk if unknown
Columns = dict[str, NDArray[Any]]
NO_NEAR = np.zeros((0, CLOSE), np.int32)
NO_CLUSTERS = NO_GROUPS = np.zeros((0, 0), np.float32)


def among_neighbours(fitted: NDArray[np.floating], near: Near, of_others: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the share of a row's 10 nearest rows that are less ambiguous, halved; junk keeps its score.

    Dropping by it removes the same share of each neighbourhood. Dropping by the score itself would empty the parts of a
    dataset in which everything is hard to recognise, from which a model has most to learn.

    Args:
        fitted: score of N rows, at most .5 for usable images, higher for junk; shape (N,).
        near: their neighbours among R others.
        of_others: score of the others, shape (R,).

    Returns:
        Shape (N,), in [0, .5] for usable images, ties broken by ``fitted``; ``fitted`` for junk.
    """
    index, exists = near.index[:, :CLOSE].clip(0), near.exists[:, :CLOSE]
    clearer = ((of_others[index] < np.asarray(fitted)[:, None]) & exists).sum(1)
    position = np.clip(np.asarray(fitted, np.float64) / USABLE, 0, 1)
    standing = (clearer + position) / (exists.sum(1) + 1)
    return np.where(fitted > USABLE, fitted, standing * USABLE).astype(np.float32)


def quantiles_of(values: Array) -> NDArray[np.float32]:
    """Return the 1001 quantiles of values, ascending; all 0 without values."""
    if not len(values):
        return np.zeros(POINTS, np.float32)
    return np.quantile(np.asarray(values, np.float64), LEVELS).astype(np.float32)


def graded(values: Array, quantiles: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the share of a dataset below each value, ties counting half, in [0, 1], from its quantiles.

    Interpolated between quantiles; a value that many rows have gets the middle of their shares.

    >>> graded(np.array([-1.0, 0.5, 2.0]), np.linspace(0, 1, POINTS).astype(np.float32)).tolist()
    [0.0, 0.5, 1.0]
    """
    different, first, count = np.unique(quantiles.astype(np.float64), return_index=True, return_counts=True)
    levels = (LEVELS[first] + LEVELS[first + count - 1]) / 2
    return np.interp(np.asarray(values, np.float64), different, levels, left=0.0, right=1.0)


def far_from(outside: int, rows: int) -> str:
    """Return a warning if many of N rows are far from the dataset that a model was fitted to, else an empty text."""
    if outside <= max(FAR_SHARE * rows, FEW_FAR):
        return ""
    return (
        f"{outside / rows:.0%} of the images are farther from the dataset the model was fitted to than 99 "
        "% of its images: unc_fitted is unreliable for them; fit again with them"
    )


@dataclass(frozen=True)
class FittedScores:
    """The fitted scores of N rows.

    Attributes:
        columns: by name, each shape (N,); see ``scoring.relative.columns``. Scores are float32; indices of clusters and
            groups are int32, -1 for none.
        outside: share of the rows farther from the dataset than 99 % of the dataset's rows; 0 without rows.
        recall: share of the true neighbours that the search found.
        learned: accuracy with labels; None without labels.
    """

    columns: Columns
    outside: float
    recall: Recall = field(default_factory=Recall.of_everything)
    learned: Learned | None = None


@dataclass(frozen=True)
class RowStanding:
    """Properties of N rows that enter the scores of their neighbours; each float32, shape (N,).

    Attributes:
        share: ambiguity.
        level: log odds of junk; very low if unknown.
        fitted: the score.
    """

    share: NDArray[np.float32]
    level: NDArray[np.float32]
    fitted: NDArray[np.float32]


NOBODY = RowStanding(*(np.zeros(0, np.float32),) * 3)


@dataclass(frozen=True)
class DatasetFit:
    """A score fitted to a dataset of N rows.

    Attributes:
        mean: of the dataset's normalised rows, shape (D,), float32.
        references: rows that others are compared with, as stored, shape (R, D), float16, R <= 20,000; a sample of a
            larger dataset.
        centres: of clusterings at several sizes, k -> shape (k, D), float32.
        quantiles: of each signal among the references, and of ``ambiguity``, shape (1001,) each.
        near: the 10 nearest references of each reference, shape (R, 10), int32.
        clusters: centres of the clusters that rows are assigned to, shape (k, D), float32.
        groups: groups of images unlike the rest: direction and bound, shape (G, D + 1), float32; see
            ``scoring.relative.unlike``.
        junk: the junk classifier; None if unknown or not applicable.
        weights: of the rule.
        propagated: labels propagated from some rows; None without labels.
        standing: of the references.
    """

    mean: NDArray[np.float32]
    references: NDArray[np.float16]
    centres: Centroids
    quantiles: Mapping[str, NDArray[np.float32]]
    near: NDArray[np.int32]
    clusters: NDArray[np.float32] = field(default_factory=lambda: NO_CLUSTERS)
    groups: NDArray[np.float32] = field(default_factory=lambda: NO_GROUPS)
    junk: JunkClassifier | None = None
    weights: Mapping[str, float] = field(default_factory=lambda: dict(WEIGHTS))
    propagated: Propagated | None = None
    standing: RowStanding = NOBODY

    @property
    def n_bytes(self) -> int:
        """Size of the stored arrays in bytes."""
        held = self.mean.nbytes + self.references.nbytes + self.near.nbytes + 3 * self.standing.share.nbytes
        held += self.clusters.nbytes + self.groups.nbytes + (self.propagated.n_bytes if self.propagated else 0)
        return held + sum(each.nbytes for each in (*self.centres.values(), *self.quantiles.values()))

    @property
    def far(self) -> float:
        """The 99 % quantile of the distance of the dataset's rows; rows beyond it count as outside."""
        quantiles = self.quantiles["distance"]
        return float(quantiles[round(FAR * (len(quantiles) - 1))])

    @cached_property
    def _centred_references(self) -> tuple[Centred, RowPlaces]:
        """The centred references, and their clusters."""
        rows = centred(self.references, self.mean)
        return rows, place_of(rows, self.centres)

    def score(self, embeddings: Array, junk: Array | None = None) -> FittedScores:
        """Score rows independently of each other: a row of the dataset gets the same scores as a new one.

        A row that is itself a reference counts as its copy, and copies are ignored.

        Args:
            embeddings: shape (N, D), of any length above 0; rounded to float16, as tables store them.
            junk: log odds of junk of the same rows, shape (N,), NaN if unknown; None if all are unknown.
        """
        references, of_references = self._centred_references
        parts: list[Columns] = []
        start = 0
        for part in blocks(stored(embeddings)):
            rows, block = centred(part, self.mean), slice(start, start + len(part))
            near = near_to(rows, references)
            signals = signals_of(RowsAmongOthers(near, place_of(rows, self.centres), of_references, self.near))
            more = {OTHER: self.propagated.other_class(rows.units, near)} if self.propagated else {}
            odds = None if junk is None else junk[block]
            parts.append(self.columns_of(rows, signals | more, odds, near, self.standing)[0])
            start = block.stop
        return self.with_recall(
            {name: np.concatenate([each[name] for each in parts]) for name in parts[0]} if parts else {}
        )

    def score_images(self, seen: JunkInputs) -> FittedScores:
        """Score images that are not rows of the dataset, independently of each other, including junk scores.

        Args:
            seen: N images, with the columns that ``junk`` reads.

        Returns:
            all columns of ``scoring.relative.columns.PER_IMAGE``; ``p_junk`` is NaN if it does not apply.

        Raises:
            KeyError: for a missing column.
        """
        odds = None if self.junk is None else self.junk.log_odds(seen)
        scores = self.score(seen.embedding, odds)
        junk = np.full(len(seen), np.nan, np.float32) if odds is None else probability_of(odds)
        return replace(scores, columns={JUNK: junk, **scores.columns})

    def with_quantiles(self, signals: Mapping[str, Floats]) -> Self:
        """Return the fit with the quantiles of the dataset's signals and of the ambiguity."""
        quantiles = {name: quantiles_of(values) for name, values in signals.items()}
        fit = replace(self, quantiles=quantiles)
        return replace(fit, quantiles={**quantiles, AMBIGUITY: quantiles_of(fit.ambiguity(signals))})

    def ambiguity(self, signals: Mapping[str, Floats]) -> Floats:
        """Return the ambiguity from signals by the rule, shape (N,), in [0, 1]."""
        return combined({name: graded(signals[name], self.quantiles[name]) for name in self.weights}, self.weights)

    def columns_of(
        self,
        rows: Centred,
        signals: Mapping[str, Floats],
        junk: Array | None,
        near: Near,
        others: RowStanding | None = None,
    ) -> tuple[Columns, RowStanding]:
        """Return the columns of N rows, and their ``RowStanding``.

        Args:
            rows: centred.
            signals: of the rows.
            junk: log odds of junk, shape (N,), NaN if unknown; None if all are unknown.
            near: neighbours of the rows among the others.
            others: standing of the others; None if they are the rows themselves.
        """
        share = graded(self.ambiguity(signals), self.quantiles[AMBIGUITY])
        odds = np.nan_to_num(junk, nan=NO_JUNK) if junk is not None else np.full(len(share), NO_JUNK)
        standing = RowStanding(share.astype(np.float32), odds.astype(np.float32), NOBODY.fitted)
        of = others or standing
        raised = lifted(standing.share, standing.level, near.index[:, 0], (of.share, of.level))
        fitted = composed(probability_of(odds), raised.astype(np.float64)).astype(np.float32)
        local = among_neighbours(fitted, near, fitted if others is None else others.fitted)
        columns: Columns = {NEIGHBOUR: signals["distance"].astype(np.float32), AMBIGUOUS: standing.share}
        columns |= {FITTED: fitted, LOCAL: local, **self.groups_of(rows)}
        return columns, replace(standing, fitted=fitted)

    def groups_of(self, rows: Centred) -> Columns:
        """Return the cluster of each row, and its group of images unlike the rest; -1 for none."""
        if not len(self.clusters):
            return {CLUSTER: np.full(len(rows), -1, np.int32), UNLIKE: np.full(len(rows), -1, np.int32)}
        cluster = labels_of(rows.units, {len(self.clusters): self.clusters})[:, 0].astype(np.int32)
        group = group_numbers(rows.units, self.groups)
        return {CLUSTER: cluster, UNLIKE: np.where((cluster >= 0) & (group > 0), group, -1).astype(np.int32)}

    def with_recall(self, columns: Columns, recall: Recall | None = None) -> FittedScores:
        """Return the columns with the share of rows outside the fitted dataset."""
        distance = columns.get(NEIGHBOUR, NOBODY.share)
        outside = float((distance > self.far).mean()) if len(distance) else 0.0
        return FittedScores(columns, outside, recall or Recall.of_everything())


@dataclass(frozen=True)
class LaidOutRows:
    """The directions, neighbours and signals of N rows of one dataset."""

    rows: Centred
    near: Near
    signals: dict[str, Floats]

    @property
    def closest(self) -> NDArray[np.int32]:
        """The 10 nearest rows of each row, shape (N, 10); -1 if there are fewer."""
        index = self.near.index[:, :CLOSE].astype(np.int32)
        return np.pad(index, ((0, 0), (0, CLOSE - index.shape[1])), constant_values=-1)


def laid_out(rows: Centred, centres: Centroids) -> LaidOutRows:
    """Compute the directions, neighbours and signals of a dataset's rows."""
    place, near = place_of(rows, centres), near_in(rows)
    bare = LaidOutRows(rows, near, {})
    return replace(bare, signals=signals_of(RowsAmongOthers(near, place, place, bare.closest)))


def signals_of(view: RowsAmongOthers) -> dict[str, Floats]:
    """Return every signal of rows by its name."""
    return {name: signal(view) for name, signal in SIGNALS.items()}


def place_of(rows: Centred, centres: Centroids) -> RowPlaces:
    """Return the clusters of rows, independently of each other."""
    return RowPlaces(labels_of(rows.units, centres))


def stored(embeddings: Array) -> NDArray[np.float16]:
    """Return rows at unit length in float16, as tables store them; float16 rows are unchanged."""
    if embeddings.dtype == np.float16:
        return embeddings
    return np.concatenate([unit(part).astype(np.float16) for part in blocks(embeddings)])


def blocks(rows: Array) -> Iterator[Array]:
    """Yield blocks of a few thousand rows."""
    for start in range(0, len(rows), BLOCK):
        yield rows[start : start + BLOCK]
