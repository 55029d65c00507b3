"""Vectors of a table's rows as an array, which may be larger than memory."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.manifest.store_path import AnyPath
from curate.tables.digests import LANES, mixed
from curate.tables.table import embedding_matrix
from scoring.arrays import Array, zeros_or_memmap
from scoring.errors import InputError

BLOCK = 65_536  # rows at a time
NO_EMBEDDING = "an embedding that is missing, NaN or infinite"
ZERO_EMBEDDING = "an embedding of zeros"
EMBEDDING_PROBLEMS = (NO_EMBEDDING, ZERO_EMBEDDING)  # what may be wrong with an embedding
MISSING, ZERO = 1, 2  # 1 + a place in EMBEDDING_PROBLEMS; 0 where nothing is wrong


def rows_of(vectors: Array, rows: NDArray[np.int64]) -> Array:
    """Return rows (M,) of vectors (N, D), compacted in blocks; without a copy for all rows in order."""
    if np.array_equal(rows, np.arange(len(vectors))):
        return vectors
    taken = zeros_or_memmap((len(rows), vectors.shape[1]), vectors.dtype)
    for start in range(0, len(rows), BLOCK):
        taken[start : start + BLOCK] = vectors[rows[start : start + BLOCK]]
    return taken


class Embeddings:
    """Embeddings collected in batches; the first one determines their width.

    Args:
        n: total number of rows.
        path: of the table, for messages.
    """

    def __init__(self, n: int, path: AnyPath) -> None:
        self.n, self.path = n, path
        self.matrix: NDArray[np.floating] | None = None
        self.embedding_problem = np.full(n, MISSING, np.uint8)

    def add(self, column: pa.Array, to: slice | NDArray[np.int64]) -> None:
        """Add embeddings, M lists of numbers, at rows ``to``; InputError for another type or length."""
        part = embedding_matrix(column)
        width = part.shape[1]
        if not width:  # lists of any length, of which this batch has none
            return
        if self.matrix is None:
            self.matrix = zeros_or_memmap((self.n, width), np.dtype(np.float16 if part.itemsize == 2 else np.float32))
        if width != self.matrix.shape[1]:
            raise InputError(
                f"expected embeddings of one length in {self.path}, got {self.matrix.shape[1]} and {width}; score all "
                "rows with one model"
            )
        wild = ~np.isfinite(part).all(1)
        self.embedding_problem[to] = np.where(wild, MISSING, np.where(part.any(1), 0, ZERO))
        if wild.any():
            part = np.where(wild[:, None], 0, part)
        self.matrix[to] = part if part.itemsize < 8 else shortened(part)

    def done(self) -> tuple[NDArray[np.floating], NDArray[np.uint8]]:
        """Return the embeddings, shape (n, D), zero if missing (D = 1 if all are), and their faults, shape (n,).

        A fault is 0 for none, else 1 + an index into ``EMBEDDING_PROBLEMS``.
        """
        return np.zeros((self.n, 1), np.float32) if self.matrix is None else self.matrix, self.embedding_problem


def unit_rows(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return rows at unit length, shape (N, D), by norms in float64; zero rows stay zero."""
    rows = vectors.astype(np.float32)
    length = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))[:, None]
    return np.asarray(rows / np.where(length > 0, length, 1).astype(np.float32))


def shortened(matrix: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return rows in float32, divided by their largest element, since only directions matter."""
    largest = np.abs(matrix).max(1, keepdims=True)
    short = np.divide(matrix, largest, out=matrix.copy(), where=np.isfinite(largest) & (largest > 0))
    with np.errstate(over="ignore"):
        return np.asarray(short.astype(np.float32))


HASHED = 8_192  # rows at a time
WORD = 4  # bytes that are one number of the sum


def vector_hashes(vectors: NDArray[np.floating]) -> NDArray[np.uint64]:
    """Return a hash of the stored bytes of each row, the same on any machine.

    The sum, modulo 2^64, of the row's 32-bit words times fixed odd 64-bit numbers, and of its type and width. A change
    of one word always changes the hash; other rows collide once in about 2^32 to 2^64 pairs. It detects damage, not
    forgery. Vectors (N, D) have any float type, and may be a memory map; the result is (N,) uint64.

    >>> rows = np.eye(2, dtype=np.float32)
    >>> bool(vector_hashes(rows)[0] == vector_hashes(rows[:1])[0])
    True
    >>> bool(vector_hashes(rows)[0] == vector_hashes(rows)[1])
    False
    """
    n, width = vectors.shape
    kind = vectors.dtype.newbyteorder("<")
    n_bytes = width * kind.itemsize
    n_words = -(-n_bytes // WORD)
    # odd numbers without a pattern: the outputs of SplitMix64 from 0, their last bit set
    factors = mixed(np.arange(1, n_words + 3, dtype=np.uint64) * LANES[1]) | np.uint64(1)
    of_shape = (factors[-2:] * np.array([kind.itemsize, width], np.uint64)).sum()
    hashes = np.empty(n, np.uint64)
    for start in range(0, n, HASHED):
        rows = np.ascontiguousarray(vectors[start : start + HASHED], kind)
        data = rows.view(np.uint8).reshape(len(rows), n_bytes)
        if n_bytes % WORD:
            data = np.pad(data, ((0, 0), (0, WORD - n_bytes % WORD)))
        words = np.ascontiguousarray(data).view("<u4").astype(np.uint64)  # (B, W)
        hashes[start : start + HASHED] = words @ factors[:n_words] + of_shape
    return hashes
