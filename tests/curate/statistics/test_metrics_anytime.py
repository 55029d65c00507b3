"""Intervals that hold at every look: against sums of exact probabilities, by enumeration, and by simulation."""

import math
from functools import cache
from itertools import product

import numpy as np
import pytest

from curate.statistics.paired import LOOKS, fewest_rows, level_of_look, paired_interval, tail
from scoring.metrics.proportions import clopper_pearson

N_RUNS, N_ROWS, N_LOOKS = 2_000, 200, 15
SLACK = 3 * math.sqrt(0.05 * 0.95 / N_RUNS)  # three standard errors of a share of the runs


def binomial_tail(k, n, p):
    return math.fsum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


@pytest.mark.parametrize(("right", "n", "level"), [(7, 10, 0.9), (1, 30, 0.95), (29, 30, 0.95), (40, 90, 0.999)])
def test_at_the_ends_of_the_exact_interval_so_extreme_a_count_has_half_the_error(right, n, level):
    interval = clopper_pearson(right, n, level)
    assert binomial_tail(right, n, interval.low) == pytest.approx((1 - level) / 2, rel=1e-6)
    assert 1 - binomial_tail(right + 1, n, interval.high) == pytest.approx((1 - level) / 2, rel=1e-6)


def test_all_right_all_wrong_and_no_rows_have_an_interval_too():
    assert clopper_pearson(20, 20).high == 1
    assert clopper_pearson(20, 20).low == pytest.approx(0.025 ** (1 / 20))
    assert clopper_pearson(0, 20)[1:] == pytest.approx((0, 1 - 0.025 ** (1 / 20)))
    assert math.isnan(clopper_pearson(0, 0).value)
    assert clopper_pearson(0, 0)[1:] == (0, 1)
    for wrong in ((3, 2, 0.95), (-1, 2, 0.95), (1, 2, 0), (1, 2, 1)):
        with pytest.raises(ValueError, match="must be in"):
            clopper_pearson(*wrong)


def test_the_errors_of_all_looks_sum_to_the_allowed_error_and_fall():
    errors = [1 - level_of_look(look, 0.9) for look in range(1, 20_001)]
    assert sum(errors) == pytest.approx(0.1 * (1 - LOOKS / (20_000 + LOOKS)))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] > 0
    for wrong in ((0, 0.95), (1, 0.0), (1, 1.0)):
        with pytest.raises(ValueError, match=r"looks are|confidence must"):
            level_of_look(*wrong)


@pytest.mark.parametrize("bound", [0.5, 0.9, 0.99])
def test_the_fewest_rows_are_the_first_that_show_a_bound(bound):
    needed = fewest_rows(bound, 0.99)
    assert clopper_pearson(needed, needed, 0.99).low >= bound > clopper_pearson(needed - 1, needed - 1, 0.99).low
    assert fewest_rows(bound, 0.99, bound) is None
    at = fewest_rows(bound, 0.99, (1 + bound) / 2)
    assert clopper_pearson(math.floor(at * (1 + bound) / 2), at, 0.99).low >= bound
    assert at > needed


def net_wins(n, p, q):
    """Probability of each net number of wins, by adding one row after the other."""
    chances = np.array([1.0])
    for _ in range(n):
        chances = np.convolve(chances, [q, 1 - p - q, p])
    return chances


@cache
def likeliest_loss(win, loss, n, m):
    """The probability of a loss that makes a result likeliest if the difference is m, by going through a thousand."""
    q = np.linspace(max(0.0, -m), (1 - m) / 2, 200_001)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = [
            count * np.log(part) for count, part in ((win, q + m), (loss, q), (n - win - loss, 1 - m - 2 * q)) if count
        ]
    return q[np.argmax(np.nan_to_num(sum(logs), nan=-np.inf))]


@pytest.mark.parametrize("distance", [0.013, 2.03])
@pytest.mark.parametrize(("p", "q"), [(0.3, 0.1), (0.1, 0.3), (0.05, 0.05), (0.6, 0.4)])
def test_the_tail_is_the_sum_of_the_probabilities_of_all_results_that_far(p, q, distance):
    n, m = 14, p - q
    slow = 0.0
    for win, loss in product(range(n + 1), repeat=2):
        if win + loss > n:
            continue
        gap = win - loss - n * m
        variance = n * (2 * likeliest_loss(win, loss, n, m) + m * (1 - m))
        far = gap / math.sqrt(variance) if variance > 1e-9 else math.copysign(math.inf, gap) if gap else 0.0
        if far >= distance - 1e-9:
            rest = n - win - loss
            slow += (math.factorial(n) / math.prod(map(math.factorial, (win, loss, rest))) * p**win * q**loss) * (
                max(1 - p - q, 0.0) ** rest
            )
    assert tail(distance, n, m, np.array([p + q]))[0] == pytest.approx(slow, abs=1e-9)


