"""Vectors of a pool for computation: blocks, unit length, kernels."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import DTypeLike

from scoring.arrays import Array, Ints
from scoring.errors import InputError

BLOCK = 2048  # rows that are converted at a time


def members(candidates: Ints, labelled: Ints) -> Ints:
    """Return the candidates and labelled rows together, ascending."""
    return np.sort(np.concatenate([candidates, labelled]))


def subset(vectors: Array, rows: Ints) -> Array:
    """Return ``vectors[rows]`` for ascending, distinct rows; without a copy if these are all rows."""
    return vectors if len(rows) == len(vectors) else vectors[rows]


def unit(vectors: Array, dtype: DTypeLike) -> Array:
    """Return a normalised copy, shape (B, D), exact for half precision too; zero rows stay zero."""
    rows = widened(vectors, dtype)
    norm = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    rows /= np.where(norm > 0, norm, 1)[:, None]
    return rows


def widened(vectors: Array, dtype: DTypeLike) -> Array:
    """Return a copy in another dtype; torch converts half to single precision three times as fast as NumPy."""
    if vectors.dtype == np.float16 and np.dtype(dtype) == np.float32 and vectors.size:
        return torch.from_numpy(np.require(vectors, requirements=["C", "W"])).float().numpy()
    return vectors.astype(dtype)


def spans(length: int, size: int = BLOCK) -> Iterator[slice]:
    """Yield consecutive slices of at most ``size`` that cover [0, length)."""
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def squared_distances(first: Array, second: Array) -> Array:
    """Return squared Euclidean distances between rows, shape (A, B), in their dtype, >= 0."""
    product = first @ second.T
    product *= -2
    product += np.einsum("nd,nd->n", first, first)[:, None]
    product += np.einsum("nd,nd->n", second, second)
    return np.asarray(np.maximum(product, 0, out=product))


def check_bandwidth(bandwidth: float) -> None:
    """Raise InputError unless a bandwidth for ``rbf`` is in [0.001, 1000]; others make all rows equal or unrelated."""
    if not 1e-3 <= bandwidth <= 1e3:
        raise InputError(
            f"the bandwidth must be between 0.001 and 1000, a distance between unit rows, got {bandwidth:g}; 0.5 is the"
            " usual one"
        )


def rbf(first: Array, second: Array, bandwidth: float) -> Array:
    """Return exp(-|x - y|^2 / (2 bandwidth^2)), shape (A, B), in [0, 1]; exp((cos - 1) / bandwidth^2) of unit rows."""
    kernel = squared_distances(first, second)
    kernel *= -0.5 / bandwidth**2
    return np.exp(kernel, out=kernel)
