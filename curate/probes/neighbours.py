"""The kNN probe: a weighted vote of the nearest labelled rows."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from curate.probes.linear import BLOCK_NUMBERS, LEAST_ROWS, check_labelled, softmax
from scoring.arrays import Array
from scoring.metrics import neighbours
from scoring.relative.space import unit

NEIGHBOURS = 20
USUAL = 0.07  # temperature where too few rows are labelled to choose one
TEMPERATURES = (0.01, 0.02, 0.04, 0.07, 0.12, 0.2, 0.4, 1.0)  # of a vote, in cosine


@dataclass(frozen=True)
class NeighbourProbe:
    """A weighted vote, exp(cosine / temperature), of the nearest labelled rows, plus one vote by the class shares.

    Attributes:
        vectors: unit rows that are labelled, shape (L, D) float32.
        labels: shape (L,) int64.
        shares: of each class among them, shape (C,) float64.
        k: number of neighbours.
        temperature: of the weights.
    """

    vectors: NDArray[np.float32]
    labels: NDArray[np.int64]
    shares: NDArray[np.float64]
    k: int
    temperature: float

    def predict(self, vectors: Array) -> NDArray[np.float32]:
        """Return class probabilities, shape (N, C) float32; 0 for a class without labelled rows."""
        probabilities = np.empty((len(vectors), len(self.shares)), np.float32)
        size = max(1, BLOCK_NUMBERS // max(vectors.shape[1], len(self.shares)))
        references = torch.from_numpy(self.vectors)
        for start in range(0, len(vectors), size):
            queries = torch.from_numpy(unit(vectors[start : start + size]))
            cosine, index = neighbours.nearest(queries, references, self.k)
            probabilities[start : start + size] = _votes(
                cosine.numpy(), self.labels[index.numpy()], self.shares, self.temperature
            )
        return probabilities


def fit_neighbour_probe(
    vectors: Array, labels: NDArray[np.int64], n_classes: int, *, k: int = NEIGHBOURS, calibrate: bool = True
) -> NeighbourProbe:
    """Fit a kNN probe: its temperature has the lowest leave-one-out loss.

    Args:
        vectors: of the labelled rows, shape (L, D), finite; normalised here.
        labels: shape (L,), int64, in [0, n_classes).
        n_classes: C; a class without rows is never predicted.
        k: number of neighbours; fewer if there are fewer labelled rows.
        calibrate: choose the temperature from ``TEMPERATURES`` if there are ``LEAST_ROWS`` rows; else it is 0.07.

    Raises:
        InputError: without labelled rows, or with a label out of range.

    Source: the vote of Wu et al. 2018, arXiv:1805.01978, sec. 3.4; the vote for the class shares is ours, and keeps
    every known class possible.
    """
    check_labelled(vectors, labels, n_classes)
    rows, labels = unit(vectors), np.ascontiguousarray(labels, np.int64)
    shares = np.bincount(labels, minlength=n_classes) / len(labels)
    temperature = USUAL
    if calibrate and len(rows) >= LEAST_ROWS:
        tensor = torch.from_numpy(rows)
        cosine, index = neighbours.nearest(tensor, tensor, min(k, len(rows) - 1), same=True)
        near, classes, every = cosine.numpy(), labels[index.numpy()], np.arange(len(rows))
        losses = [-np.log(_votes(near, classes, shares, t)[every, labels]).mean() for t in TEMPERATURES]
        temperature = TEMPERATURES[int(np.argmin(losses))]
    return NeighbourProbe(rows, labels, shares, min(k, len(rows)), temperature)


def _votes(
    cosine: Array, classes: NDArray[np.int64], shares: NDArray[np.float64], temperature: float
) -> NDArray[np.float64]:
    """Return probabilities, shape (N, C), from the cosines and classes of k neighbours, shape (N, k) each."""
    n, k = cosine.shape
    weight = softmax(cosine.astype(np.float64) / temperature)
    cell = np.arange(n)[:, None] * len(shares) + classes
    votes = np.bincount(cell.ravel(), weight.ravel(), minlength=n * len(shares)).reshape(n, len(shares))
    return np.asarray((k * votes + shares) / (k + 1))
