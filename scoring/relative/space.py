"""Embeddings centred at the dataset's mean, and the cosines of the uncentred rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array

COPY = 0.97  # cosine, as stored, above which two rows are copies
BLOCK = 8192  # rows at a time
LEAST = 1e-6  # rows closer to the mean than this become zero


def mean_of(vectors: Array) -> NDArray[np.float32]:
    """Return the mean of normalised rows (N, D), N >= 1, shape (D,); float64 sums by blocks; a memory map works too."""
    total = np.zeros(vectors.shape[1])
    for start in range(0, len(vectors), BLOCK):
        total += unit(vectors[start : start + BLOCK]).sum(0, dtype=np.float64)
    return (total / len(vectors)).astype(np.float32)


def unit(rows: Array) -> NDArray[np.float32]:
    """Return rows at unit length, float32; zero rows stay zero."""
    wide = rows.astype(np.float32)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)


@dataclass(frozen=True)
class Centred:
    """N rows, minus the mean of a dataset, normalised again.

    Centring removes what all images of the dataset have in common, so that cosines measure their differences.

    Attributes:
        units: shape (N, D), float32; zero for a row equal to the mean.
        length: of each row minus the mean, before normalisation, shape (N,), float32.
        along: inner product of each normalised row with the mean, shape (N,), float32.
        square: squared length of the mean.
    """

    units: NDArray[np.float32]
    length: NDArray[np.float32]
    along: NDArray[np.float32]
    square: float

    def __len__(self) -> int:
        return len(self.units)

    def part(self, at: slice | NDArray[np.int64]) -> "Centred":
        """Return some rows; without a copy for a slice."""
        return Centred(self.units[at], self.length[at], self.along[at], self.square)

    def raw(self, other: "Centred", index: NDArray[np.integer], cosine: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the cosines of uncentred rows, derived from the cosines after centring, shape (N, K).

        u v = |u-m| |v-m| cos(u-m, v-m) + u m + v m - m m, for rows u and v of length 1.

        Args:
            other: the rows compared with, centred by the same mean.
            index: indices of the other rows, shape (N, K).
            cosine: after centring, shape (N, K).
        """
        return (
            cosine * self.length[:, None] * other.length[index]
            + self.along[:, None]
            + other.along[index]
            - np.float32(self.square)
        )


def centred(vectors: Array, mean: NDArray[np.float32]) -> Centred:
    """Return rows (N, D) minus a mean (D,), normalised; memory: 4 N D bytes."""
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
