from itertools import product

import numpy as np
import pytest

from curate.rounds.simulation.replay import Replay, area_under, compare, labels_saved, lift, replay, sign_flip_p
from curate.selectors.chance import Random
from curate.selectors.contract import Pool, Selection
from curate.selectors.table import SELECTORS
from scoring.errors import InputError


def blobs(n, seed, c=3, d=6):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, c, n)
    return np.random.default_rng(99).standard_normal((c, d))[labels] + generator.standard_normal((n, d)), labels


def data(**more):
    x, y = blobs(80, 0)
    test_x, test_y = blobs(60, 1)
    return Replay(x, y, test_x, test_y, **more)


class Recorder:
    """Picks the lowest rows, and keeps what it was shown."""

    needs, prefix, cost = ("probabilities",), True, "O(1)"

    def __init__(self):
        self.pools: list[Pool] = []

    def __call__(self, pool, budget, *, seed=0):
        self.pools.append(pool)
        return Selection(pool.candidates[:budget], np.ones(budget))


def test_every_round_shows_what_is_known_by_then_and_nothing_else():
    shown, known = Recorder(), data()
    curves = replay(known, shown, budgets=[5, 12, 20], seeds=[4])
    assert len(shown.pools) == 2  # the first batch was random: there were no probabilities yet
    for pool, labelled in zip(shown.pools, (5, 12), strict=True):
        rows = np.sort(curves.picks[0, :labelled])
        assert pool.labelled.tolist() == rows.tolist()
        assert sorted([*pool.candidates, *rows]) == list(range(80))
        assert pool.labels[rows].tolist() == known.labels[rows].tolist()
        assert (np.delete(pool.labels, rows) == -1).all()
        assert pool.probabilities.shape == (80, 3)
        assert np.linalg.norm(pool.vectors, axis=1) == pytest.approx(1, abs=1e-6)
    assert curves.picks[0, 5:].tolist() == [
        *np.setdiff1d(np.arange(80), curves.picks[0, :5])[:7],
        *np.setdiff1d(np.arange(80), curves.picks[0, :12])[:8],
    ]


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_no_row_is_labelled_twice_and_all_can_be():
    for name in ("random", "margin", "k-means"):
        curves = replay(data(), SELECTORS[name](), budgets=[10, 47, 80], seeds=[0, 1])
        assert np.array_equal(np.sort(curves.picks, axis=1), np.tile(np.arange(80), (2, 1)))
        assert np.ptp(curves.accuracy[:, -1]) == 0  # the same rows in the end, whoever picked them


def test_the_seed_drives_everything_and_strategies_begin_alike():
    first, again = (replay(data(), SELECTORS["entropy"](), budgets=[6, 20], seeds=[3, 5]) for _ in range(2))
    assert np.array_equal(first.picks, again.picks)
    assert np.array_equal(first.accuracy, again.accuracy)
    assert not np.array_equal(first.picks[0], first.picks[1])
    other = replay(data(), SELECTORS["margin"](), budgets=[6, 20], seeds=[3, 5])
    assert np.array_equal(first.picks[:, :6], other.picks[:, :6])


def test_annotators_that_err_train_and_the_truth_tests():
    wrong = replay(data(annotated=(data().labels + 1) % 3), Random(), budgets=[40], seeds=[0])
    right = replay(data(), Random(), budgets=[40], seeds=[0])
    assert right.accuracy[0, 0] > 0.6
    assert wrong.accuracy[0, 0] < 0.25


def test_a_first_selector_other_than_random_can_be_given():
    first = Recorder()
    first.needs = ()
    curves = replay(data(), SELECTORS["margin"](), budgets=[4, 8], seeds=[0], first=first)
    assert curves.picks[0, :4].tolist() == [0, 1, 2, 3]


