"""The input and the result of a selector."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Pool:
    """N rows, candidates and labelled ones, in an order determined by their keys.

    The caller that makes a pool sorts its rows by a hash of their keys, so a tie that goes to the lower row is the same
    tie whatever the order of the file. Arrays are read, never written.

    Attributes:
        candidates: rows that may be picked, shape (M,) int64, ascending, without repeats.
        labelled: rows that are labelled, shape (L,) int64, ascending; they shape diversity and are never picked.
        vectors: unit rows, shape (N, D), float16 or float32; None where the table has none.
        probabilities: of C classes by the probe, shape (N, C) float32, rows sum to 1; None before there is one.
        labels: class of the labelled rows, shape (N,) int64, -1 where unknown; None without labels.
        uncertainty: what ranks alone may use, higher is picked first, shape (N,) float32 or float64; None for the
            method's own.
        quality: weight of an image, in [0, 1], shape (N,) float32; None for all 1.
        holdout_loss: of each row's own label under a model trained on other rows, shape (N,) float32; None without.
    """

    candidates: NDArray[np.int64]
    labelled: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    vectors: NDArray[np.floating] | None = None
    probabilities: NDArray[np.float32] | None = None
    labels: NDArray[np.int64] | None = None
    uncertainty: NDArray[np.floating] | None = None
    quality: NDArray[np.float32] | None = None
    holdout_loss: NDArray[np.float32] | None = None

    @cached_property
    def n_rows(self) -> int:
        """Rows of the pool, N."""
        for array in (self.vectors, self.probabilities, self.uncertainty, self.quality, self.labels, self.holdout_loss):
            if array is not None:
                return len(array)
        return int(max(self.candidates.max(initial=-1), self.labelled.max(initial=-1))) + 1

    def array(self, name: str) -> NDArray:
        """Return a field, which must be present."""
        array: NDArray | None = getattr(self, name)
        if array is None:
            raise ValueError(f"the pool has no {name}")
        return array


@dataclass(frozen=True)
class Selection:
    """Rows in the order picked.

    Attributes:
        rows: shape (K,) int64, distinct candidates.
        gains: what each pick added, in the selector's own unit, shape (K,) float64; inf for a first pick that nothing
            measures.
        parts: what made up a pick's score, by name, each of shape (K,) float64.
        notes: notes for the user, such as an approximation and its measured loss.
    """

    rows: NDArray[np.int64]
    gains: NDArray[np.float64]
    parts: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
