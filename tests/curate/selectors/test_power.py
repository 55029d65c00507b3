from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from curate.selectors.pool import Pool
from curate.selectors.power import PowerSampling
from scoring.errors import InputError

SCORES = np.array([0.5, 1.0, 2.0, 4.0], np.float32)


def pool_of(values):
    values = np.asarray(values, np.float32)
    return Pool(np.arange(len(values)), uncertainty=values)


def weights_of(form, temperature):
    if form == "power":
        return SCORES.astype(float) ** (1 / temperature)
    if form == "softmax":
        return np.exp(SCORES.astype(float) / temperature)
    return np.array([4.0, 3.0, 2.0, 1.0]) ** (-1 / temperature)


@pytest.mark.parametrize("form", ["power", "softmax", "rank"])
@pytest.mark.parametrize("temperature", [0.7, 2.0])
def test_the_chance_of_a_row_is_its_definition_up_to_a_constant(form, temperature):
    found = PowerSampling("score", temperature, form)(pool_of(SCORES), 4, seed=5)
    constant = found.parts["log_chance"] - np.log(weights_of(form, temperature))[found.rows]
    assert constant == pytest.approx(np.full(4, constant[0]), abs=1e-12)


def test_pairs_are_drawn_as_often_as_drawing_without_putting_back_says():
    weight, runs = weights_of("power", 2.0), 6000
    sampler, pool = PowerSampling("score", 2.0, "power"), pool_of(SCORES)
    drawn = [tuple(sampler(pool, 2, seed=seed).rows.tolist()) for seed in range(runs)]
    total = 0.0
    for one, two in permutations(range(4), 2):
        chance = weight[one] / weight.sum() * weight[two] / (weight.sum() - weight[one])
        error = np.sqrt(runs * chance * (1 - chance))
        assert abs(drawn.count((one, two)) - runs * chance) < 4.5 * error + 1
        total += chance
    assert total == pytest.approx(1)


@pytest.mark.parametrize("form", ["power", "softmax", "rank"])
def test_a_small_temperature_is_the_top_of_the_ranking(form):
    values = np.random.default_rng(0).permutation(40) + 1.0
    found = PowerSampling("score", 1e-4, form)(pool_of(values), 12, seed=8)
    assert found.rows.tolist() == np.argsort(-values)[:12].tolist()
    assert found.gains.tolist() == sorted(values, reverse=True)[:12]


def test_the_rank_form_depends_on_the_order_alone_and_ties_share():
    order = pool_of(SCORES), pool_of(np.exp(5 * SCORES.astype(float)))
    for seed in range(20):
        one, other = (PowerSampling("score", 1.0, "rank")(pool, 3, seed=seed).rows for pool in order)
        assert np.array_equal(one, other)
    parts = PowerSampling("score", 1.0, "rank")(pool_of([1, 3, 3, 0]), 4).parts["log_chance"]
    assert sorted(np.exp(-parts)) == pytest.approx([1.5, 1.5, 3, 4])


def test_scores_of_zero_come_last_in_random_order():
    values = np.array([0, 0, 0, 0, 1e-30, 2], np.float32)
    orders = {tuple(PowerSampling("score")(pool_of(values), 6, seed=seed).rows.tolist()) for seed in range(30)}
    assert all(set(order[:2]) == {4, 5} for order in orders)
    assert len({order[2:] for order in orders}) > 10


def test_negative_scores_are_refused_by_the_power_form_and_taken_by_the_others():
    pool = pool_of([-1, 2, 3])
    with pytest.raises(InputError, match="at least 0, got -1; use the rank or softmax form"):
        PowerSampling("score")(pool, 1)
    for form in ("rank", "softmax"):
        assert len(PowerSampling("score", 1.0, form)(pool, 3).rows) == 3


def test_it_needs_what_its_score_needs():
    assert PowerSampling("bald").needs == ("draws",)
    assert replace(PowerSampling("bald"), score="score").needs == ("uncertainty",)
    assert PowerSampling().needs == PowerSampling.needs


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"score": "margins"}, "unknown score 'margins'; did you mean 'margin'"),
        ({"temperature": 0.0}, "temperature must be above 0 and finite, got 0"),
        ({"temperature": float("nan")}, "temperature must be above 0 and finite, got nan"),
        ({"form": "softplus"}, "one of power, softmax, rank, got 'softplus'"),
    ],
)
def test_parameters_out_of_range_are_named(given, said):
    with pytest.raises(InputError, match=said):
        PowerSampling(**given)
