"""The light model of a round, and what it is worth on rows that are held out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.probes.linear import Probe, Spread, fit_linear_probe, spread_of
from curate.probes.neighbours import fit_neighbour_probe
from scoring.metrics.proportions import wilson

NO_CLASS = -1


@dataclass(frozen=True)
class Known:
    """Rows whose class is agreed on.

    Attributes:
        rows: of the table, ascending, shape (L,).
        labels: places in ``classes``, shape (L,) int64.
        classes: names, sorted as given, else by name.
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def among(self, rows: NDArray[np.int64]) -> "Known":
        """Return those that are among some rows."""
        inside = np.isin(self.rows, rows)
        return Known(self.rows[inside], self.labels[inside], self.classes)


def fit(
    kind: str, vectors: NDArray, known: Known, *, spread: Spread | None = None, calibrate: bool = True, seed: int = 0
) -> Probe:
    """Fit the light model on rows whose class is known.

    Args:
        kind: "linear" or "knn".
        vectors: of all rows, shape (N, D).
        known: at least one row.
        spread: of the pool; None measures it.
        calibrate: whether chances are calibrated.
        seed: of the folds.
    """
    rows, n_classes = vectors[known.rows], len(known.classes)
    if kind == "knn":
        return fit_neighbour_probe(rows, known.labels, n_classes, calibrate=calibrate)
    spread = spread or spread_of(vectors)
    return fit_linear_probe(rows, known.labels, n_classes, spread=spread, calibrate=calibrate, seed=seed)


@dataclass(frozen=True)
class Accuracy:
    """How often the light model is right on rows that are held out, with Wilson's 95 % interval."""

    right: int
    n: int

    def to_json(self) -> dict[str, float | int | None]:
        """Return counts, share and interval as plain JSON; without rows the share is null."""
        if not self.n:
            return {"right": 0, "n": 0, "accuracy": None, "low": 0.0, "high": 1.0}
        found = wilson(self.right, self.n)
        return {"right": self.right, "n": self.n, "accuracy": found.value, "low": found.low, "high": found.high}


def accuracy(probe: Probe, vectors: NDArray, known: Known) -> Accuracy:
    """Return how often a light model is right on rows whose class is known."""
    if not len(known):
        return Accuracy(0, 0)
    predicted = probe.predict(vectors[known.rows]).argmax(1)
    return Accuracy(int((predicted == known.labels).sum()), len(known))


def entropy_share(chances: NDArray[np.float32]) -> float:
    """Return the mean entropy of rows of chances over that of an even guess: 0 is sure, 1 knows nothing."""
    if chances.shape[1] < 2 or not len(chances):
        return 0.0
    p = chances.astype(np.float64)
    return float(-(p * np.log(np.maximum(p, 1e-300))).sum(1).mean() / np.log(chances.shape[1]))
