"""Embeddings as directions from the dataset's mean, and cosines of the stored rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COPY = 0.97  # cosine, as stored, above which two rows are copies
BLOCK = 8192  # rows at a time
LEAST = 1e-6  # a row that is nearer to the mean than this has no direction from it


def mean_of(vectors: NDArray) -> NDArray[np.float32]:
    """Return the mean of rows at length 1, shape (D,), summed in float64 block by block.

    Args:
        vectors: shape (N, D), N >= 1, any float type; may be a memory map.
    """
    total = np.zeros(vectors.shape[1])
    for start in range(0, len(vectors), BLOCK):
        total += unit(vectors[start : start + BLOCK]).sum(0, dtype=np.float64)
    return (total / len(vectors)).astype(np.float32)


def unit(rows: NDArray) -> NDArray[np.float32]:
    """Return rows at unit length, float32; zero rows stay zero."""
    wide = rows.astype(np.float32)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)


@dataclass(frozen=True)
class Centred:
    """N rows, minus the mean of a dataset, at unit length again.

    Centring takes out what all images of the dataset have in common, so that a cosine speaks of what separates them.

    Attributes:
        units: shape (N, D), float32; zero for a row that is at the mean.
        length: of each row less the mean, before it was made 1, shape (N,), float32.
        along: product of each row at length 1 with the mean, shape (N,), float32.
        square: squared length of the mean.
    """

    units: NDArray[np.float32]
    length: NDArray[np.float32]
    along: NDArray[np.float32]
    square: float

    def __len__(self) -> int:
        return len(self.units)

    def raw(self, other: "Centred", index: NDArray[np.integer], cosine: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the cosines of rows as stored, derived from those after centring.

        u v = |u-m| |v-m| cos(u-m, v-m) + u m + v m - m m, for rows u and v of length 1.

        Args:
            other: the rows compared with, centred by the same mean.
            index: which of them, shape (N, K).
            cosine: after centring, shape (N, K).
        """
        return (
            cosine * self.length[:, None] * other.length[index]
            + self.along[:, None]
            + other.along[index]
            - np.float32(self.square)
        )


def centred(vectors: NDArray, mean: NDArray[np.float32]) -> Centred:
    """Return rows (N, D) less a mean (D,), at length 1 again; memory: 4 N D bytes."""
    units = np.empty(vectors.shape, np.float32)
    length, along = np.empty(len(vectors), np.float32), np.empty(len(vectors), np.float32)
    for start in range(0, len(vectors), BLOCK):
        block = slice(start, start + BLOCK)
        rows = unit(vectors[block])
        along[block] = rows @ mean
        rows -= mean
        length[block] = np.linalg.norm(rows, axis=1)
        units[block] = np.where(length[block, None] < LEAST, 0, rows / np.maximum(length[block, None], LEAST))
    return Centred(units, length, along, float(mean @ mean))
