import math
import tracemalloc

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from curate.probes.linear import STRENGTH, coolest_fit, fit_linear_probe, spread_of
from curate.probes.neighbours import TEMPERATURES, fit_neighbour_probe
from scoring.errors import InputError


def blobs(n, c=3, d=5, seed=0, noise=1.0):
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((c, d))
    labels = generator.integers(0, c, n)
    return (centres[labels] + noise * generator.standard_normal((n, d))).astype(np.float32), labels


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def loss_of(probabilities, labels):
    return -np.log(probabilities[np.arange(len(labels)), labels].astype(float)).mean()


@pytest.mark.parametrize("c", [2, 3, 7])
def test_the_linear_probe_is_the_one_of_scikit_learn_on_scaled_features(c):
    x, y = blobs(120, c)
    new, _ = blobs(50, c, seed=1)
    spread = spread_of(x)
    assert np.linalg.norm((x - spread.mean) * spread.scale, axis=1).mean() == pytest.approx(STRENGTH)
    probe = fit_linear_probe(x, y, c, calibrate=False)
    strength = 2.0 if c == 2 else 1.0  # theirs has one weight for two classes, ours two of half its length
    reference = LogisticRegression(C=strength, tol=1e-10, max_iter=5000).fit((x - spread.mean) * spread.scale, y)
    assert probe.predict(new) == pytest.approx(reference.predict_proba((new - spread.mean) * spread.scale), abs=1e-5)


def test_the_scale_of_the_pool_decides_where_it_is_given():
    x, y = blobs(30)
    pool, _ = blobs(400, seed=2, noise=3.0)
    spread = spread_of(pool)
    reference = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000).fit((x - spread.mean) * spread.scale, y)
    predicted = fit_linear_probe(x, y, 3, spread=spread, calibrate=False).predict(pool)
    assert predicted == pytest.approx(reference.predict_proba((pool - spread.mean) * spread.scale), abs=1e-5)


@pytest.mark.parametrize("fit", [fit_linear_probe, fit_neighbour_probe])
def test_rows_sum_to_one_and_classes_without_a_label_get_nothing(fit):
    x, y = blobs(40)
    predicted = fit(x, np.array([1, 4, 6])[y], 9).predict(x)
    assert predicted.shape == (40, 9)
    assert predicted.dtype == np.float32
    assert predicted.sum(1) == pytest.approx(1, abs=1e-6)
    assert (predicted[:, [0, 2, 3, 5, 7, 8]] == 0).all()
    assert (predicted[:, [1, 4, 6]] > 0).all()


@pytest.mark.parametrize("fit", [fit_linear_probe, fit_neighbour_probe])
@pytest.mark.parametrize("n", [1, 2, 30])
def test_a_class_alone_is_predicted_with_probability_one(fit, n):
    x, _ = blobs(n)
    predicted = fit(x, np.full(n, 2), 4).predict(blobs(9, seed=3)[0])
    assert predicted == pytest.approx(np.eye(4)[[2] * 9], abs=1e-6)


