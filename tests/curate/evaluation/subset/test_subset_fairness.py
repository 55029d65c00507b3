"""Shares kept of groups: the four-fifths rule, and who was dropped more than chance allows."""

import numpy as np
import pytest
import scipy.stats

from curate.evaluation.subset.findings import NOBODY, fairness
from curate.tables.rows import Codes
from scoring.errors import InputError


def make(counts):
    """Codes and kept of groups given as (rows, kept)."""
    codes = np.repeat(np.arange(len(counts)), [rows for rows, _ in counts]).astype(np.int32)
    kept = np.concatenate([np.arange(rows) < stay for rows, stay in counts])
    return Codes(codes, [f"g{n}" for n in range(len(counts))]), kept


def test_shares_ratio_and_p_match_the_definitions():
    codes, kept = make([(100, 80), (50, 25), (30, 24)])
    result_by_group = fairness("group", codes, kept)
    assert [group.name for group in result_by_group.groups] == ["g1", "g0", "g2"]
    assert result_by_group.ratio == pytest.approx(0.5 / 0.8)
    assert not result_by_group.passes
    assert result_by_group.kept == pytest.approx(129 / 180)
    lowest = result_by_group.groups[0]
    assert lowest.p == pytest.approx(scipy.stats.hypergeom(180, 51, 50).sf(24))
    assert lowest.adjusted_p == pytest.approx(min(1, 3 * lowest.p))
    assert [group.name for group in result_by_group.groups if group.dropped_more] == ["g1"]
    assert lowest.share.low == pytest.approx(0.366, abs=0.001)  # Wilson, 25 of 50


def test_shares_that_are_alike_pass_and_no_group_is_dropped_more():
    result_by_group = fairness("group", *make([(1000, 480), (1000, 500)]))
    assert result_by_group.passes
    assert not any(group.dropped_more for group in result_by_group.groups)


def test_rows_without_a_group_form_a_separate_group():
    codes, kept = make([(10, 5), (10, 5)])
    codes.codes[:4] = -1
    assert {group.name: group.rows for group in fairness("group", codes, kept).groups} == {"g0": 6, "g1": 10, NOBODY: 4}


@pytest.mark.parametrize("counts", [[(20, 7)], [(5, 0), (6, 0)]])
def test_one_group_or_nothing_kept_has_no_ratio(counts):
    result_by_group = fairness("group", *make(counts))
    assert np.isnan(result_by_group.ratio)
    assert result_by_group.passes


def test_random_subsets_are_seldom_called_unfair():
    codes, _ = make([(300, 0), (200, 0), (40, 0), (12, 0)])
    generator = np.random.default_rng(0)
    called = [
        any(group.dropped_more for group in fairness("g", codes, generator.permutation(552) < 276).groups)
        for _ in range(400)
    ]
    assert np.mean(called) < 0.08


def test_a_column_of_keys_is_no_column_of_groups():
    with pytest.raises(InputError, match=r"1,000 groups.* got 1,200"):
        fairness("id", *make([(1, 1)] * 1200))
