"""Paired differences: against a bootstrap, and how often random draws are separated."""

import numpy as np
import pytest

from curate.evaluation.subset.trained import ChanceLevel, HeldOutRows, chance_level_of, compared, gap, gap_of_draws

NO_CHANCE_LEVEL = ChanceLevel(0.0, 0.0, 8, 5)


def test_without_chance_level_the_interval_is_a_bootstrap_over_rows():
    generator = np.random.default_rng(0)
    first, second = generator.random((2, 800)) < np.array([[0.8], [0.75]])
    difference = gap(first, second, NO_CHANCE_LEVEL)
    resampled = [
        first[rows].mean() - second[rows].mean() for rows in (generator.integers(0, 800, 800) for _ in range(4000))
    ]
    assert difference.interval.value == pytest.approx(first.mean() - second.mean())
    assert difference.interval.low == pytest.approx(np.quantile(resampled, 0.025), abs=0.003)
    assert difference.interval.high == pytest.approx(np.quantile(resampled, 0.975), abs=0.003)


def test_weights_leave_rows_out_and_several_models_are_averaged():
    generator = np.random.default_rng(1)
    first, second = generator.random((3, 60)) < 0.7, generator.random((2, 60)) < 0.5
    inside = np.arange(60) % 2 == 0
    weighted = gap(first, second, NO_CHANCE_LEVEL, inside / inside.sum())
    alone = gap(first[:, inside], second[:, inside], NO_CHANCE_LEVEL)
    assert weighted.interval == pytest.approx(alone.interval)
    assert weighted.n == alone.n == 30
    assert weighted.interval.value == pytest.approx(first[:, inside].mean() - second[:, inside].mean())


def test_models_that_are_right_on_the_same_rows_do_not_differ():
    right = np.arange(50) % 3 > 0
    difference = gap(right, np.stack([right, right]), chance_level_of(np.stack([right, right]), np.full(50, 1 / 50)))
    assert difference.interval == (0, 0, 0)
    assert difference.p == 1


def test_chance_level_is_what_the_draws_vary_by():
    generator = np.random.default_rng(2)
    draws = generator.random((4, 500)) < 0.8
    weight = np.full(500, 1 / 500)
    level = chance_level_of(draws, weight)
    assert level.variance == pytest.approx(np.var(draws.mean(1), ddof=1))
    assert level.df == 3
    assert level.draws == 4
    assert level.from_rows == pytest.approx(level.variance, rel=2)  # rows alone: independent models vary by no more


@pytest.mark.parametrize(("draw", "row"), [(0.0, 0.4), (0.15, 0.3), (0.3, 0.1)])
def test_random_draws_are_separated_in_about_5_of_100(draw, row):
    generator = np.random.default_rng(3)
    n, trials, low, high = 400, 600, 0, 0
    weight = np.full(n, 1 / n)
    for _ in range(trials):
        easy = generator.normal(1, 1.5, n)
        right = easy + generator.normal(0, draw, (6, 1)) + generator.normal(0, row, (6, n)) > 0
        difference = gap(right[:1], right[1:], chance_level_of(right[1:], weight))
        low += difference.interval.low > 0
        high += difference.interval.high < 0
    assert low / trials < 0.05
    assert high / trials < 0.06
    assert low + high > 0


def test_classes_of_random_draws_seldom_move():
    generator = np.random.default_rng(5)
    label = np.repeat(np.arange(10), 40)
    tested = HeldOutRows(label, [f"c{n}" for n in range(10)], label >= 0, label >= 0, *np.full((2, 10), 99))
    moved = 0
    for _ in range(200):
        easy = generator.normal(1, 1.5, 400)
        drawn = generator.normal(0, 0.3, (12, 10))[:, label] + generator.normal(0, 0.3, (12, 400))
        right = easy + drawn > 0
        sides = {"subset": right[:1], "whole": right[1:2], "random": right[2:7], "random by class": right[7:]}
        result_of_models = compared("any", sides, tested)
        assert [of_class.tested for of_class in result_of_models.classes] == [40] * 10
        moved += min(of_class.adjusted_p["random"] for of_class in result_of_models.classes) <= 0.05
    assert moved / 200 < 0.09


def test_a_number_of_random_subsets_holds_another_one_in_95_of_100():
    generator = np.random.default_rng(4)
    values = generator.normal(7, 2, (3000, 6))
    apart = [gap_of_draws(float(row[0]), row[1:]).p < 0.05 for row in values]
    assert np.mean(apart) == pytest.approx(0.05, abs=0.013)
