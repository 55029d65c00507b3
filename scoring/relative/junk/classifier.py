"""The junk classifier: dataset images against corrupted copies, cross-fitted, robust to junk in the dataset.

Linear in scaled features and in the embedding. Junk already in the dataset, often as groups of near duplicates, must
not be learned as normal. So suspects are first found by classifiers trained without the image's cluster, and removed
from training; then every image is scored by a classifier trained without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array, Floats
from scoring.errors import InputError
from scoring.relative.junk.features import JunkInputs, Scale, columns_read
from scoring.relative.junk.heldout import FEWEST_COMPARED, MOST_FLAGGED, NONE, UNDECIDED, HeldOut, held_out, nearness
from scoring.relative.junk.threshold import tail_bound, threshold_of
from scoring.search.kmeans import assign, spherical_kmeans

FOLDS = 3  # number of folds; each image is scored out of fold
CLUSTER_FOLDS = 4  # of the search for suspects
ROUNDS = 3  # of the search for suspects, with the embedding
SUSPECT_TAIL, SUSPECT_LEAST, SUSPECT_SHARE = 3.2, -1.0, 0.03  # threshold of suspects; see ``tail_bound``
ROWS_A_CLUSTER, CLUSTERS = 60, (6, 40)  # images a cluster; fewest and most clusters
DIMENSIONS = 128  # number of principal axes of the embedding, of dataset and copies together
PENALTY = 3e-3  # ridge penalty for the mean log loss
EMBEDDING_LENGTH = 4.0  # root mean square length of the reduced embedding, in standard deviations of a feature
LEAST_IMAGES = 50  # of a dataset
LEAST_NORMAL = 0.2  # minimal share of images that are not suspects
BLOCK = 8192  # rows scored at a time
NEWTON_STEPS, HALVINGS = 100, 30  # at most; some ten steps are needed
NEWTON_ENDS = 1e-14  # convergence threshold on the decrease of the loss
LEAST_CURVATURE = 1e-10  # for the unpenalised intercept


@dataclass(frozen=True)
class JunkClassifier:
    """A classifier that separates a dataset from corrupted copies of its images.

    Attributes:
        names: columns of the features.
        scale: scaling of the features.
        mean: of the dataset's normalised embeddings, shape (D,).
        on_features: coefficients of each fold, shape (K, G).
        on_embedding: the same, shape (K, D).
        intercept: the same, shape (K,).
        threshold: log odds at which ``p_junk`` is 0.5.
    """

    names: tuple[str, ...]
    scale: Scale
    mean: Floats
    on_features: Floats
    on_embedding: Floats
    intercept: Floats
    threshold: float

    def log_odds(self, seen: JunkInputs) -> Floats:
        """Return the log odds of junk, shape (N,): the mean over the folds minus the threshold.

        Raises KeyError for a missing column, ValueError for embeddings of another width.
        """
        if seen.embedding.shape[1] != len(self.mean):
            raise ValueError(f"expected embeddings of {len(self.mean)} numbers, got {seen.embedding.shape[1]}")
        odds = np.empty(len(seen))
        on_features, on_embedding = self.on_features.mean(0), self.on_embedding.mean(0)
        for start in range(0, len(seen), BLOCK):
            part = seen.take(slice(start, start + BLOCK))  # type: ignore[arg-type]
            features = self.scale.scaled(part.features(self.names))
            odds[start : start + BLOCK] = features @ on_features + (_units(part.embedding) - self.mean) @ on_embedding
        return odds + self.intercept.mean() - self.threshold

    def probability(self, seen: JunkInputs) -> NDArray[np.float32]:
        """Return ``p_junk``, shape (N,), in (0, 1); see ``probability_of``."""
        return probability_of(self.log_odds(seen))


@dataclass(frozen=True)
class TrainedClassifier:
    """A classifier, and its results on its training images.

    Attributes:
        classifier: the classifier.
        log_odds: out-of-fold log odds minus the threshold, shape (N,); set to 0 for flagged images that are more like
            other images than like corrupted copies.
        held_out: accuracy on held-out images and corrupted copies.
    """

    classifier: JunkClassifier
    log_odds: Floats
    held_out: HeldOut


def probability_of(log_odds: Array) -> NDArray[np.float32]:
    """Return the probabilities for log odds, float32.

    >>> probability_of(np.array([0.0, 3.0])).round(2).tolist()
    [0.5, 0.949999988079071]
    """
    return (0.5 * (1 + np.tanh(np.asarray(log_odds, np.float64) / 2))).astype(np.float32)


def train(
    dataset: JunkInputs, corrupted: JunkInputs, source: NDArray[np.int64], kinds: Sequence[str]
) -> TrainedClassifier:
    """Train the junk classifier of a dataset; InputError for fewer than 50 images.

    Args:
        dataset: N images, one of each group of duplicates, in an order independent of their content.
        corrupted: P corrupted copies of some of them.
        source: index of the image of each copy, shape (P,).
        kinds: of corruption, P names.
    """
    if len(dataset) < LEAST_IMAGES:
        raise InputError(f"expected at least {LEAST_IMAGES} different images, got {len(dataset)}")
    names = tuple(name for name in columns_read(dataset.columns) if name in corrupted.columns)
    plain, damaged = dataset.features(names), corrupted.features(names)
    scale = Scale.of(plain, damaged)
    axes = _Axes.of(dataset.embedding, corrupted.embedding)
    plain_rows, damaged_rows = scale.scaled(plain), scale.scaled(damaged)
    reduced, reduced_copies = axes.reduced(dataset.embedding), axes.reduced(corrupted.embedding)

    by_cluster = _Folds(_cluster_folds(reduced), source % CLUSTER_FOLDS, CLUSTER_FOLDS)
    normal = np.ones(len(dataset), bool)
    inputs = _Inputs(np.concatenate([plain_rows, reduced], 1), np.concatenate([damaged_rows, reduced_copies], 1))
    for number in range(1 + ROUNDS):
        first = _Inputs(plain_rows, damaged_rows) if number == 0 and names else inputs
        judged, copies, _ = _cross_fitted(first, by_cluster, normal)
        bound = tail_bound(judged[normal], SUSPECT_TAIL)
        normal = judged < np.clip(bound, SUSPECT_LEAST, np.quantile(copies, SUSPECT_SHARE))
        if normal.sum() < LEAST_NORMAL * len(dataset):  # not separable: the score will not apply
            normal = np.ones(len(dataset), bool)
            break
    folds = _Folds(np.arange(len(dataset)) % FOLDS, source % FOLDS, FOLDS)
    judged, copies, coefficients = _cross_fitted(inputs, folds, normal)
    threshold = threshold_of(judged, copies, normal)
    log_odds, near, in_features = judged - threshold, NONE, NONE
    above = log_odds > 0
    if len(dataset) >= FEWEST_COMPARED and above.mean() <= MOST_FLAGGED:  # above that, the score does not apply
        near = nearness(inputs.images, inputs.copies, source, above)
        if names:
            in_features = nearness(plain_rows, damaged_rows, source, above)
        log_odds[np.flatnonzero(above)[near > UNDECIDED]] = 0

    width = plain_rows.shape[1]
    classifier = JunkClassifier(
        names,
        scale,
        axes.mean,
        coefficients[:, :width],
        coefficients[:, width:-1] @ axes.axes.T,
        coefficients[:, -1],
        threshold,
    )
    measured = held_out(log_odds, copies - threshold, kinds, near, in_features)
    return TrainedClassifier(classifier, log_odds, measured)


@dataclass(frozen=True)
class _Inputs:
    """Scaled inputs of images (N, G) and corrupted copies (P, G)."""

    images: Floats
    copies: Floats


@dataclass(frozen=True)
class _Folds:
    """The folds of images (N,) and of corrupted copies (P,)."""

    images: NDArray[np.int64]
    copies: NDArray[np.int64]
    count: int


@dataclass(frozen=True)
class _Axes:
    """Principal axes of embeddings around the mean of the dataset: mean (D,) and scaled axes (D, K)."""

    mean: Floats
    axes: Floats

    @classmethod
    def of(cls, embedding: Array, copies: Array) -> "_Axes":
        units = _units(embedding)
        mean = units.mean(0)
        of_images, of_copies = units - mean, _units(copies) - mean
        spread = of_images.T @ of_images / len(of_images) + of_copies.T @ of_copies / len(of_copies)
        axes = np.linalg.eigh(spread)[1][:, ::-1][:, :DIMENSIONS]
        length = np.sqrt(((of_images @ axes) ** 2).sum(1).mean())
        return cls(mean, axes * (EMBEDDING_LENGTH / max(length, 1e-9)))

    def reduced(self, embedding: Array) -> Floats:
        """Return the reduced embeddings, shape (N, K)."""
        return (_units(embedding) - self.mean) @ self.axes


def _cluster_folds(reduced: Floats) -> NDArray[np.int64]:
    """Return a fold for each image, the same within a cluster."""
    k = int(np.clip(len(reduced) // ROWS_A_CLUSTER, *CLUSTERS))
    rows = reduced.astype(np.float32)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    centres = spherical_kmeans(rows, k, seed=0, iterations=10, sample=k * 256)
    cluster = assign(rows, centres)[0][:, 0].clip(0)
    return np.random.default_rng(0).permutation(np.arange(k) % CLUSTER_FOLDS)[cluster]


def _cross_fitted(inputs: _Inputs, folds: _Folds, normal: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Return out-of-fold log odds of images and of copies, and the coefficients of each fold, shape (K, G + 1).

    Images that are not ``normal``, shape (N,), are scored, but not used for training.
    """
    judged, copies, every = np.zeros(len(inputs.images)), np.zeros(len(inputs.copies)), []
    for fold in range(folds.count):
        image_rows = inputs.images[(folds.images != fold) & normal]
        copy_rows = inputs.copies[folds.copies != fold]
        coefficients = _logistic(
            np.concatenate([image_rows, copy_rows]), np.arange(len(image_rows) + len(copy_rows)) >= len(image_rows)
        )
        for out, rows, of in ((judged, inputs.images, folds.images), (copies, inputs.copies, folds.copies)):
            in_fold = of == fold
            out[in_fold] = rows[in_fold] @ coefficients[:-1] + coefficients[-1]
        every.append(coefficients)
    return judged, copies, np.stack(every)


