"""Hashes of vectors, by their definition."""

import numpy as np
import pytest

from curate.tables.vectors import vector_hashes


@pytest.mark.parametrize(("dtype", "width"), [(np.float16, 5), (np.float16, 8), (np.float32, 3)])
def test_vector_hashes_are_sums_of_words_times_odd_numbers(dtype, width):
    rows = np.random.default_rng(0).standard_normal((9000, width)).astype(dtype)
    mask, kept = (1 << 64) - 1, []
    n_words = -(-width * rows.itemsize // 4)
    for i in range(1, n_words + 3):
        z = i * 0x9E3779B97F4A7C15 & mask
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        kept.append(z ^ (z >> 31) | 1)
    hashes = vector_hashes(rows)
    for row in (0, 1, 8191, 8192, 8999):
        data = rows[row].tobytes() + b"\0" * 3
        words = [int.from_bytes(data[4 * i : 4 * i + 4], "little") for i in range(n_words)]
        value = sum(w * c for w, c in zip(words, kept, strict=False)) + rows.itemsize * kept[-2] + width * kept[-1]
        assert int(hashes[row]) == value & mask
    assert len(set(hashes.tolist())) == len({row.tobytes() for row in rows})


def test_vectors_of_other_types_signs_or_widths_have_other_hashes():
    rows = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    swapped, negated, two = rows[:, [1, 0, 2, 3, 4, 5]], -rows, rows.copy()
    two[:, [1, 3]] *= -1
    others = [swapped, negated, two, rows.astype(np.float16), np.pad(rows, ((0, 0), (0, 2))), rows[:, :5]]
    for other in others:
        assert not (vector_hashes(rows) == vector_hashes(other)).any()