@pytest.mark.parametrize(("n", "level"), [(8, 0.9), (16, 0.95), pytest.param(25, 0.95, marks=pytest.mark.slow)])
def test_the_interval_of_a_paired_difference_covers_whatever_the_truth_is(n, level):
    """Coverage by adding the probabilities of all results at many truths: exact, without sampling."""
    results = [(win, loss) for win in range(n + 1) for loss in range(n + 1 - win)]
    ends = np.array([paired_interval(win, loss, n, level)[1:] for win, loss in results])
    ways = [math.lgamma(n + 1) - sum(math.lgamma(k + 1) for k in (win, loss, n - win - loss)) for win, loss in results]
    for rate, tilt in product((0.02, 0.1, 0.3, 0.7, 1.0), (-1, -0.6, 0, 0.3, 0.9)):
        p, q = rate * (1 + tilt) / 2, rate * (1 - tilt) / 2
        chances = np.array(
            [
                math.exp(way) * p**win * q**loss * max(1 - p - q, 0.0) ** (n - win - loss)
                for way, (win, loss) in zip(ways, results, strict=True)
            ]
        )
        inside = (ends[:, 0] <= p - q + 1e-9) & (p - q - 1e-9 <= ends[:, 1])
        assert chances.sum() == pytest.approx(1)
        assert chances[inside].sum() >= level


def test_a_paired_interval_turns_with_its_models_and_shrinks_with_rows():
    interval, turned = paired_interval(30, 12, 300), paired_interval(12, 30, 300)
    assert tuple(interval) == pytest.approx((-turned.value, -turned.high, -turned.low))
    more = paired_interval(300, 120, 3000)
    assert interval.low < more.low < more.value < more.high < interval.high
    assert paired_interval(0, 0, 100)[1:] == pytest.approx(
        (-(1 - 0.0245 ** (1 / 100)), 1 - 0.0245 ** (1 / 100)), abs=1e-4
    )
    assert paired_interval(0, 0, 0)[1:] == (-1, 1)
    assert paired_interval(1, 0, 1).high == 1
    for wrong in ((2, 1, 2, 0.95), (-1, 0, 2, 0.95), (1, 0, 2, 1)):
        with pytest.raises(ValueError, match=r"expected counts|level must be"):
            paired_interval(*wrong)


@cache
def ends_of_looks():
    """Low and high ends (2, 2, looks, right rows): of the intervals of every look, and of each look alone."""
    ends = np.empty((2, 2, N_LOOKS, N_ROWS + 1))
    for right in range(N_ROWS + 1):
        ends[1, :, :, right] = np.array(clopper_pearson(right, N_ROWS)[1:])[:, None]
        for look in range(N_LOOKS):
            ends[0, :, look, right] = clopper_pearson(right, N_ROWS, level_of_look(look + 1))[1:]
    return ends


def looks_broken(rate, alike, seed):
    """Return the shares of runs in which some look misses: of the intervals of every look, and of each look alone.

    Every look has another model, better by a little each time; ``alike`` is how far models are right on the same rows.
    """
    generator = np.random.default_rng(seed)
    truth = rate + (1 - rate) * 0.3 * np.linspace(0, 1, N_LOOKS)
    ends = ends_of_looks()
    common = generator.random((N_RUNS, 1, N_ROWS))
    independent = generator.random((N_RUNS, N_LOOKS, N_ROWS))
    hard = np.where(generator.random((N_RUNS, N_LOOKS, N_ROWS)) < alike, common, independent)
    right = (hard < truth[:, None]).sum(2)  # (runs, looks)
    look = np.arange(N_LOOKS)
    low, high = ends[:, 0, look, right], ends[:, 1, look, right]
    return ((low > truth) | (high < truth)).any(2).mean(1)


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("alike", [0.0, 0.9])
def test_looking_after_every_round_breaks_the_repeated_exact_interval_and_not_this_one(rate, alike):
    every, alone = looks_broken(rate, alike, seed=7)
    assert every <= 0.05 + SLACK
    assert alone > 0.10  # three in a hundred by one look, and more at each


@pytest.mark.slow
def test_lifts_of_many_looks_hold_together():
    generator = np.random.default_rng(3)
    n, runs, chances = 30, 1_000, np.array([0.15, 0.1, 0.75])
    truth = chances[0] - chances[1]
    broken = np.zeros((2, runs), bool)
    for look in range(1, 7):
        counts = generator.multinomial(n, chances, runs)
        for run, (better, worse, _) in enumerate(counts.tolist()):
            for which, level in enumerate((level_of_look(look), 0.95)):
                interval = paired_interval(better, worse, n, level)
                broken[which, run] |= not interval.low <= truth <= interval.high
    every, alone = broken.mean(1)
    assert every <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)
    assert alone > 0.08
