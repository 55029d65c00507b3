import math

import numpy as np
import pytest

from scoring.relative.model import POINTS, graded, quantiles_of
from scoring.relative.rule import combined, composed, lifted

GRID = np.linspace(0, 1, 101)


def test_the_mean_of_ranks_is_weighted():
    ranks = {"a": np.array([0.0, 1.0]), "b": np.array([1.0, 0.5])}
    assert combined(ranks, {"a": 3.0, "b": 1.0}) == pytest.approx([0.25, 0.875])


def test_junk_is_above_all_other_images_whatever_its_ambiguity():
    surely = composed(np.full(101, 0.6), GRID)
    surely_not = composed(np.full(101, 0.4), GRID)
    assert surely.min() > surely_not.max()
    assert surely_not == pytest.approx(GRID / 2)


def test_the_rest_is_ordered_by_ambiguity_and_junk_by_how_sure_it_is():
    assert (np.diff(composed(np.full(101, 0.1), GRID)) > 0).all()
    assert (np.diff(composed(np.linspace(0.6, 1, 101), np.full(101, 0.3))) > 0).all()


def test_it_never_falls_when_either_grows_and_stays_in_its_range():
    both = np.stack([composed(np.full(101, junk), GRID) for junk in GRID])
    assert (np.diff(both, axis=0) >= -1e-12).all()
    assert (np.diff(both, axis=1) >= -1e-12).all()
    assert both.min() == 0
    assert both.max() == 1


def test_a_corrupted_copy_is_less_certain_than_its_original():
    share, level = np.array([0.1, 0.8, 0.3, 0.2]), np.array([1.0, -1.0, 0.0, 5.0])
    nearest = np.array([1, 0, 3, -1])
    # the first is worse than the second, whose share is more; the third is better than the fourth; that one is alone
    first = 0.8 + 0.05 * (1 - math.exp(-1))
    assert lifted(share, level, nearest, (share, level)) == pytest.approx([first, 0.8, 0.3, 0.2])
    worse = lifted(share, level + np.array([1, 0, 0, 0]), nearest, (share, level))
    assert first < worse[0] < 0.85  # the worse of two versions is the less clear
    sure = level - 9.0  # surely no junk, any of them
    assert lifted(share, sure, nearest, (share, sure)).tolist() == share.tolist()
    nothing = np.zeros(4)
    assert lifted(share, nothing, nearest, (share, nothing)).tolist() == share.tolist()


def test_a_grade_is_the_share_below_with_ties_in_the_middle():
    values = np.random.default_rng(0).normal(size=5000)
    below = np.array([(values < v).mean() for v in values[:200]])
    assert graded(values[:200], quantiles_of(values)) == pytest.approx(below, abs=1.5 / POINTS)
    ties = np.array([0.0] * 600 + [1.0] * 400)
    assert graded(np.array([0.0, 1.0]), quantiles_of(ties)) == pytest.approx([0.3, 0.8], abs=2 / POINTS)


def test_grades_outside_of_the_dataset_end_at_its_ends():
    assert graded(np.array([-9.0, 99.0]), quantiles_of(np.arange(50.0))).tolist() == [0, 1]
