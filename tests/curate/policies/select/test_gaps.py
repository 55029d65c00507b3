"""Where picks come too near, against the definition."""

import numpy as np
import pytest

from curate.policies.select.plan import first_too_near


def slow(vectors, labelled, picks, least):
    unit = vectors.astype(np.float64) / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    for place, row in enumerate(picks):
        gaps = [np.linalg.norm(unit[row] - unit[other]) for other in [*labelled, *picks[:place]]]
        if gaps and min(gaps) < least:
            return place, min(gaps)
    return len(picks), float("inf")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("least", [0.05, 0.3, 0.6, 1.0])
def test_the_first_pick_that_is_too_near_is_the_one_of_the_definition(seed, least):
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((60, 5)).astype(np.float16)
    order = generator.permutation(60)
    place, distance = first_too_near(vectors, np.sort(order[:7]), order[7:40], least)
    expected = slow(vectors, order[:7], order[7:40], least)
    assert place == expected[0]
    assert distance == pytest.approx(expected[1], abs=1e-5)


def test_picks_are_compared_across_blocks():
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((5000, 64)).astype(np.float32)
    vectors[4321] = vectors[17]  # more than two blocks apart
    none = np.zeros(0, np.int64)
    assert first_too_near(vectors, none, np.arange(5000), 0.05)[0] == 4321
    assert first_too_near(vectors, none, np.arange(4321), 0.05) == (4321, float("inf"))


def test_a_copy_of_a_labelled_row_stops_at_once():
    vectors = np.eye(3, dtype=np.float32)[[0, 0, 1]]
    place, distance = first_too_near(vectors, np.array([0]), np.array([1, 2]), 0.1)
    assert place == 0
    assert distance == pytest.approx(0, abs=1e-3)


def test_copies_are_no_distance_apart_however_small_the_least_one():
    row = np.random.default_rng(1).standard_normal((1, 512)).astype(np.float16)
    place, distance = first_too_near(np.repeat(row, 3, axis=0), np.zeros(0, np.int64), np.arange(3), 1e-6)
    assert (place, distance) == (1, pytest.approx(0, abs=1e-7))
