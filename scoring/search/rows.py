"""Normalisation of stored rows to bfloat16, with the rounding error of each row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 4096  # rows at a time: in float64 and 512 wide they are 16 MB
DTYPES = (np.float16, np.float32, np.int8)

Vectors = NDArray[np.float16] | NDArray[np.float32] | NDArray[np.int8]


@dataclass(frozen=True)
class UnitRows:
    """B rows of length 1, rounded to bfloat16.

    Attributes:
        units: shape (B, D), bfloat16; zero rows stay zero.
        squares: squared length of the stored row, shape (B,), float64.
        residual: norm of the rounding error of each unit row, shape (B,), float64, below 2^-8.
    """

    units: Tensor
    squares: NDArray[np.float64]
    residual: NDArray[np.float64]


def check_vectors(vectors: Vectors, name: str = "vectors") -> None:
    """Raise ValueError unless an array is a table (N, D >= 1) of float16, float32 or int8."""
    if vectors.ndim != 2 or vectors.dtype not in DTYPES or not vectors.shape[1]:
        got = f"{vectors.dtype} of shape {vectors.shape}"
        raise ValueError(f"{name} must be float16, float32 or int8 of shape (N, D>=1), got {got}")


def unit_rows(block: Vectors, *, numbers: Sequence[int] | NDArray[np.int64] | None = None) -> UnitRows:
    """Return rows divided by their norms, computed in float64 and rounded once.

    Args:
        block: shape (B, D), float16, float32 or int8, of any length.
        numbers: indices of the rows for messages; by default 0, 1, ...

    Raises:
        ValueError: if a value is NaN or infinite; names the row.
    """
    exact = np.asarray(block).astype(np.float64)
    squares = _squares(exact, numbers)
    length = np.sqrt(squares)
    exact *= np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)[:, None]
    unit = torch.from_numpy(exact)
    rounded = unit.to(torch.bfloat16)
    return UnitRows(rounded, squares, (unit - rounded.double()).norm(dim=1).numpy())


def unit_table(vectors: Vectors, device: str | None = None) -> UnitRows:
    """Return ``unit_rows`` for any number of rows, block by block, with the unit rows on the device.

    Args:
        vectors: shape (N, D), float16, float32 or int8, of any length; may be a memory map.
        device: torch device of the unit rows; 2 N D bytes.

    Raises:
        ValueError: if a value is NaN or infinite; names the row.
    """
    units = torch.empty(vectors.shape, dtype=torch.bfloat16, device=device)
    squares, residual = np.empty(len(vectors)), np.empty(len(vectors))
    for start in range(0, len(vectors), BLOCK):
        span = slice(start, min(start + BLOCK, len(vectors)))
        part = unit_rows(vectors[span], numbers=range(span.start, span.stop))
        units[span], squares[span], residual[span] = part.units.to(units.device), part.squares, part.residual
    return UnitRows(units, squares, residual)


def padded(rows: Tensor) -> Tensor:
    """Return rows padded with zeros, so that products have few shapes.

    oneDNN compiles a kernel for each new shape in about a millisecond, and caches a thousand of them in almost a
    gigabyte.
    """
    step = 64 if len(rows) <= 256 else 128 if len(rows) <= 1024 else 256
    if not (more := -len(rows) % step) or rows.device.type != "cpu":
        return torch.nn.functional.pad(rows, (0, 0, 0, more))
    return _from_bits(np.concatenate([_bits(rows), np.zeros((more, rows.shape[1]), np.int16)]))


def rows_at(units: Tensor, at: NDArray[np.int64]) -> Tensor:
    """Return rows of a bfloat16 table, shape (A, D), by NumPy, which is several times faster than torch's indexing."""
    if units.device.type != "cpu":
        return units[torch.from_numpy(at).to(units.device)]
    return _from_bits(_bits(units).take(at, axis=0))


def _bits(units: Tensor) -> NDArray[np.int16]:
    bits: NDArray[np.int16] = units.view(torch.int16).numpy()
    return bits


def _from_bits(bits: NDArray[np.int16]) -> Tensor:
    return torch.from_numpy(bits).view(torch.bfloat16)


def inverse_lengths(vectors: Vectors) -> NDArray[np.float64]:
    """Return 1 / norm of each row, shape (N,), float64; 0 for a zero row; ValueError for NaN or infinity."""
    squares = np.empty(len(vectors))
    for start in range(0, len(vectors), BLOCK):
        span = range(start, min(start + BLOCK, len(vectors)))
        exact = np.asarray(vectors[span.start : span.stop]).astype(np.float64)
        squares[span.start : span.stop] = _squares(exact, span)
    length = np.sqrt(squares)
    return np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)


def units_float32(vectors: Vectors, inverse: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return rows at unit length, shape (B, D); zero rows stay zero.

    Args:
        vectors: shape (N, D).
        inverse: 1 / norm of each row, shape (N,).
        rows: indices, shape (B,).
    """
    wide = np.float64 if vectors.dtype == np.float32 else np.float32  # a long float32 row has no inverse in float32
    units = np.empty((len(rows), vectors.shape[1]), np.float32)
    for start in range(0, len(rows), BLOCK):
        some = rows[start : start + BLOCK]
        np.multiply(
            vectors[some].astype(wide),
            inverse[some, None].astype(wide),
            out=units[start : start + BLOCK],
            casting="same_kind",
        )
    return units


def _squares(exact: NDArray[np.float64], numbers: Sequence[int] | NDArray[np.int64] | None) -> NDArray[np.float64]:
    """Return squared norms of rows; ValueError, with the row's index, unless they are finite."""
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", exact, exact)
    if not np.isfinite(squares).all():
        at = int(np.flatnonzero(~np.isfinite(squares))[0])
        row = at if numbers is None else int(numbers[at])
        raise ValueError(f"vectors must be finite, got NaN or infinity in row {row}")
    return squares
