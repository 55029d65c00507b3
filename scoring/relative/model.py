"""A score fitted to a dataset: what is stored of the dataset, and its columns for rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from scoring.junk.classifier import JunkClassifier, probability_of
from scoring.junk.features import JunkInputs
from scoring.relative.columns import AMBIGUOUS, CLUSTER, FITTED, JUNK, LOCAL, NEIGHBOUR, UNLIKE
from scoring.relative.neighbours import Near, near_in, near_to
from scoring.relative.propagated import OTHER, Learned, Propagated
from scoring.relative.rule import PICTURE, WEIGHTS, combined, composed, lifted
from scoring.relative.signals import CLOSE, SIGNALS, RowPlaces, RowsAmongOthers
from scoring.relative.space import BLOCK, Centred, centred, unit
from scoring.relative.unlike import Centroids, group_numbers, labels_of
from scoring.search.links import Recall

POINTS = 1001  # quantiles that are kept
LEVELS = np.linspace(0, 1, POINTS)
AMBIGUITY = "ambiguity"  # what the rule makes of the signals
FAR = 0.99  # quantile of the distances in the dataset beyond which a row lies outside of it
FAR_SHARE = 0.05  # of rows outside, above which a note is shown
FEW_FAR = 3  # rows outside that occur by chance in a small set
NO_JUNK = -10.0  # log odds of junk of a row of which none are known
Floats = NDArray[np.float64]
Columns = dict[str, NDArray[Any]]
NO_NEAR = np.zeros((0, CLOSE), np.int32)
NO_CLUSTERS = NO_GROUPS = np.zeros((0, 0), np.float32)


def among_neighbours(fitted: NDArray[np.floating], near: Near, of_others: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the share of a row's 10 nearest rows that are less ambiguous, halved; junk keeps its score.

    Cut by it, each neighbourhood of images loses the same share, where a cut by the score itself empties the parts of
    a dataset in which all is hard to recognise: the parts from which a model has most to learn.

    Args:
        fitted: the score of N rows: at most .5 for an image, above for junk; shape (N,).
        near: their neighbours among R others.
        of_others: the score of those, shape (R,).

    Returns:
        Shape (N,): in [0, .5] for an image, rows with equally many clearer neighbours in the order of their scores;
        the score itself for junk.
    """
    index, exists = near.index[:, :CLOSE].clip(0), near.exists[:, :CLOSE]
    clearer = ((of_others[index] < np.asarray(fitted)[:, None]) & exists).sum(1)
    position = np.clip(np.asarray(fitted, np.float64) / PICTURE, 0, 1)
    standing = (clearer + position) / (exists.sum(1) + 1)
    return np.where(fitted > PICTURE, fitted, standing * PICTURE).astype(np.float32)


def quantiles_of(values: NDArray) -> NDArray[np.float32]:
    """Return the quantiles of values, shape (1001,), ascending; all 0 without values."""
    if not len(values):
        return np.zeros(POINTS, np.float32)
    return np.quantile(np.asarray(values, np.float64), LEVELS).astype(np.float32)


