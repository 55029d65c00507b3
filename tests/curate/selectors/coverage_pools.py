"""Small pools with what goes wrong in large ones: copies, a zero row, labelled rows, rows that are neither."""

import numpy as np

from curate.selectors.contract import Pool


def small_pool(seed, n=120, width=4, labelled=9, copies=True):
    """Return a pool, and its vectors in float64 at length 1."""
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((n, width))
    if copies:
        vectors[[10, 40, 41]] = vectors[3]
        vectors[20] = 0
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = (vectors / np.where(length > 0, length, 1)).astype(np.float32)
    order = generator.permutation(n)
    pool = Pool(np.sort(order[labelled : n - 10]), np.sort(order[:labelled]), vectors=vectors)
    exact = vectors.astype(np.float64)
    length = np.linalg.norm(exact, axis=1, keepdims=True)
    return pool, exact / np.where(length > 0, length, 1)


def lowest_best(values, rows, tolerance=1e-9):
    """The lowest of the rows whose value is the best up to rounding, unhurried."""
    best = max(values)
    return next(row for value, row in zip(values, rows, strict=True) if value >= best - tolerance * abs(best) - 1e-12)
