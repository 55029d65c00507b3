"""Advice on stopping, coverage, and how good the strategy is over chance."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.commands.status import lift_words
from curate.probes.accuracy import Accuracy, entropy_share
from curate.probes.probabilities import Labelled
from curate.rounds.measures.lift import (
    REACHED,
    Arms,
    ModelAgreement,
    ModelQuality,
    PoolCoverage,
    anytime_accuracy,
    arm_lift,
    cohen_kappa,
    compared,
    coverage,
    sample_of,
)
from curate.rounds.measures.stopping import advise

ANYTIME = anytime_accuracy(Accuracy(9, 10, 0.9), 1, 0.95)


def model(kappa=None, changed=0.1, mean=0.5, entropy=0.4):
    against = None if kappa is None else ModelAgreement(10, kappa, changed)
    return ModelQuality(
        "linear", 20, {"a": 20}, None, Accuracy(), entropy, ANYTIME, PoolCoverage(mean, 1.0, 0.5), against
    )


def reached(*models, n_labels=100, budget=None, n_left=5):
    return {each.name: each.reached for each in advise(models, n_labels, budget, n_left)}


@pytest.mark.parametrize("seed", range(4))
def test_kappa_is_agreement_beyond_shuffled_answers(seed):
    """Expected agreement restated: over all pairs of one row's first answer with any row's second."""
    generator = np.random.default_rng(seed)
    a, b = (generator.choice(["x", "y", "z"], 40, p=[0.6, 0.3, 0.1]).tolist() for _ in range(2))
    b[:25] = a[:25]
    observed = np.mean([first == two for first, two in zip(a, b, strict=True)])
    expected = np.mean([first == two for first in a for two in b])
    assert cohen_kappa(a, b) == pytest.approx((observed - expected) / (1 - expected))
    assert cohen_kappa(a, a) == 1
    assert cohen_kappa(["x"] * 5, ["x"] * 5) == 1


def test_predictions_are_stable_only_after_three_rounds_in_a_row():
    name = "stabilising predictions"
    assert reached(model(), model(0.999))[name] is None
    assert reached(model(), model(0.999), model(0.995), model(0.99))[name] is True
    assert reached(model(), model(0.999), model(0.98), model(0.999))[name] is False
    assert reached(model(), model(0.5), model(0.995), model(0.99), model(1.0))[name] is True


def test_other_criteria_report_their_values():
    assert reached(model())["classification change"] is None
    assert reached(model(), model(1.0, changed=0.0))["classification change"] is True
    assert reached(model(entropy=0.049))["mean entropy"] is True
    assert reached()["mean entropy"] is None
    flat = [model(mean=value) for value in (1.0, 0.500, 0.498, 0.4955, 0.493)]
    assert reached(*flat)["exhausted coverage"] is True
    assert reached(*flat[:4])["exhausted coverage"] is False
    assert reached(*flat[:3])["exhausted coverage"] is None
    assert reached(n_left=0)["pool"] is True
    assert "budget" not in reached()
    assert reached(budget=100)["budget"] is True
    assert reached(budget=101)["budget"] is False


def test_models_are_compared_on_the_keys_that_both_saw(tmp_path):
    before = pa.table({"key": ["a", "b", "c", "z"], "predicted": ["x", "x", "y", "y"]})
    pq.write_table(before, tmp_path / "stop.parquet")
    now = pa.table({"key": ["c", "a", "b", "new"], "predicted": ["y", "x", "y", "x"]})
    result_of_models = compared(now, tmp_path / "stop.parquet")
    assert (result_of_models.n, result_of_models.changed) == (3, pytest.approx(1 / 3))
    assert result_of_models.kappa == pytest.approx(cohen_kappa(["y", "x", "y"], ["y", "x", "x"]))
    assert compared(now, tmp_path / "none.parquet") is None


def test_coverage_is_the_distance_to_the_nearest_labelled_row():
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((60, 5))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    sample, labelled = np.arange(40), np.array([3, 50, 55])
    slow = np.array([min(np.linalg.norm(vectors[i] - vectors[j]) for j in labelled) for i in sample])
    covered = coverage(vectors, sample, labelled)
    assert (covered.mean, covered.most) == (pytest.approx(slow.mean(), abs=1e-3), pytest.approx(slow.max(), abs=1e-4))
    assert covered.within == pytest.approx((slow <= REACHED).mean())
    assert coverage(vectors, sample, np.zeros(0, np.int64)) is None


def test_the_sample_on_which_rounds_are_compared_is_always_the_same():
    rows = np.arange(5000)
    assert len(sample_of(rows, 0)) == 2000
    assert np.array_equal(sample_of(rows, 0), sample_of(rows, 0))
    assert not np.array_equal(sample_of(rows, 0), sample_of(rows, 1))
    assert sample_of(np.array([4, 9]), 0).tolist() == [4, 9]


def test_entropy_is_1_for_an_even_guess_and_0_for_certainty():
    assert entropy_share(np.full((3, 4), 0.25, np.float32)) == pytest.approx(1)
    assert entropy_share(np.eye(4, dtype=np.float32)) == 0


def arms(n_strategy=80, n_control=40, n_held_out=200, *, spoil=0.0, seed=0):
    """Two clusters; a share of the control arm's labels is wrong."""
    generator = np.random.default_rng(seed)
    n = n_strategy + n_control + n_held_out
    labels = generator.integers(0, 2, n)
    vectors = (generator.standard_normal((n, 6)) + np.outer(labels * 2 - 1, [1.0, 0.5, 0, 0, 0, 0])).astype(np.float32)
    rows = np.split(np.arange(n), [n_strategy, n_strategy + n_control])
    noisy = labels.copy()
    wrong = rows[1][: round(spoil * n_control)]
    noisy[wrong] = 1 - noisy[wrong]
    known = [Labelled(part, (noisy if i < 2 else labels)[part], ("a", "b")) for i, part in enumerate(rows)]
    return Arms(vectors, *known, "linear")


def test_a_control_arm_of_wrong_labels_is_beaten_beyond_the_interval():
    gain = arm_lift(arms(spoil=0.45))
    assert gain.n == 40
    assert gain.difference == pytest.approx(gain.strategy - gain.control)
    assert 0 < gain.low < gain.difference < gain.high
    assert gain.needed is None
    assert "the strategy beats random" in lift_words(gain)


def test_similar_arms_are_not_separated():
    gain = arm_lift(arms())
    assert gain.low < 0 < gain.high
    assert "not enough yet" in lift_words(gain)
    assert abs(gain.difference) < 0.1


@pytest.mark.slow
def test_the_interval_holds_the_truth_about_as_often_as_stated():
    """Both arms are drawn alike, so the true difference is 0."""
    inside = [lift.low <= 0 <= lift.high for lift in (arm_lift(arms(40, 40, 100, seed=s), s) for s in range(40))]
    assert sum(inside) >= 34


@pytest.mark.parametrize(
    ("sizes", "text"), [((80, 19, 200), "19 control labels"), ((80, 40, 49), "49 held-out labels")]
)
def test_too_few_labels_are_counted(sizes, text):
    gain = arm_lift(arms(*sizes))
    assert text in lift_words(gain)
    assert gain.difference is None


@pytest.mark.slow
def test_the_number_of_labels_that_would_do_shrinks_as_the_difference_grows():
    needed = [arm_lift(arms(80, 40, 4000, spoil=spoil, seed=1)).needed for spoil in (0.1, 0.2)]
    numbers = [number for number in needed if number is not None]
    assert numbers == sorted(numbers, reverse=True)
    assert all(number > 40 for number in numbers)
