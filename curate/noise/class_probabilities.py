"""The probabilities of the most likely classes of rows: memory for a few classes, whatever their number."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_KEPT = 16  # classes of a row: what lies below them decides nothing
LEAST = 1e-9  # probability of a class that nothing speaks for


@dataclass(frozen=True)
class ClassProbabilities:
    """Class probabilities of rows, from models that have not seen the row's label.

    Attributes:
        index: the most likely classes, the most likely first, shape (N, K) int32.
        probability: of each, shape (N, K) float32.
        of_label: of the row's label, shape (N,) float32; NaN without a label, or for one that the models do not know.
    """

    index: NDArray[np.int32]
    probability: NDArray[np.float32]
    of_label: NDArray[np.float32]

    @classmethod
    def room(cls, n: int, n_classes: int) -> "ClassProbabilities":
        """Return the probabilities of n rows, to be filled in."""
        k = min(MOST_KEPT, n_classes)
        return cls(np.zeros((n, k), np.int32), np.zeros((n, k), np.float32), np.full(n, np.nan, np.float32))

    def put(self, rows: NDArray[np.int64], labels: NDArray[np.int64], probabilities: NDArray[np.floating]) -> None:
        """Store the most likely classes of some rows.

        Args:
            rows: shape (B,).
            labels: class of each, shape (B,); -1 where none is to be judged.
            probabilities: of all classes, shape (B, C).
        """
        k = self.index.shape[1]
        top = np.argpartition(-probabilities, k - 1, axis=1)[:, :k]
        largest = np.take_along_axis(probabilities, top, 1)
        order = np.lexsort((top, -largest), axis=1)  # of equal probabilities the lower class
        self.index[rows] = np.take_along_axis(top, order, 1)
        self.probability[rows] = np.take_along_axis(largest, order, 1)
        of_label = probabilities[np.arange(len(rows)), labels.clip(0)]
        self.of_label[rows] = np.where(labels >= 0, of_label, np.nan)


def trust(probabilities: ClassProbabilities) -> NDArray[np.float32]:
    """Return the weight of each row's label in learning, shape (N,), in [0, 1].

    The probability of the label over the most likely class': 1 where they are one. 0 without a label, or without a
    probability of it.
    """
    share = probabilities.of_label / np.maximum(probabilities.probability[:, 0], LEAST)
    return np.nan_to_num(np.minimum(share, 1), nan=0.0).astype(np.float32)
