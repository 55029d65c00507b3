"""A 64-bit hash of each row of a matrix: are these the very vectors that something was computed from?"""

import numpy as np
from numpy.typing import NDArray

BLOCK = 8_192  # rows at a time
WORD = 4  # bytes that are one number of the sum


def vector_hashes(vectors: NDArray[np.floating]) -> NDArray[np.uint64]:
    """Return a hash of the stored bytes of each row, the same on any machine.

    The sum, modulo 2^64, of the row's 32-bit words times fixed odd numbers of 64 bits, and of its type and width. A
    row of which one word changed always has another hash; other rows have the same one by chance alone, once in about
    2^32 to 2^64 pairs. It finds mistakes and damage; it is no seal against a forger.

    Args:
        vectors: shape (N, D), any float type; may be a memory map.

    Returns:
        Shape (N,), uint64.

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
    factors = _odd_numbers(n_words + 2)
    of_shape = (factors[-2:] * np.array([kind.itemsize, width], np.uint64)).sum()
    found = np.empty(n, np.uint64)
    for start in range(0, n, BLOCK):
        rows = np.ascontiguousarray(vectors[start : start + BLOCK], kind)
        data = rows.view(np.uint8).reshape(len(rows), n_bytes)
        if n_bytes % WORD:
            data = np.pad(data, ((0, 0), (0, WORD - n_bytes % WORD)))
        words = np.ascontiguousarray(data).view("<u4").astype(np.uint64)  # (B, W)
        found[start : start + BLOCK] = words @ factors[:n_words] + of_shape
    return found


def _odd_numbers(n: int) -> NDArray[np.uint64]:
    """Return n odd numbers without a pattern, shape (n,): the outputs of SplitMix64 from 0, their last bit set."""
    z = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)