def _logistic(rows: Floats, corrupted: NDArray[np.bool_]) -> Floats:
    """Return the coefficients and intercept of a ridge logistic regression with balanced classes.

    Fitted by Newton's method; the step is halved until the convex loss decreases.
    """
    sign = np.where(corrupted, 1.0, -1.0)
    weight = np.where(corrupted, 0.5 / max(corrupted.sum(), 1), 0.5 / max((~corrupted).sum(), 1))
    wide = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    penalty = np.full(wide.shape[1], PENALTY)
    penalty[-1] = 0

    def loss_at(beta: Floats) -> tuple[float, Floats]:
        margin = sign * (wide @ beta)
        return float(weight @ np.logaddexp(0, -margin) + 0.5 * penalty @ beta**2), margin

    beta = np.zeros(wide.shape[1])
    loss, margin = loss_at(beta)
    for _ in range(NEWTON_STEPS):
        wrong = 0.5 * (1 - np.tanh(margin / 2))  # the probability of the other class
        slope = penalty * beta - (weight * sign * wrong) @ wide
        curved = wide * np.sqrt(weight * wrong * (1 - wrong))[:, None]
        curvature = curved.T @ curved + np.diag(np.maximum(penalty, LEAST_CURVATURE))
        step = np.linalg.solve(curvature, slope)
        if slope @ step < NEWTON_ENDS:  # Newton decrement, twice the remaining decrease
            break
        for halving in range(HALVINGS):
            stepped = beta - step * 0.5**halving
            new_loss, new_margin = loss_at(stepped)
            if new_loss < loss:
                break
        else:
            break
        beta, loss, margin = stepped, new_loss, new_margin
    return beta


def _units(rows: Array) -> Floats:
    wide = rows.astype(np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
