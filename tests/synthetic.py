"""Datasets of embeddings that several test modules look at."""

import numpy as np


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def kinds(n=240, width=24, n_kinds=6, spread=0.55, seed=0):
    """Rows around a few directions, and which: float16 of unit length, as tables store them."""
    generator = np.random.default_rng(seed)
    middle = unit(generator.normal(size=(n_kinds, width))) + 0.4  # what all have in common
    kind = generator.integers(0, n_kinds, n)
    noise = unit(generator.normal(size=(n, width))) * generator.uniform(0.3, 2 * spread, (n, 1))
    return unit(unit(middle)[kind] + noise).astype(np.float16), kind


def slow_distance(rows, copy=0.97):
    """1 - cosine to the nearest other row that is no copy, restated one row at a time in float64."""
    rows = unit(rows.astype(np.float64))
    moved = unit(rows - rows.mean(0))
    distances = []
    for i in range(len(rows)):
        others = [j for j in range(len(rows)) if j != i and rows[i] @ rows[j] <= copy]
        distances.append(1 - max((moved[i] @ moved[j] for j in others), default=-1.0))
    return np.array(distances)
