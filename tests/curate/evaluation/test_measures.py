"""Intervals of AUROCs of few rows, and of their differences."""

import math

import pytest

from curate.evaluation.measures import ColumnDifference, Measure, widen_areas
from scoring.metrics.ranking import auroc_interval
from scoring.metrics.resampling import Interval


def widened(first, second, gap, wrong=20, right=200):
    """Return the interval of the difference of two columns after the widening."""
    measure = Measure("AUROC", "higher", "", values={"a": first, "b": second})
    measure.differences = [ColumnDifference("a", "b", Interval(first.value - second.value, *gap))]
    widen_areas(measure, wrong, right)
    return measure.differences[0].interval


def test_the_difference_of_independent_columns_is_widened_as_the_root_of_both_squares():
    one, two = auroc_interval(0.9, 20, 200), auroc_interval(0.6, 20, 200)
    half = math.hypot(0.02, 0.03)  # of independent values
    value, low, high = widened(Interval(0.9, 0.88, 0.92), Interval(0.6, 0.57, 0.63), (0.3 - half, 0.3 + half))
    assert value == pytest.approx(0.3)
    assert low == pytest.approx(0.3 - math.hypot(0.9 - one.low, two.high - 0.6))
    assert high == pytest.approx(0.3 + math.hypot(one.high - 0.9, 0.6 - two.low))


def test_columns_that_vary_together_keep_a_narrow_difference_and_many_rows_change_nothing():
    first, second = Interval(0.9, 0.88, 0.92), Interval(0.89, 0.87, 0.91)
    _, low, high = widened(first, second, (0.009, 0.011))
    assert -0.1 < low < 0.009  # independent ones would reach -0.09 and more, from 20 rows
    assert 0.011 < high < 0.1
    assert widened(first, second, (0.009, 0.011), wrong=100)[1:] == (0.009, 0.011)