def test_progress_is_reported_after_every_round():
    reports = []
    comparison = compare(
        data(),
        {"random": Random(), "margin": SELECTORS["margin"]()},
        budgets=[5, 9],
        seeds=[1, 2],
        observe=lambda *news: reports.append(news),
    )
    assert [news[:3] for news in reports] == list(product(["random", "margin"], [1, 2], [5, 9]))
    assert reports[0][3] == comparison["random"].accuracy[0, 0]


@pytest.mark.parametrize("budgets", [[], [0, 5], [5, 5], [9, 3], [10, 81]])
def test_budgets_that_do_not_ascend_inside_the_pool_are_one_line(budgets):
    with pytest.raises(InputError, match="the 80 rows"):
        replay(data(), Random(), budgets=budgets, seeds=[0])


def test_the_area_is_the_mean_height_by_trapezoids():
    budgets, accuracy = np.array([10, 20, 50]), np.random.default_rng(0).random((4, 3))
    fine = np.linspace(10, 50, 400_001)
    expected = [np.interp(fine, budgets, row).mean() for row in accuracy]
    assert area_under(budgets, accuracy) == pytest.approx(expected, abs=1e-5)
    assert area_under(budgets[:1], accuracy[:, :1]).tolist() == accuracy[:, 0].tolist()


def test_labels_saved_reads_the_budget_where_our_curve_reaches_theirs():
    budgets = np.array([10, 20, 40, 80])
    ours, reference = np.array([0.4, 0.6, 0.5, 0.9]), np.array([0.5, 0.4, 0.75, 0.95])
    # made to never fall: ours .4 .6 .6 .9, theirs .5 .5 .75 .95
    expected = [1 - 15 / 10, 1 - 15 / 10, 1 - 60 / 40]  # theirs is at .5 with 10 already
    saved = labels_saved(budgets, ours, reference)
    assert saved[:3] == pytest.approx(expected)
    assert np.isnan(saved[3])
    for curve in (ours, reference, np.full(4, 0.5)):  # nothing is saved over oneself, however flat
        assert labels_saved(budgets, curve, curve) == pytest.approx(np.zeros(4))


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_the_paired_test_counts_choices_of_sign(n):
    differences = np.random.default_rng(n).standard_normal(n) + 0.5
    reached = sum(
        abs(sum(s * d for s, d in zip(signs, differences, strict=True))) >= abs(differences.sum()) - 1e-12
        for signs in product((1, -1), repeat=n)
    )
    assert sign_flip_p(differences) == pytest.approx(reached / 2**n)


def test_the_paired_test_of_many_seeds_agrees_with_the_normal_one():
    differences = np.random.default_rng(0).standard_normal(60) + 0.25
    from scipy.stats import ttest_1samp

    assert sign_flip_p(differences) == pytest.approx(ttest_1samp(differences, 0).pvalue, abs=0.02)
    assert sign_flip_p(np.zeros(20)) == 1


def test_a_lift_is_taken_seed_by_seed():
    known = data()
    first, other = (
        replay(known, SELECTORS[name](), budgets=[5, 20, 40], seeds=range(4)) for name in ("margin", "random")
    )
    gain = lift(first, other)
    gap = first.accuracy - other.accuracy
    assert gain.difference == pytest.approx(gap.mean(0))
    assert gain.error == pytest.approx(gap.std(0, ddof=1) / 2)
    assert gain.area == pytest.approx((first.area - other.area).mean())
    assert gain.p == sign_flip_p(first.area - other.area)
    assert first.error == pytest.approx(first.accuracy.std(0, ddof=1) / 2)
    same = lift(other, other)
    assert same.area == 0
    assert same.p == 1


def test_one_seed_has_no_standard_error_and_other_seeds_cannot_be_compared():
    first = replay(data(), Random(), budgets=[5, 9], seeds=[0])
    assert np.isnan(first.error).all()
    assert np.isnan(lift(first, first).area_error)
    with pytest.raises(ValueError, match="same seeds and budgets"):
        lift(first, replay(data(), Random(), budgets=[5, 9], seeds=[1]))
