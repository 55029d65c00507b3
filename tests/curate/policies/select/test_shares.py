"""Shares of a budget, against pouring it in one drop at a time."""

import numpy as np
import pytest

from curate.policies.select.plan import group_order, in_turns, water_fill


def poured(sizes, budget):
    """One row at a time to the group that has given fewest and has some left; the first of equals."""
    shares = [0] * len(sizes)
    for _ in range(budget):
        open_groups = [g for g, size in enumerate(sizes) if shares[g] < size]
        shares[min(open_groups, key=lambda g: (shares[g], g))] += 1
    return shares


@pytest.mark.parametrize("seed", range(20))
def test_water_filling_is_pouring_one_row_at_a_time(seed):
    generator = np.random.default_rng(seed)
    sizes = generator.integers(0, 9, generator.integers(1, 8)).tolist()
    for budget in range(sum(sizes) + 1):
        assert water_fill(sizes, budget) == poured(sizes, budget)


def test_a_small_group_gives_all_it_has_and_the_others_the_rest():
    assert water_fill([1, 100, 3, 100], 50) == [1, 23, 3, 23]


def test_in_turns_takes_one_of_each_group_while_it_has_some():
    # groups of 1, 3 and 2 picks are at 0, 1-3 and 4-5
    assert in_turns([1, 3, 2]).tolist() == [0, 1, 4, 2, 5, 3]
    assert in_turns([]).tolist() == []


def test_the_start_of_a_balanced_batch_is_balanced():
    quotas = water_fill([2, 9, 5], 12)
    group = np.repeat([0, 1, 2], quotas)[in_turns(quotas)]
    for budget in range(13):
        assert np.bincount(group[:budget], minlength=3).tolist() == poured([2, 9, 5], budget)


def test_groups_take_turns_in_a_fixed_order_whatever_comes_first():
    names = ["cat", "dog", "eel", "fox"]
    order = [names[g] for g in group_order(names)]
    turned = names[::-1]
    assert [turned[g] for g in group_order(turned)] == order
    assert sorted(order) == names
