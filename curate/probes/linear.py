"""The probe of a round: a linear classifier on embeddings, with calibrated probabilities."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array
from scoring.errors import InputError

if TYPE_CHECKING:
    import torch

    from scoring.metrics.classifier import LinearClassifier

STRENGTH = 4.0  # mean norm of scaled features, which sets the strength of the penalty
FOLDS = 5
LEAST_ROWS = 20  # labelled rows that a temperature is fitted on
COLDEST, HOTTEST = 0.02, 50.0  # range of the temperature of a linear probe
BLOCK_NUMBERS = 4_000_000  # numbers held at a time while predicting
TOLERANCE = 1e-7  # gradient of the mean loss at which a fit is done
GOLDEN = (5**0.5 - 1) / 2


class Probe(Protocol):
    """A model fitted on labelled rows."""

    def predict(self, vectors: Array) -> NDArray[np.float32]:
        """Return class probabilities, shape (N, C); vectors (N, D) are read in blocks."""


@dataclass(frozen=True)
class FeatureScale:
    """Centring and scaling of features: (x - mean) * scale.

    Attributes:
        mean: shape (D,) float64.
        scale: such that the mean norm of the training rows is ``STRENGTH``.
    """

    mean: NDArray[np.float64]
    scale: float


def spread_of(vectors: Array) -> FeatureScale:
    """Return the mean of rows (N >= 1, D) and their scale, computed in blocks; scale 1 if all rows are equal."""
    total, length = np.zeros(vectors.shape[1]), 0.0
    size = max(1, BLOCK_NUMBERS // vectors.shape[1])
    pieces = [slice(start, start + size) for start in range(0, len(vectors), size)]
    for at in pieces:
        total += vectors[at].sum(0, dtype=np.float64)
    mean = total / len(vectors)
    for at in pieces:
        length += float(np.linalg.norm(vectors[at].astype(np.float64) - mean, axis=1).sum())
    length /= len(vectors)
    return FeatureScale(mean, STRENGTH / length if length > 1e-9 else 1.0)


@dataclass(frozen=True)
class LinearProbe:
    """Multinomial logistic regression, with logits divided by a temperature.

    Attributes:
        weight: shape (D, C) float64, for vectors as stored.
        bias: shape (C,) float64; -inf for a class without a labelled row.
        temperature: above 1 if the fit was overconfident.
    """

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    temperature: float = 1.0

    def predict(self, vectors: Array) -> NDArray[np.float32]:
        """Return class probabilities, shape (N, C) float32; 0 for a class without labelled rows."""
        probabilities = np.empty((len(vectors), len(self.bias)), np.float32)
        size = max(1, BLOCK_NUMBERS // max(self.weight.shape))
        for start in range(0, len(vectors), size):
            block = vectors[start : start + size].astype(np.float64)
            probabilities[start : start + size] = softmax((block @ self.weight + self.bias) / self.temperature)
        return probabilities


def fit_linear_probe(
    vectors: Array,
    labels: NDArray[np.int64],
    n_classes: int,
    *,
    spread: FeatureScale | None = None,
    calibrate: bool = True,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> LinearProbe:
    """Fit a linear probe on labelled rows; deterministic.

    Features are centred and scaled by ``spread``, then sum_i CE_i + |W|^2 / 2 is minimised from zero in float64, with
    an unpenalised bias. With ``calibrate`` and at least ``LEAST_ROWS`` rows in classes of several rows, a temperature
    is fitted to out-of-fold logits of ``FOLDS`` folds.

    Args:
        vectors: of the labelled rows, shape (L, D), finite.
        labels: shape (L,), int64, in [0, n_classes).
        n_classes: C; a class without rows is never predicted, a single class with probability 1.
        spread: scaling by the whole pool, independent of the few labels; None to use the labelled rows.
        calibrate: whether to fit the temperature.
        tolerance: largest gradient entry of the mean loss at convergence, not for the temperature.
        seed: of the folds.

    Raises:
        InputError: without labelled rows, or with a label out of range.
    """
    import torch  # not at the top: rounds without labels fit nothing

    check_labelled(vectors, labels, n_classes)
    spread = spread or spread_of(vectors)
    rows = torch.from_numpy((vectors.astype(np.float64) - spread.mean) * spread.scale)
    target = torch.from_numpy(np.array(labels, np.int64))
    fitted = _fit(rows, target, n_classes, tolerance)
    temperature = _temperature(rows, target, n_classes, seed) if calibrate else 1.0
    weight = fitted.weight.numpy() * spread.scale
    return LinearProbe(weight, fitted.bias.numpy() - spread.mean @ weight, temperature)


def _fit(
    rows: "torch.Tensor", labels: "torch.Tensor", n_classes: int, tolerance: float = TOLERANCE
) -> "LinearClassifier":
    """Minimise sum CE + |W|^2 / 2 on unscaled rows: ``fit_linear`` scales them, so the penalty is rescaled."""
    from scoring.metrics.classifier import fit_linear

    length = float((rows - rows.mean(0)).square().sum(1).mean().sqrt()) or 1.0
    return fit_linear(rows, labels, n_classes, c=length**2, steps=1000, tolerance=tolerance)


def _temperature(rows: "torch.Tensor", labels: "torch.Tensor", n_classes: int, seed: int) -> float:
    """Return the temperature with the lowest loss on held-out rows; 1 with too few rows, or if all are equal."""
    import torch

    from scoring.metrics.classifier import spread_folds

    if len(rows) < LEAST_ROWS or len(torch.unique(labels)) < 2:  # a single class is certain at any temperature
        return 1.0
    fold = spread_folds(labels, FOLDS, seed=seed)
    logits, targets = [], []
    for number in range(FOLDS):
        train, held = fold != number, fold == number
        known = held & torch.isin(labels, labels[train])  # a class that this fold has never seen says nothing
        if known.any():
            logits.append(_fit(rows[train], labels[train], n_classes).logits(rows[known]).numpy())
            targets.append(labels[known].numpy())
    if sum(map(len, targets)) < LEAST_ROWS:
        return 1.0
    return coolest_fit(np.concatenate(logits), np.concatenate(targets))


def coolest_fit(logits: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Return the temperature T in [0.02, 50] at which softmax(logits / T) has the lowest mean cross-entropy.

    The loss is convex in 1/T, so a golden-section search over log T finds its minimum.

    Args:
        logits: shape (N, C); -inf excludes a class, never the label.
        labels: shape (N,).

    Source: Guo et al. 2017, arXiv:1706.04599, sec. 4.2.
    """
    below = logits - logits.max(1, keepdims=True)
    of_label, room = below[np.arange(len(labels)), labels], np.empty_like(below)

    def loss(log_t: float) -> float:
        np.divide(below, np.exp(log_t), out=room)
        return float((np.log(np.exp(room, out=room).sum(1)) - of_label / np.exp(log_t)).mean())

    low, high = np.log(COLDEST), np.log(HOTTEST)
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    of_left, of_right = loss(left), loss(right)
    for _ in range(60):
        if of_left <= of_right:
            high, right, of_right = right, left, of_left
            left = high - GOLDEN * (high - low)
            of_left = loss(left)
        else:
            low, left, of_left = left, right, of_right
            right = low + GOLDEN * (high - low)
            of_right = loss(right)
    return float(np.exp((low + high) / 2))


def softmax(logits: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the softmax of each row, shape (N, C), in the dtype of the logits."""
    raised = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(raised / raised.sum(1, keepdims=True))


def check_labelled(vectors: Array, labels: NDArray[np.int64], n_classes: int) -> None:
    """Raise InputError without labelled rows or for a label outside [0, n_classes), ValueError for unequal lengths."""
    if not len(labels):
        raise InputError("the probe needs at least one labelled row, got none; label a first batch")
    if len(vectors) != len(labels):
        raise ValueError(f"{len(vectors)} vectors and {len(labels)} labels")
    if labels.min() < 0 or labels.max() >= n_classes:
        raise InputError(
            f"labels must be integers in [0, {n_classes}), got {labels.min()} to {labels.max()};"
            " give every labelled row one of the classes"
        )
