import math

import numpy as np
import pytest

from scoring.heap.grades import POINTS, graded, quantiles_of
from scoring.heap.junk import JUNK, junk_scale
from scoring.heap.rule import chance_of, combined, composed, junk_level, lifted, outlier, outlier_chance, outlier_cut

GRID = np.linspace(0, 1, 101)


def test_the_mean_of_ranks_is_weighted():
    ranks = {"a": np.array([0.0, 1.0]), "b": np.array([1.0, 0.5])}
    assert combined(ranks, {"a": 3.0, "b": 1.0}) == pytest.approx([0.25, 0.875])


def test_junk_comes_out_above_all_that_is_none_whatever_its_ambiguity():
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


def test_two_and_a_half_deviations_are_as_likely_as_not():
    assert junk_level(np.array([2.5])) == pytest.approx([0])
    assert chance_of(np.array([0.0, np.log(3), -np.log(3)])) == pytest.approx([0.5, 0.75, 0.25])
    assert (np.diff(junk_level(np.linspace(-5, 8, 50))) > 0).all()


def test_a_head_that_was_trained_on_junk_is_held_against_what_is_usual_in_the_heap():
    odds = np.random.default_rng(3).normal(size=20_001)
    for middle, spread, cut in ((-4, 1, 3), (1, 2, 1 + 1.8 * 2), (6, 3, 7)):
        columns = {JUNK: chance_of(middle + spread * odds), "unc_losspred": np.ones(20_001)}
        level = junk_scale(columns).level({JUNK: chance_of(np.array([cut, cut + 1.0]))})
        assert level == pytest.approx([0, 1], abs=0.06)


def test_a_missing_chance_says_nothing_of_junk():
    scale = junk_scale({JUNK: np.full(30, 0.1)})
    assert scale.level({JUNK: np.array([np.nan])}) == pytest.approx(scale.level({JUNK: np.array([0.0])}))
    assert chance_of(scale.level({JUNK: np.array([np.nan])}))[0] < 1e-4


def test_a_worse_version_is_less_clear_than_what_it_was_made_from():
    share, level = np.array([0.1, 0.8, 0.3, 0.2]), np.array([1.0, -1.0, 0.0, 5.0])
    nearest = np.array([1, 0, 3, -1])
    # the first is worse than the second, whose share is more; the third is better than the fourth; that one is alone
    first = 0.8 + 0.05 * (1 - math.exp(-1))
    assert lifted(share, level, nearest, (share, level)) == pytest.approx([first, 0.8, 0.3, 0.2])
    worse = lifted(share, level + np.array([1, 0, 0, 0]), nearest, (share, level))
    assert first < worse[0] < 0.85  # the worse of two versions is the less clear
    nothing = np.zeros(4)
    assert lifted(share, nothing, nearest, (share, nothing)).tolist() == share.tolist()


def test_heads_that_rise_on_junk_are_measured_from_the_median():
    generator = np.random.default_rng(0)
    log = generator.normal(size=(2, 4001))
    columns = {"unc_mcinfonce": np.exp(log[0] - 4), "unc_losspred": np.exp(0.1 * log[1])}
    scale = junk_scale(columns)
    assert scale.usual["unc_mcinfonce"] == pytest.approx((-4, 1), abs=0.06)
    assert scale.usual["unc_losspred"] == pytest.approx((0, 0.1), abs=0.006)
    chance = chance_of(scale.level({"unc_mcinfonce": np.exp([-4.0, 1.0]), "unc_losspred": np.exp([0.0, 0.5])}))
    assert chance[0] < 0.01
    assert chance[1] > 0.95


def test_a_column_that_never_changes_says_nothing():
    assert junk_scale({"unc_losspred": np.ones(50)}).level({"unc_losspred": np.ones(50)}) is None


def test_a_grade_is_the_share_below_with_ties_in_the_middle():
    values = np.random.default_rng(0).normal(size=5000)
    below = np.array([(values < v).mean() for v in values[:200]])
    assert graded(values[:200], quantiles_of(values)) == pytest.approx(below, abs=1.5 / POINTS)
    ties = np.array([0.0] * 600 + [1.0] * 400)
    assert graded(np.array([0.0, 1.0]), quantiles_of(ties)) == pytest.approx([0.3, 0.8], abs=2 / POINTS)


def test_grades_outside_of_the_heap_end_at_its_ends():
    assert graded(np.array([-9.0, 99.0]), quantiles_of(np.arange(50.0))).tolist() == [0, 1]


def test_an_outlier_is_less_alike_to_the_heap_than_its_median_row():
    assert outlier(np.array([0.3, 0.15, 0.6]), 0.3) == pytest.approx([0, np.log(2), -np.log(2)])
    assert outlier(np.array([-0.2, 0.0]), 0.3) == pytest.approx([np.log(100)] * 2)
    assert outlier(np.array([0.1, -0.1]), 0.0).tolist() == [0, 0]
    assert outlier_chance(np.array([0.45])) == pytest.approx([0.5])
    assert (np.diff(outlier_chance(np.linspace(-1, 4, 50))) >= 0).all()


def test_outliers_are_cut_where_the_heap_has_a_gap_and_never_far_from_the_usual_place():
    draw = np.random.default_rng(0)
    heap = draw.normal(0, 0.08, 2000)
    assert outlier_cut(heap) == 0.45  # no gap: the highest place
    crowd = draw.normal(0.42, 0.02, 300)
    cut = outlier_cut(np.concatenate([heap, crowd]))
    assert 0.25 <= cut < crowd.min()
    assert outlier_chance(crowd, cut).min() > 0.5
    assert outlier_cut(np.concatenate([heap, crowd - 0.3])) == 0.45  # among the others: no crowd of its own
    assert outlier_cut(np.zeros(0)) == 0.45
    slow = [(-int((np.abs(heap - at) <= 0.05).sum()), at) for at in np.arange(250, 451, 5) / 1000]
    assert outlier_cut(heap) == pytest.approx(max(slow)[1])
