"""Intervals of shares: against scipy, against every outcome there is, and by simulation."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest, hypergeom

from scoring.metrics.proportions import (
    Stratum,
    chance_of_at_least,
    lower_bound,
    p_value_at_most,
    stratified_interval,
    stratified_share,
    wilson,
)


@pytest.mark.parametrize(("successes", "n"), [(0, 1), (1, 1), (0, 20), (7, 20), (199, 200), (200, 200)])
def test_wilson_is_the_interval_of_scipy(successes, n):
    expected = binomtest(successes, n).proportion_ci(0.95, "wilson")
    assert wilson(successes, n) == pytest.approx((successes / n, expected.low, expected.high), abs=1e-9)


def test_wilson_of_no_trials_is_0_to_1():
    assert np.isnan(wilson(0, 0).value)
    assert wilson(0, 0)[1:] == (0.0, 1.0)


@pytest.mark.parametrize("bad", [(3, 2, 0.95), (-1, 2, 0.95), (1, 2, 1.0), (1, 2, 0.0)])
def test_wilson_refuses_what_is_no_share(bad):
    with pytest.raises(ValueError, match="must be in"):
        wilson(*bad)


@pytest.mark.parametrize("bad", [(0, 0, 0), (5, 6, 1), (5, 3, 4), (5, 3, -1)])
def test_a_stratum_refuses_counts_that_cannot_be(bad):
    with pytest.raises(ValueError, match="expected size"):
        Stratum(*bad)


@pytest.mark.parametrize("yes", [0, 3, 11, 12])
def test_one_stratum_gives_the_hypergeometric_tail(yes):
    expected = hypergeom(40, 30, 12).sf(yes - 1)
    assert p_value_at_most([Stratum(40, 12, yes)], 0.75) == pytest.approx(expected, rel=1e-9)


def test_one_stratum_of_a_large_population_gives_the_binomial_tail():
    expected = binomtest(95, 100, 0.9, "greater").pvalue
    assert p_value_at_most([Stratum(10**9, 100, 95)], 0.9) == pytest.approx(expected, rel=1e-5)


def test_proportional_samples_without_a_no_are_as_good_as_one_undivided_sample():
    parts = [Stratum(10**7, 50, 50), Stratum(2 * 10**7, 100, 100)]
    assert p_value_at_most(parts, 0.97) == pytest.approx(0.97**150, rel=1e-3)


def test_a_fully_examined_population_has_an_exact_share():
    complete = [Stratum(10, 10, 9), Stratum(30, 30, 30)]
    assert stratified_interval(complete) == pytest.approx((39 / 40,) * 3)


def test_a_stratum_without_a_sample_may_hold_anything():
    low = lower_bound([Stratum(500, 100, 100), Stratum(500, 0, 0)])
    assert low == pytest.approx(0.5 * lower_bound([Stratum(500, 100, 100)]), abs=2e-3)
    assert np.isnan(stratified_share([Stratum(5, 1, 1), Stratum(5, 0, 0)]))
    assert stratified_interval([Stratum(5, 0, 0)])[1:] == (0.0, 1.0)


def test_the_share_weighs_strata_by_their_size():
    assert stratified_share([Stratum(900, 10, 10), Stratum(100, 10, 5)]) == pytest.approx(0.95)


def chances(sizes, samples, good):
    """Every outcome of a stratified sample and its probability."""
    laws = [hypergeom(size, g, n) for size, n, g in zip(sizes, samples, good, strict=True)]
    tables = [law.pmf(np.arange(n + 1)) for law, n in zip(laws, samples, strict=True)]
    for outcome in product(*(range(n + 1) for n in samples)):
        chance = float(np.prod([table[x] for table, x in zip(tables, outcome, strict=True)]))
        if chance > 0:
            yield outcome, chance


@pytest.mark.parametrize(
    ("sizes", "samples"),
    [
        ((12, 6), (4, 4)),
        ((9, 9), (5, 2)),
        pytest.param((6, 4, 5), (3, 4, 2), marks=pytest.mark.slow),
        ((20, 5), (6, 0)),
    ],
)
@pytest.mark.parametrize("alpha", [0.05, 0.25])
def test_a_true_at_most_is_rejected_no_more_often_than_stated_for_every_population(sizes, samples, alpha):
    """The definition of a p value, over every population and every sample of it."""
    cache = {}
    for good in product(*(range(size + 1) for size in sizes)):
        share = sum(good) / sum(sizes)
        wrong = 0.0
        for outcome, chance in chances(sizes, samples, good):
            place = (outcome, sum(good))
            if place not in cache:
                strata = [Stratum(*stratum) for stratum in zip(sizes, samples, outcome, strict=True)]
                cache[place] = p_value_at_most(strata, share)
            wrong += chance * (cache[place] <= alpha)
        assert wrong <= alpha + 1e-9, good


def test_the_bound_is_the_worst_over_a_grid_of_all_shares():
    sizes, samples, yes, share = (1000, 3000, 500), (40, 30, 20), (36, 30, 19), 0.9
    weight = np.array(sizes) / sum(sizes)
    n, seen = np.array(samples), np.array(yes)
    worst = -np.inf
    rates = np.geomspace(0.1, 1e4, 200)[:, None]
    grid = np.linspace(0.5, 1, 101)
    for a, b in product(grid, grid):
        c = (share - weight[0] * a - weight[1] * b) / weight[2]
        p = np.array([a, b, c])
        if ((p >= seen / sizes) & (p <= 1 - (n - seen) / sizes)).all():
            z = rates * weight / n
            logs = (n * (z + np.log(p + (1 - p) * np.exp(-z)))).sum(1) - (rates * weight * seen / n).sum(1)
            worst = max(worst, logs.min())
    logarithm = np.log(p_value_at_most([Stratum(*stratum) for stratum in zip(sizes, samples, yes, strict=True)], share))
    assert worst - 1e-9 <= logarithm <= worst + 0.05


def test_the_p_value_grows_with_the_share_and_falls_with_every_yes():
    def p(share, yes):
        return p_value_at_most([Stratum(100, 20, yes), Stratum(400, 20, 20)], share)

    assert all(np.diff([p(share, 18) for share in np.linspace(0.5, 1, 40)]) >= -1e-9)
    assert all(np.diff([p(0.9, yes) for yes in range(21)]) <= 1e-9)


def test_the_lower_bound_is_the_least_share_that_is_not_rejected():
    strata = [Stratum(60, 20, 19), Stratum(40, 10, 10)]
    members = round(lower_bound(strata, 0.9) * 100)
    assert p_value_at_most(strata, members / 100) > 0.1 >= p_value_at_most(strata, (members - 1) / 100)


def test_a_share_of_everything_is_never_rejected():
    assert p_value_at_most([Stratum(10, 5, 5), Stratum(10, 5, 5)], 1.0) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("shares", [(0.98, 0.99, 1.0), (0.5, 0.9, 0.99), (0.2, 0.5, 0.8)])
def test_the_interval_covers_at_least_as_often_as_stated(shares):
    generator = np.random.default_rng(0)
    sizes, samples = np.array([300, 1000, 3000]), np.array([50, 50, 60])
    good = np.round(sizes * shares).astype(int)
    truth, missed, repeats = good.sum() / sizes.sum(), 0, 400
    for _ in range(repeats):
        yes = generator.hypergeometric(good, sizes - good, samples)
        strata = [Stratum(*map(int, stratum)) for stratum in zip(sizes, samples, yes, strict=True)]
        interval = stratified_interval(strata)
        missed += not interval.low <= truth <= interval.high
    assert missed / repeats <= 0.05


@pytest.mark.parametrize(("drawn", "marked", "total"), [(0, 0, 1), (3, 2, 7), (7, 7, 7), (40, 11, 90), (5, 0, 9)])
def test_the_probability_of_at_least_so_many_is_the_hypergeometric_one(drawn, marked, total):
    for seen in range(drawn + 1):
        expected = hypergeom(total, marked, drawn).sf(seen - 1)
        assert chance_of_at_least(seen, drawn, marked, total) == pytest.approx(expected, abs=1e-12)


def test_more_seen_than_drawn_is_refused():
    with pytest.raises(ValueError, match="seen <= drawn"):
        chance_of_at_least(4, 3, 5, 10)
