"""Whether values rise with strength, against slow restatements and by simulation."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from curate.statistics.calibrators import mean_bands, mean_change, rise


def test_the_mean_change_has_the_normal_interval_of_scipy():
    generator = np.random.default_rng(0)
    before, after = generator.random((2, 40))
    change = after - before
    interval = mean_change(before, after, 0.9)
    low, high = stats.norm.interval(0.9, change.mean(), stats.sem(change))
    assert interval == pytest.approx((change.mean(), low, high))


def test_the_end_and_the_most_certain_fall_equal_a_search_over_all_pairs():
    values = np.random.default_rng(1).random((5, 30)).cumsum(0)
    values[3] = values[2] - 0.4
    trend = rise(values)
    assert trend.end == pytest.approx(mean_change(values[0], values[-1]))
    pairs = list(combinations(range(5), 2))
    highs = {}
    for early, late in pairs:
        change = values[late] - values[early]
        z = stats.norm.ppf(1 - 0.05 / len(pairs) / 2)
        highs[early, late] = change.mean() + z * stats.sem(change)
    assert trend.between == min(highs, key=highs.get) == (2, 3)
    assert trend.fall.high == pytest.approx(highs[2, 3])


def test_a_constant_score_is_reported_to_fall_in_few_of_many_runs():
    """All pairs at once, with a probability of 95 %: of 2,000 runs at most 5 % and what chance level adds."""
    generator = np.random.default_rng(2)
    wrong = sum(rise(generator.normal(size=(6, 60)) + generator.normal(size=60)).fall.high < 0 for _ in range(2_000))
    assert wrong <= stats.binom.ppf(0.999, 2_000, 0.05)


def test_values_that_are_all_the_same_neither_rise_nor_fall():
    trend = rise(np.ones((3, 10)))
    assert trend.end == trend.fall == (0, 0, 0)


def test_bands_are_computed_for_each_row():
    values = np.random.default_rng(3).random((2, 3, 20))
    middle, low, high = mean_bands(values)
    expected = stats.norm.interval(0.95, values[1, 2].mean(), stats.sem(values[1, 2]))
    assert (low[1, 2], high[1, 2]) == pytest.approx(expected)
    assert middle.shape == low.shape == high.shape == (2, 3)


@pytest.mark.parametrize("values", [np.zeros(5), np.zeros((1, 5)), np.zeros((3, 1))])
def test_other_shapes_are_the_callers_mistake(values):
    with pytest.raises(ValueError, match="shape"):
        rise(values)
