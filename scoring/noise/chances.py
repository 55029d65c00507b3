"""The probabilities of the likeliest classes of rows: of N rows and any number of classes in the memory of a few."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_KEPT = 16  # classes of a row: what lies below them decides nothing
LEAST = 1e-9  # probability of a class that nothing speaks for


@dataclass(frozen=True)
class Chances:
    """What models that have not seen a row's label say of its class.

    Attributes:
        index: the likeliest classes, the likeliest first, shape (N, K) int32.
        chance: of each, shape (N, K) float32.
        own: of the class that the row bears, shape (N,) float32; NaN where it bears none, or none that the models know.
    """

    index: NDArray[np.int32]
    chance: NDArray[np.float32]
    own: NDArray[np.float32]

    @classmethod
    def room(cls, n: int, n_classes: int) -> "Chances":
        """Return the probabilities of n rows, to be filled in."""
        k = min(MOST_KEPT, n_classes)
        return cls(np.zeros((n, k), np.int32), np.zeros((n, k), np.float32), np.full(n, np.nan, np.float32))

    def put(self, rows: NDArray[np.int64], given: NDArray[np.int64], chances: NDArray[np.floating]) -> None:
        """Keep of some rows what is likeliest.

        Args:
            rows: shape (B,).
            given: the class that each bears, shape (B,); -1 for none that is to be judged.
            chances: of all classes, shape (B, C).
        """
        k = self.index.shape[1]
        top = np.argpartition(-chances, k - 1, axis=1)[:, :k]
        found = np.take_along_axis(chances, top, 1)
        order = np.lexsort((top, -found), axis=1)  # of equal probabilities the lower class
        self.index[rows] = np.take_along_axis(top, order, 1)
        self.chance[rows] = np.take_along_axis(found, order, 1)
        own = chances[np.arange(len(rows)), given.clip(0)]
        self.own[rows] = np.where(given >= 0, own, np.nan)


def trust(chances: Chances) -> NDArray[np.float32]:
    """Return how far each row's label may be learned from, shape (N,), in [0, 1].

    The probability of the label over the likeliest class': 1 where they are one. 0 without a label, or without a
    probability of it.
    """
    share = chances.own / np.maximum(chances.chance[:, 0], LEAST)
    return np.nan_to_num(np.minimum(share, 1), nan=0.0).astype(np.float32)