def graded(values: NDArray, quantiles: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the share of a dataset that lies below each value, ties counting half, in [0, 1].

    Between two quantiles it is interpolated; a value that many rows of the dataset have gets the middle of their
    shares.

    >>> graded(np.array([-1.0, 0.5, 2.0]), np.linspace(0, 1, POINTS).astype(np.float32)).tolist()
    [0.0, 0.5, 1.0]
    """
    different, first, count = np.unique(quantiles.astype(np.float64), return_index=True, return_counts=True)
    levels = (LEVELS[first] + LEVELS[first + count - 1]) / 2
    return np.interp(np.asarray(values, np.float64), different, levels, left=0.0, right=1.0)


def far_from(outside: int, rows: int) -> str:
    """Return a warning if many of N rows lie outside of the dataset a model was fitted to, else an empty text."""
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
        columns: by name, each shape (N,); see ``scoring.relative.columns``. Scores are float32; numbers of clusters and
            of groups int32, -1 for none.
        outside: share of the rows that lie farther from the dataset than 99 % of the dataset's rows; 0 without rows.
        recall: share of the true neighbours that the search found.
        learned: how good labels were; None without.
    """

    columns: Columns
    outside: float
    recall: Recall = field(default_factory=Recall.of_everything)
    learned: Learned | None = None


@dataclass(frozen=True)
class RowStanding:
    """What near rows contribute to a row's score, for N rows: each float32 and of shape (N,).

    Attributes:
        share: how ambiguous each is.
        level: log odds of junk; very low where they are not known.
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
        mean: of the dataset's rows at length 1, shape (D,), float32.
        references: rows that others are compared with, as stored, shape (R, D), float16, R <= 20,000; of a larger
            dataset a draw.
        centres: of clusterings at several sizes, k -> shape (k, D), float32.
        quantiles: of each signal among the references, and of ``ambiguity``, shape (1001,) each.
        near: the 10 nearest references of each, shape (R, 10), int32.
        clusters: centres of the clusters whose numbers rows get, shape (k, D), float32.
        groups: of images unlike the rest: the direction of each and its bound, shape (G, D + 1), float32; see
            ``scoring.relative.unlike``.
        junk: what separates the dataset from corrupted copies of its images; None where it is not known, or does not
            apply.
        weights: of the rule.
        propagated: what labels of some rows say of the others; None without labels.
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
        """The distance beyond which a row lies outside of the dataset: 99 % of the dataset's rows lie nearer."""
        quantiles = self.quantiles["distance"]
        return float(quantiles[round(FAR * (len(quantiles) - 1))])

    @cached_property
    def _placed(self) -> tuple[Centred, RowPlaces]:
        """The centred references, and the clusters of each."""
        rows = centred(self.references, self.mean)
        return rows, place_of(rows, self.centres)

    def score(self, embeddings: NDArray, junk: NDArray | None = None) -> FittedScores:
        """Score rows, each on its own: the same for a row of the dataset as for a new one.

        A row that is among the references itself is a copy there, and copies do not count.

        Args:
            embeddings: shape (N, D), of any length above 0; taken in float16, as tables store them.
            junk: log odds of junk of the same rows, shape (N,), NaN for an unknown one; None where none is known.
        """
        references, of_references = self._placed
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
        """Score images that are not rows of the dataset, each on its own, junk scores included.

        Args:
            seen: N images, with the columns that ``junk`` reads.

        Returns:
            all columns of ``scoring.relative.columns.PER_IMAGE``; ``p_junk`` is NaN where it does not apply.

        Raises:
            KeyError: for a column that is missing.
        """
        odds = None if self.junk is None else self.junk.log_odds(seen)
        scores = self.score(seen.embedding, odds)
        junk = np.full(len(seen), np.nan, np.float32) if odds is None else probability_of(odds)
        return replace(scores, columns={JUNK: junk, **scores.columns})

    def with_quantiles(self, signals: Mapping[str, Floats]) -> Self:
        """Return the fit with the quantiles of the dataset's signals and of their combination by the rule."""
        quantiles = {name: quantiles_of(values) for name, values in signals.items()}
        fit = replace(self, quantiles=quantiles)
        return replace(fit, quantiles={**quantiles, AMBIGUITY: quantiles_of(fit.ambiguity(signals))})

    def ambiguity(self, signals: Mapping[str, Floats]) -> Floats:
        """Return the ambiguity by the rule from signals, shape (N,), in [0, 1]."""
        return combined({name: graded(signals[name], self.quantiles[name]) for name in self.weights}, self.weights)

    def columns_of(
        self,
        rows: Centred,
        signals: Mapping[str, Floats],
        junk: NDArray | None,
        near: Near,
        others: RowStanding | None = None,
    ) -> tuple[Columns, RowStanding]:
        """Return the columns of N rows, and their standing.

        Args:
            rows: centred.
            signals: of the rows.
            junk: log odds of junk, shape (N,), NaN for an unknown one; None where none is known.
            near: neighbours of the rows among the others.
            others: their standing; None where they are the rows themselves.
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
        """Return the number of the cluster of each row, and of its group of images unlike the rest; -1 for none."""
        if not len(self.clusters):
            return {CLUSTER: np.full(len(rows), -1, np.int32), UNLIKE: np.full(len(rows), -1, np.int32)}
        cluster = labels_of(rows.units, {len(self.clusters): self.clusters})[:, 0].astype(np.int32)
        group = group_numbers(rows.units, self.groups)
        return {CLUSTER: cluster, UNLIKE: np.where((cluster >= 0) & (group > 0), group, -1).astype(np.int32)}

    def with_recall(self, columns: Columns, recall: Recall | None = None) -> FittedScores:
        """Return columns with the number of rows outside of the fitted dataset."""
        distance = columns.get(NEIGHBOUR, NOBODY.share)
        outside = float((distance > self.far).mean()) if len(distance) else 0.0
        return FittedScores(columns, outside, recall or Recall.of_everything())


@dataclass(frozen=True)
class LaidOutRows:
    """N rows of one dataset: their directions, neighbours and signals."""

    rows: Centred
    near: Near
    signals: dict[str, Floats]

    @property
    def closest(self) -> NDArray[np.int32]:
        """The 10 nearest rows of each, shape (N, 10); -1 where there are fewer."""
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
    """Return the places of rows, each on its own."""
    return RowPlaces(labels_of(rows.units, centres))


def stored(embeddings: NDArray) -> NDArray[np.float16]:
    """Return rows at unit length in float16, as tables store them; float16 rows are unchanged."""
    if embeddings.dtype == np.float16:
        return embeddings
    return np.concatenate([unit(part).astype(np.float16) for part in blocks(embeddings)])


def blocks(rows: NDArray) -> Iterator[NDArray]:
    """Yield blocks of some thousand rows."""
    for start in range(0, len(rows), BLOCK):
        yield rows[start : start + BLOCK]
