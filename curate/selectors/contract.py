"""The interface of selectors: input, result, and validation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array, Floats, Ints
from scoring.errors import InputError


@dataclass(frozen=True)
class Pool:
    """N rows, candidates and labelled ones, sorted by a hash of their keys.

    The order makes ties that go to the lower row independent of the file. Arrays are never modified.

    Attributes:
        candidates: rows that may be picked, shape (M,) int64, ascending, without repeats.
        labelled: labelled rows, shape (L,) int64, ascending; they count for diversity and are never picked.
        vectors: unit rows, shape (N, D), float16 or float32; None without embeddings.
        probabilities: of C classes by the probe, shape (N, C) float32, rows sum to 1; None without a probe.
        labels: class of the labelled rows, shape (N,) int64, -1 if unknown; None without labels.
        uncertainty: score for selectors that rank single rows, higher is picked first, shape (N,) float32 or float64;
            None for the selector's own.
        quality: weight of an image, in [0, 1], shape (N,) float32; None for all 1.
        holdout_loss: of each row's own label under a model trained on other rows, shape (N,) float32; None without.
    """

    candidates: Ints
    labelled: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    vectors: NDArray[np.floating] | None = None
    probabilities: NDArray[np.float32] | None = None
    labels: Ints | None = None
    uncertainty: NDArray[np.floating] | None = None
    quality: NDArray[np.float32] | None = None
    holdout_loss: NDArray[np.float32] | None = None

    @cached_property
    def n_rows(self) -> int:
        """Number N of rows of the pool."""
        for array in (self.vectors, self.probabilities, self.uncertainty, self.quality, self.labels, self.holdout_loss):
            if array is not None:
                return len(array)
        return int(max(self.candidates.max(initial=-1), self.labelled.max(initial=-1))) + 1

    def array(self, name: str) -> Array:
        """Return a field, which must be present."""
        array: Array | None = getattr(self, name)
        if array is None:
            raise ValueError(f"the pool has no {name}")
        return array


@dataclass(frozen=True)
class Selection:
    """Rows in the order picked.

    Attributes:
        rows: shape (K,) int64, distinct candidates.
        gains: the increase by each pick, in the selector's unit, shape (K,) float64; inf for a first pick without a
            measure.
        parts: components of the picks' scores by name, each of shape (K,) float64.
        notes: notes for the user, such as the measured loss of an approximation.
    """

    rows: Ints
    gains: Floats
    parts: dict[str, Floats] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


BLOCK_NUMBERS = 4_000_000  # numbers that are looked at in one go
ATOL = 1e-3  # tolerance of the sum of probabilities, for float16 tables

HOW_TO_GET = {  # field of a pool -> how to provide it
    "vectors": "embeddings: pass a table that `curate score` wrote with its `embedding` column",
    "probabilities": "class probabilities: label a first batch, so that the probe can be fitted",
    "labels": "the classes of the labelled rows: pass a table or CSV with a label for each key",
    "uncertainty": "a score column: choose one whose direction is known, such as unc_losspred or kappa_mcinfonce",
    "quality": "a quality column: choose one, such as unc_losspred",
    "holdout_loss": "the loss of every row under a model that was trained on other rows",
}


class Selector(Protocol):
    """A selection strategy: a frozen dataclass whose fields are its parameters.

    Attributes:
        needs: required fields of a pool, keys of ``HOW_TO_GET``; as a class attribute for the default parameters.
        optional: fields that it uses if present, keys of ``HOW_TO_GET``; with ``quality``, rows of low quality have
            less weight.
        prefix: whether the picks of a smaller budget are the first of a larger one's, for the same seed.
        cost: time and memory by N rows, D dimensions, C classes and K picks.
    """

    needs: ClassVar[tuple[str, ...]]
    optional: ClassVar[tuple[str, ...]] = ()
    prefix: ClassVar[bool]
    cost: ClassVar[str]

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick ``budget`` distinct candidates, best first; the same input and seed give the same picks.

        Raises InputError for input that no selector accepts; see ``check``.
        """
        check(pool, budget, self.needs)
        return self._pick(pool, budget, seed)

    def _pick(self, pool: Pool, budget: int, seed: int) -> Selection:
        """Pick rows of a checked pool; each strategy defines this."""


def check(pool: Pool, budget: int, needs: Sequence[str] = ()) -> None:
    """Raise an error for input that no selector accepts.

    Args:
        pool: the rows.
        budget: number of picks.
        needs: required fields, keys of ``HOW_TO_GET``.

    Raises:
        InputError: if the budget is not between 1 and the candidates, an array is missing, or one is not finite.
        ValueError: if the pool violates the definition of ``Pool`` (a bug of the caller).
    """
    most = len(pool.candidates)
    if not 1 <= budget <= most:
        raise InputError(
            f"the budget must be between 1 and the {most} rows that may be picked, got {budget}"
            + ("; every row is labelled or left out" if not most else "")
        )
    for need in needs:
        if getattr(pool, need) is None:
            raise InputError(f"this strategy needs {HOW_TO_GET[need]}")
    _check_rows(pool)
    for name in HOW_TO_GET:
        array = getattr(pool, name)
        if array is not None and array.dtype.kind == "f":
            _check_finite(name, array)
    if pool.probabilities is not None:
        _check_probabilities(pool.probabilities)


def _check_rows(pool: Pool) -> None:
    for name, rows in (("candidates", pool.candidates), ("labelled", pool.labelled)):
        if len(rows) and (rows[0] < 0 or rows[-1] >= pool.n_rows or (rows[1:] <= rows[:-1]).any()):
            raise ValueError(f"{name} must ascend without repeats inside [0, {pool.n_rows})")
    if np.isin(pool.candidates, pool.labelled, assume_unique=True).any():
        raise ValueError("a candidate is labelled already")
    for name in HOW_TO_GET:
        array = getattr(pool, name)
        if array is not None and len(array) != pool.n_rows:
            raise ValueError(f"{name} has {len(array)} rows where the pool has {pool.n_rows}")


def _check_finite(name: str, array: Array) -> None:
    for start, block in blocks(array):
        if not np.isfinite(block).all():
            bad = ~np.isfinite(block).reshape(len(block), -1).all(1)
            first = start + int(bad.argmax())
            raise InputError(
                f"{name} must be finite, got NaN or infinity in row {first} of the pool"
                f" (and {int(bad.sum()) - 1} more near it); leave out rows whose status is not ok, or score again"
            )


def _check_probabilities(array: Array) -> None:
    if array.ndim != 2 or not array.shape[1]:
        raise ValueError(f"probabilities must have shape (N, C), got {array.shape}")
    for start, block in blocks(array):
        wrong = (block.min(1) < 0) | (np.abs(block.sum(1, dtype=np.float64) - 1) > ATOL)
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(
                "probabilities must be at least 0 and sum to 1 in every row, got a sum of"
                f" {block[row].sum(dtype=np.float64):.4g} and a least of {block[row].min():.4g} in row {start + row}"
                " of the pool; pass class probabilities, not scores or logits"
            )


def blocks(array: Array, numbers: int = BLOCK_NUMBERS) -> "list[tuple[int, Array]]":
    """Return (first row, view) of consecutive blocks of rows with at most ``numbers`` numbers each."""
    size = max(1, numbers // max(1, array[:1].size))
    return [(start, array[start : start + size]) for start in range(0, len(array), size)]
