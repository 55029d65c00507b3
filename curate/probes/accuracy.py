"""The probe of a round, and its accuracy on held-out rows."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from curate.probes.probabilities import Labelled
from scoring.arrays import Array
from scoring.metrics.proportions import wilson

if TYPE_CHECKING:
    from curate.probes.linear import FeatureScale, Probe


def fit(
    kind: str,
    vectors: Array,
    known: Labelled,
    *,
    spread: "FeatureScale | None" = None,
    calibrate: bool = True,
    seed: int = 0,
) -> "Probe":
    """Fit a probe on rows with a known class.

    Args:
        kind: "linear" or "knn".
        vectors: of all rows, shape (N, D).
        known: labelled rows, at least one.
        spread: scaling of the features; None to compute it.
        calibrate: whether probabilities are calibrated.
        seed: of the folds.
    """
    from curate.probes.linear import fit_linear_probe, spread_of
    from curate.probes.neighbours import fit_neighbour_probe

    rows, n_classes = vectors[known.rows], len(known.classes)
    if kind == "knn":
        return fit_neighbour_probe(rows, known.codes, n_classes, calibrate=calibrate)
    spread = spread or spread_of(vectors)
    return fit_linear_probe(rows, known.codes, n_classes, spread=spread, calibrate=calibrate, seed=seed)


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of the probe on held-out rows, with Wilson's 95 % interval.

    Attributes:
        right: number of correctly predicted rows.
        n: number of rows.
        accuracy: right / n; None without rows.
        low: lower end of the interval.
        high: upper end.
    """

    right: int = 0
    n: int = 0
    accuracy: float | None = None
    low: float = 0.0
    high: float = 1.0


def accuracy(probe: "Probe", vectors: Array, known: Labelled) -> Accuracy:
    """Return the accuracy of a probe on rows with a known class."""
    if not len(known):
        return Accuracy()
    right = int((probe.predict(vectors[known.rows]).argmax(1) == known.codes).sum())
    share = wilson(right, len(known))
    return Accuracy(right, len(known), share.value, share.low, share.high)


def entropy_share(probabilities: NDArray[np.float32]) -> float:
    """Return the mean entropy of rows of probabilities relative to uniform: 0 is certain, 1 uninformative."""
    if probabilities.shape[1] < 2 or not len(probabilities):
        return 0.0
    p = probabilities.astype(np.float64)
    return float(-(p * np.log(np.maximum(p, 1e-300))).sum(1).mean() / np.log(probabilities.shape[1]))
