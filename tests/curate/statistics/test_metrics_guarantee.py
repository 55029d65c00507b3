"""Cuts with a guarantee, against SciPy's distributions and by simulation."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import binom, hypergeom

from curate.statistics.guarantee import (
    Sampled,
    conformal_cut,
    fewest_verdicts,
    guaranteed_cut,
    more_verdicts,
    p_value_bad,
    plan_tests,
    verdicts_for_power,
)
from scoring.metrics.proportions import Stratum

N = 4000


def dataset(share: float, sharpness: float, seed: int = 0) -> np.ndarray:
    """Rows in order, of which the last ones are mostly bad, shape (N,) bool."""
    place = (np.arange(N) + 0.5) / N
    chance = 1 / (1 + np.exp(-(place - (1 - share)) * sharpness))
    return np.random.default_rng(seed).random(N) < np.clip(chance * share / chance.mean(), 0, 1)


def drawn(bad: np.ndarray, n: int, rng: np.random.Generator) -> Sampled:
    rows = rng.choice(len(bad), n, replace=False)
    return Sampled(np.array([len(bad)]), rows + 1, bad[rows].astype(float))


@pytest.mark.parametrize(
    ("size", "n", "bad", "rate"), [(1000, 149, 0, 0.02), (300, 60, 2, 0.1), (50, 49, 0, 0.02), (10, 3, 1, 0.5)]
)
def test_the_p_value_is_the_probability_of_so_few_bad_ones_if_one_more_than_the_rate_allows_is_bad(size, n, bad, rate):
    too_many = int(rate * size) + 1
    assert p_value_bad([Stratum(size, n, bad)], rate) == pytest.approx(hypergeom.cdf(bad, size, too_many, n))


def test_a_verdict_on_every_row_leaves_no_doubt():
    assert p_value_bad([Stratum(100, 100, 2)], 0.02) == 0
    assert p_value_bad([Stratum(100, 100, 3)], 0.02) == 1


@pytest.mark.parametrize(
    ("rate", "confidence", "n_bad"), [(0.02, 0.95, 0), (0.02, 0.95, 3), (0.05, 0.95, 0), (0.1, 0.9, 2)]
)
def test_the_fewest_verdicts_of_a_large_population_follow_the_binomial(rate, confidence, n_bad):
    n = fewest_verdicts(10**7, rate, confidence, n_bad)
    assert binom.cdf(n_bad, n, rate) <= 1 - confidence < binom.cdf(n_bad, n - 1, rate)


def test_a_small_population_needs_fewer_verdicts_and_a_tiny_one_may_have_none_that_do():
    n = fewest_verdicts(200, 0.02, 0.95)
    assert p_value_bad([Stratum(200, n, 0)], 0.02) <= 0.05 < p_value_bad([Stratum(200, n - 1, 0)], 0.02)
    assert n < 149
    assert fewest_verdicts(200, 0.02, 0.95, 5) is None


@pytest.mark.parametrize(("expected", "rate"), [(0.005, 0.02), (0.01, 0.05), (0.0, 0.02)])
def test_so_many_verdicts_pass_with_the_power_that_was_requested(expected, rate):
    n = verdicts_for_power(N, rate, 0.95, expected=expected, power=0.8)
    allowed = max(bad for bad in range(n) if hypergeom.cdf(bad, N, int(rate * N) + 1, n) <= 0.05)
    assert hypergeom.cdf(allowed, N, int(expected * N), n) >= 0.8
    assert verdicts_for_power(N, rate, 0.95, expected=rate) is None


def test_strata_hold_the_rows_of_each_zone_up_to_the_cut():
    sampled = Sampled(np.array([10, 30]), np.array([1, 4, 10, 11, 25, 30]), np.array([0, 1, 0, 0.5, 0, 1]))
    assert sampled.until(5) == [Stratum(5, 2, 1)]
    assert sampled.until(11) == [Stratum(10, 3, 1), Stratum(1, 1, 0.5)]
    assert sampled.until(30) == [Stratum(10, 3, 1), Stratum(20, 3, 1.5)]


def test_the_cuts_to_test_do_not_depend_on_verdicts():
    ranks = np.random.default_rng(0).choice(N, 600, replace=False) + 1
    plans = [plan_tests(Sampled(np.array([N]), ranks, np.full(600, said)), 0.02, 0.95) for said in (0.0, 1.0)]
    assert (plans[0].cuts == plans[1].cuts).all()
    assert (plans[0].levels == plans[1].levels).all()
    assert plans[0].cuts[-1] == N
    assert plans[0].levels.sum() == pytest.approx(0.05)
    starts = plans[0].cuts[plans[0].levels > 0]
    assert starts[1:].tolist() == [N / 2, 3 * N / 4]
    assert starts[0] * 600 / N > fewest_verdicts(N, 0.02, 1 - 0.05 / 3)


def test_levels_are_handed_on_where_a_cut_passes_and_lost_where_it_fails():
    ranks = np.arange(1, N + 1, 4)
    badness = np.zeros(len(ranks))
    badness[np.flatnonzero((ranks > 0.3 * N) & (ranks < 0.45 * N))[::19]] = 1.0  # passes early, and then no more
    tested = guaranteed_cut(Sampled(np.array([N]), ranks, badness), 0.02, 0.95).tested
    fresh = [test.level - (before.level if before.passed else 0) for before, test in pairwise(tested)]
    assert np.isclose(fresh, 0, atol=1e-12).sum() == len(fresh) - 2
    assert np.isclose(fresh, 0.05 / 3).sum() == 2
    assert {test.passed for test in tested} == {True, False}


def test_ties_are_never_parted():
    ranks = np.random.default_rng(0).choice(N, 600, replace=False) + 1

    def snap(at):
        return np.minimum(-(-at // 1000) * 1000, N)

    cut = guaranteed_cut(Sampled(np.array([N]), snap(ranks), np.zeros(600)), 0.02, 0.95, snap=snap)
    assert [test.kept for test in cut.tested] == [2000, 3000, 4000]


def test_too_few_verdicts_test_nothing_and_say_how_many_more():
    sampled = Sampled(np.array([10**6]), np.arange(1, 101), np.zeros(100))
    assert guaranteed_cut(sampled, 0.02, 0.95).kept == 0
    assert more_verdicts(sampled, 0.02, 0.95) == 49


def test_all_good_keeps_all_and_all_bad_keeps_nothing():
    rows = np.random.default_rng(0).choice(N, 300, replace=False) + 1
    assert guaranteed_cut(Sampled(np.array([N]), rows, np.zeros(300)), 0.02, 0.95).kept == N
    worst = Sampled(np.array([N]), rows, np.ones(300))
    assert guaranteed_cut(worst, 0.02, 0.95).kept == 0
    assert more_verdicts(worst, 0.02, 0.95) is None


@pytest.mark.parametrize(("share", "sharpness"), [(0.05, 15), (0.3, 40), (0.04, 0)])
@pytest.mark.parametrize("rate", [0.02, 0.05])
def test_the_promise_is_broken_in_at_most_one_of_twenty_samples(share, sharpness, rate):
    """A score that says nothing (sharpness 0) is the hardest: every cut is near the rate."""
    bad = dataset(share, sharpness)
    so_far = np.cumsum(bad) / np.arange(1, N + 1)
    rng = np.random.default_rng(1)
    kept = [guaranteed_cut(drawn(bad, 400, rng), rate, 0.95).kept for _ in range(60)]
    broken = sum(k > 0 and so_far[k - 1] > rate for k in kept)
    assert broken <= binom.ppf(0.999, 60, 0.05)
    if sharpness == 40:
        assert np.mean(kept) > 0.8 * np.flatnonzero(so_far <= rate).max()


def test_samples_of_two_zones_keep_the_promise_too():
    bad = dataset(0.1, 25)
    so_far = np.cumsum(bad) / np.arange(1, N + 1)
    rng = np.random.default_rng(2)
    broken, kept = 0, []
    for _ in range(20):
        rows = np.union1d(rng.choice(N, 200, replace=False), rng.choice(3000, 200, replace=False))
        cut = guaranteed_cut(Sampled(np.array([3000, N]), rows + 1, bad[rows].astype(float)), 0.02, 0.95).kept
        broken += cut > 0 and so_far[cut - 1] > 0.02
        kept.append(cut)
    assert broken <= binom.ppf(0.999, 20, 0.05)
    assert np.mean(kept) > 0.5 * N


def test_badness_between_good_and_bad_keeps_the_promise():
    rng = np.random.default_rng(3)
    badness = np.where(dataset(0.2, 20), rng.random(N), 0.0)
    so_far = np.cumsum(badness) / np.arange(1, N + 1)
    broken = 0
    for _ in range(20):
        rows = rng.choice(N, 400, replace=False)
        cut = guaranteed_cut(Sampled(np.array([N]), rows + 1, badness[rows]), 0.03, 0.95).kept
        broken += cut > 0 and so_far[cut - 1] > 0.03
    assert broken <= binom.ppf(0.999, 20, 0.05)


def test_conformal_risk_control_holds_on_average_and_is_not_timid():
    bad = dataset(0.1, 10)
    lost, rng = np.cumsum(bad) / N, np.random.default_rng(4)
    cuts = np.arange(10, N + 1, 10)
    losses = np.array([lost[max(conformal_cut(drawn(bad, 200, rng), 0.05, cuts), 1) - 1] for _ in range(400)])
    assert losses.mean() <= 0.05 + 3 * losses.std() / np.sqrt(400)
    assert losses.mean() > 0.035


def test_the_conformal_cut_is_the_largest_whose_loss_with_one_more_bad_row_is_within_the_rate():
    sampled = Sampled(np.array([100]), np.array([5, 20, 40, 60, 99]), np.array([0, 1, 0, 0.5, 1]))
    cuts = np.arange(1, 101)
    for rate in (0.2, 0.35, 0.45, 0.6):
        slow = [
            k
            for k in cuts
            if (sum(b for r, b in zip(sampled.ranks, sampled.badness, strict=True) if r <= k) + 1) / 6 <= rate + 1e-12
        ]
        assert conformal_cut(sampled, rate, cuts) == (max(slow) if slow else 0)


@pytest.mark.parametrize(
    ("ranks", "badness"), [([0], [0.0]), ([11], [0.0]), ([1], [1.5]), ([1, 2], [0.0]), ([1], [np.nan])]
)
def test_a_sample_that_cannot_be_is_refused(ranks, badness):
    with pytest.raises(ValueError, match=r"expected .*rank"):
        Sampled(np.array([10]), np.array(ranks), np.array(badness))
