"""Histograms of a report: every finite value once, in bins that ascend, whatever the values are."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from curate.reporting.numbers import histogram, quantiles

KINDS = (np.float64, np.float32, np.float16, np.int8, np.int64, np.uint64)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(KINDS).flatmap(lambda kind: arrays(kind, st.integers(1, 40))))
def test_the_counts_equal_the_values_between_the_edges(values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        finite = values[np.isfinite(values)]
        made = histogram(values)
        spread = quantiles(finite) if len(finite) else []
    edges, counts = np.array(made["edges"]), made["counts"]
    assert sum(counts) == len(finite)
    assert len(edges) == len(counts) + 1
    assert np.isfinite(edges).all()
    assert (edges[1:] >= edges[:-1]).all()
    assert np.isfinite(spread).all()
    assert spread == sorted(spread)
    exact = finite.astype(np.float64)
    if "clipped" not in made:
        assert len(exact) == 0 or edges[0] <= exact.min() <= exact.max() <= edges[-1]
    for at, n in enumerate(counts[1:-1], 1):
        assert n == ((exact >= edges[at]) & (exact < edges[at + 1])).sum()


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32])
def test_values_that_span_decades_have_bins_that_do(kind):
    values = np.geomspace(1, 1e6, 500).astype(kind)
    made = histogram(values)
    assert made["log"]
    ratios = np.divide(made["edges"][1:], made["edges"][:-1])
    assert np.allclose(ratios, ratios[0])


def test_a_value_far_from_all_others_does_not_leave_them_in_one_bin():
    values = np.concatenate([np.random.default_rng(0).normal(0, 1, 10_000), [1e9, -1e9]])
    made = histogram(values)
    assert made["edges"][0] > -10
    assert made["edges"][-1] < 10
    assert min(made["clipped"]) >= 1
    assert sum(made["counts"]) == 10_002
    assert max(made["counts"]) < 1_000


@pytest.mark.parametrize(("value", "low", "high"), [(0.25, 0, 0.5), (-3.0, -6, 0), (0.0, -1, 1), (1e6, 0, 2e6)])
def test_a_single_value_is_in_a_narrow_bin_in_the_middle_from_0_to_twice_the_value(value, low, high):
    made = histogram(np.full(9, value))
    edges, middle = np.array(made["edges"]), len(made["counts"]) // 2
    assert (edges[0], edges[-1], made["counts"][middle], sum(made["counts"])) == (low, high, 9, 9)
    assert edges[middle] < value < edges[middle + 1]
    assert edges[middle + 1] - edges[middle] < (high - low) / 50


def test_few_whole_numbers_have_a_bin_each_and_a_single_one_an_empty_bin_on_both_sides():
    made = histogram(np.array([3, 5, 5, 4, 3, 3]))
    assert (made["edges"], made["counts"]) == ([2.5, 3.5, 4.5, 5.5], [3, 1, 2])
    single = histogram(np.full(9, 3))
    assert (single["edges"], single["counts"]) == ([1.5, 2.5, 3.5, 4.5], [0, 9, 0])
    assert histogram(np.full(9, np.nan)) == {"edges": [0.0, 1.0], "counts": [0], "log": False}