@pytest.mark.parametrize("fit", [fit_linear_probe, fit_neighbour_probe])
def test_rows_that_are_all_equal_get_the_shares_of_the_classes(fit):
    predicted = fit(np.ones((40, 5), np.float32), np.arange(40) % 4 // 3, 2).predict(np.ones((3, 5), np.float32))
    assert predicted == pytest.approx(np.tile([0.75, 0.25], (3, 1)), abs=0.05)


@pytest.mark.parametrize("fit", [fit_linear_probe, fit_neighbour_probe])
def test_a_few_rows_of_two_classes_are_enough(fit):
    x, y = np.eye(4, dtype=np.float32)[:2], np.array([0, 1])
    assert fit(x, y, 2).predict(x).argmax(1).tolist() == [0, 1]


@pytest.mark.parametrize("fit", [fit_linear_probe, fit_neighbour_probe])
def test_the_same_rows_give_the_same_fit_and_inputs_are_only_read(fit):
    x, y = blobs(60)
    x.flags.writeable = y.flags.writeable = False
    assert np.array_equal(fit(x, y, 3).predict(x), fit(x, y, 3).predict(x))


def test_half_precision_vectors_are_read_as_they_are():
    x, y = blobs(60)
    half = x.astype(np.float16)
    single = half.astype(np.float32)
    assert np.array_equal(fit_linear_probe(half, y, 3).predict(half), fit_linear_probe(single, y, 3).predict(single))


def test_predictions_do_not_depend_on_the_block(monkeypatch):
    x, y = blobs(50)
    new, _ = blobs(301, seed=1)
    probes = fit_linear_probe(x, y, 3), fit_neighbour_probe(x, y, 3)
    predictions = [probe.predict(new) for probe in probes]
    monkeypatch.setattr("curate.probes.linear.BLOCK_NUMBERS", 500)
    monkeypatch.setattr("curate.probes.neighbours.BLOCK_NUMBERS", 500)
    for probe, expected in zip(probes, predictions, strict=True):
        assert probe.predict(new) == pytest.approx(expected, abs=1e-6)


def test_prediction_needs_little_next_to_what_it_returns():
    x, y = blobs(50, d=64)
    probe, new = fit_linear_probe(x, y, 3), np.zeros((400_000, 64), np.float16)
    tracemalloc.start()
    probe.predict(new)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400_000 * 3 * 4 + 80e6  # all of it in float64 would be 205 MB


def test_the_temperature_is_the_one_of_least_loss():
    generator = np.random.default_rng(0)
    logits = generator.standard_normal((400, 5)) * 4
    logits[:, 4] = -np.inf
    true = logits / 2.7
    chance = np.exp(true) / np.exp(true).sum(1, keepdims=True)
    labels = np.array([generator.choice(5, p=p) for p in chance])
    temperature = coolest_fit(logits, labels)
    grid = np.exp(np.linspace(math.log(0.3), math.log(30), 4000))
    shifted = [logits / t for t in grid]
    losses = [(np.log(np.exp(s).sum(1)) - s[np.arange(400), labels]).mean() for s in shifted]
    assert temperature == pytest.approx(grid[int(np.argmin(losses))], rel=2e-3)
    assert temperature == pytest.approx(2.7, rel=0.2)


def test_a_temperature_without_a_least_loss_stays_in_its_range():
    logits = np.array([[5.0, 0.0], [0.0, 5.0]])
    assert coolest_fit(logits, np.array([0, 1])) == pytest.approx(0.02, rel=1e-3)
    assert coolest_fit(logits, np.array([1, 0])) == pytest.approx(50, rel=1e-3)
    assert coolest_fit(np.zeros((3, 2)), np.array([0, 1, 1])) > 0  # every one is as good


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_calibration_lowers_the_loss_on_new_rows(seed, noise):
    """A fit with C = 1 is too timid where classes are clear, and too sure where they are not."""
    x, y = blobs(90, d=40, seed=seed, noise=noise)
    new, truth = blobs(3000, d=40, seed=seed + 10, noise=noise)
    plain = fit_linear_probe(x, y, 3, calibrate=False)
    calibrated = fit_linear_probe(x, y, 3)
    assert (calibrated.temperature < 1) == (noise < 1)
    assert loss_of(calibrated.predict(new), truth) < loss_of(plain.predict(new), truth)
    assert np.array_equal(calibrated.predict(new).argmax(1), plain.predict(new).argmax(1))


def test_too_few_rows_or_classes_of_one_row_leave_the_temperature_alone():
    x, y = blobs(19)
    assert fit_linear_probe(x, y, 3).temperature == 1
    x, _ = blobs(25)
    assert fit_linear_probe(x, np.arange(25), 25).temperature == 1


def test_neighbours_vote_as_defined():
    x, y = blobs(50)
    new, _ = blobs(20, seed=1)
    probe = fit_neighbour_probe(x, y, 3, k=7, calibrate=False)
    predicted = probe.predict(new)
    references = unit(x.astype(float))
    for row, query in enumerate(unit(new.astype(float))):
        cosine = references @ query
        top = np.argsort(-cosine)[:7]
        weight = np.exp(cosine[top] / 0.07)
        votes = np.array([weight[y[top] == c].sum() for c in range(3)]) / weight.sum()
        assert predicted[row] == pytest.approx((7 * votes + np.bincount(y, minlength=3) / 50) / 8, abs=1e-4)


def test_the_temperature_of_a_vote_is_chosen_with_every_row_left_out_once():
    x, y = blobs(60, noise=2.0)
    references, losses = unit(x.astype(float)), []
    for t in TEMPERATURES:
        total = 0.0
        for row in range(60):
            others = np.delete(np.arange(60), row)
            cosine = references[others] @ references[row]
            top = np.argsort(-cosine)[:20]
            weight = np.exp((cosine[top] - cosine.max()) / t)
            vote = weight[y[others[top]] == y[row]].sum() / weight.sum()
            total -= math.log((20 * vote + (y == y[row]).mean()) / 21)
        losses.append(total)
    assert fit_neighbour_probe(x, y, 3).temperature == TEMPERATURES[int(np.argmin(losses))]


@pytest.mark.parametrize("fit", [fit_linear_probe, fit_neighbour_probe])
@pytest.mark.parametrize(
    ("labels", "said"), [([], "label a first batch"), ([0, 3], "got 0 to 3"), ([-1, 1], "got -1 to 1")]
)
def test_labels_that_no_model_can_be_fitted_on_are_one_line(fit, labels, said):
    with pytest.raises(InputError, match=said):
        fit(np.ones((len(labels), 4), np.float32), np.array(labels, np.int64), 3)


def test_one_class_alone_has_no_temperature_to_fit():
    vectors = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32)
    probe = fit_linear_probe(vectors, np.zeros(40, np.int64), 1)
    assert probe.temperature == 1.0
    assert probe.predict(vectors).tolist() == [[1.0]] * 40
