"""The interface of every selector, and the input checks before a row is read."""

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from curate.selectors.pool import Pool, Selection
from scoring.errors import InputError

BLOCK_NUMBERS = 4_000_000  # numbers that are looked at in one go
ATOL = 1e-3  # how far from 1 the probabilities of a row may sum: float16 tables

HOW_TO_GET = {  # what a selector may need of a pool -> where it comes from
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
        needs: fields of a pool that it cannot do without, keys of ``HOW_TO_GET``; on the class for its default
            parameters, on an object for its own.
        optional: fields that it uses where they are there, keys of ``HOW_TO_GET``; with ``quality`` among them, rows
            of low quality weigh less.
        prefix: whether the picks of a smaller budget are the first of a larger one's, for the same seed.
        cost: time and memory in N rows, D numbers, C classes and K picks.
    """

    needs: ClassVar[tuple[str, ...]]
    optional: ClassVar[tuple[str, ...]] = ()
    prefix: ClassVar[bool]
    cost: ClassVar[str]

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick ``budget`` distinct candidates, best first; the same input and seed give the same picks."""


def check(pool: Pool, budget: int, needs: Sequence[str] = ()) -> None:
    """Refuse input that no selector accepts; every selector calls it first.

    Args:
        pool: the rows.
        budget: how many to pick.
        needs: fields that have to be there, keys of ``HOW_TO_GET``.

    Raises:
        InputError: if the budget is not between 1 and the candidates, an array is missing, or one is not finite.
        ValueError: if the pool is not what ``Pool`` says: the caller's bug.
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


def _check_finite(name: str, array: NDArray) -> None:
    for start, block in blocks(array):
        if not np.isfinite(block).all():
            bad = ~np.isfinite(block).reshape(len(block), -1).all(1)
            first = start + int(bad.argmax())
            raise InputError(
                f"{name} must be finite, got NaN or infinity in row {first} of the pool"
                f" (and {int(bad.sum()) - 1} more near it); leave out rows whose status is not ok, or score again"
            )


def _check_probabilities(array: NDArray) -> None:
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


def blocks(array: NDArray, numbers: int = BLOCK_NUMBERS) -> "list[tuple[int, NDArray]]":
    """Return (first row, view) of consecutive blocks of rows with at most ``numbers`` numbers each."""
    size = max(1, numbers // max(1, array[:1].size))
    return [(start, array[start : start + size]) for start in range(0, len(array), size)]
