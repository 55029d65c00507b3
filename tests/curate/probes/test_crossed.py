"""What other rows say of a row's class: definitions, and that a row's own label has no say."""

import numpy as np
import pytest

from curate.probes.crossed import crossed
from curate.probes.discriminant import Moments, discriminants
from curate.statistics.noise.quality import Mistakes, confident_joint, judge
from scoring.metrics.ranking import auroc
from scoring.relative.space import centred, mean_of


def blobs(n=600, n_classes=5, width=16, spread=0.5, seed=0):
    generator = np.random.default_rng(seed)
    middles = generator.normal(size=(n_classes, width))
    true = generator.integers(0, n_classes, n)
    return (middles[true] + spread * generator.normal(size=(n, width))).astype(np.float32), true


def evidence_of(rows, labels, n_classes):
    return crossed(centred(rows, mean_of(rows)), labels, n_classes)


def test_the_discriminant_is_fishers_with_a_shrunk_covariance():
    rows, labels = blobs()
    weight = np.random.default_rng(1).random(len(rows)).astype(np.float32)
    model = discriminants(Moments.of(rows, labels, weight, np.arange(len(rows)), 5), (0.5,))[0]
    x, w = rows.astype(np.float64), weight.astype(np.float64)
    means = np.stack([np.average(x[labels == c], axis=0, weights=w[labels == c]) for c in range(5)])
    centred = x - means[labels]
    within = (centred * w[:, None]).T @ centred / w.sum()
    within += 0.5 * np.trace(within) / 16 * np.eye(16)
    slope = np.linalg.inv(within) @ means.T
    prior = np.log([w[labels == c].sum() / w.sum() for c in range(5)])
    np.testing.assert_allclose(model.logits(rows), x @ slope - (means.T * slope).sum(0) / 2 + prior, atol=2e-3)


def test_the_moments_of_parts_equal_the_moments_of_all_rows():
    rows, labels = blobs()
    weight = np.ones(len(rows))
    parts = [Moments.of(rows, labels, weight, np.arange(first, len(rows), 3), 5) for first in range(3)]
    together, direct = Moments.together(parts), Moments.of(rows, labels, weight, np.arange(len(rows)), 5)
    np.testing.assert_allclose(together.square, direct.square, rtol=1e-4)
    np.testing.assert_allclose(together.total, direct.total, atol=1e-3)
    np.testing.assert_array_equal(together.weight, direct.weight)


def test_planted_mistakes_are_found():
    rows, true = blobs()
    generator = np.random.default_rng(2)
    labels = np.where(generator.random(len(true)) < 0.2, (true + 1) % 5, true)
    evidence = evidence_of(rows, labels, 5)
    judged = judge(evidence.probabilities, labels, Mistakes.of(confident_joint(evidence.probabilities, labels, 5)))
    assert auroc(-judged.quality, labels != true) > 0.97
    assert (evidence.probe == true).mean() > 0.9
    assert (evidence.voted == true).mean() > 0.9


def test_the_label_of_a_row_does_not_affect_its_own_probabilities(monkeypatch):
    monkeypatch.setattr("curate.probes.crossed.ROUNDS", 1)
    rows, labels = blobs(200)
    row = 17
    fold = np.arange(200) % 5
    monkeypatch.setattr("curate.probes.crossed._folds", lambda *_: fold)
    monkeypatch.setattr(
        "curate.probes.crossed._Crossing._calibrated", lambda self, models, shrink, at: (models[0], 1, 1.0)
    )
    before = evidence_of(rows, labels, 5)
    changed = labels.copy()
    changed[row] = (labels[row] + 2) % 5
    after = evidence_of(rows, changed, 5)
    assert before.probe[row] == after.probe[row]
    assert before.voted[row] == after.voted[row]
    np.testing.assert_allclose(
        before.probabilities.probability[row], after.probabilities.probability[row], atol=0.01
    )  # class shares move


def test_copies_share_a_fold_and_a_copy_with_another_label_is_named():
    rows, labels = blobs(100)
    rows[50:53] = rows[10] * np.array([[1.0], [1.0], [2.0]], np.float32)  # of the same direction
    labels[50:53] = (labels[10] + 1) % 5
    evidence = evidence_of(rows, labels, 5)
    assert set(evidence.copy[[10, 50, 51, 52]]) <= {10, 50, 51, 52}
    assert (evidence.copy[[10, 50, 51, 52]] >= 0).all()
    assert (np.delete(evidence.copy, [10, 50, 51, 52]) < 0).all()


@pytest.mark.parametrize("given", [[0, 1], [0, 0, 1, 1, -1], [0, 1, 2, 3, 4, 4]])
def test_few_rows_and_classes_of_one_row_are_judged_or_left_open(given):
    rows, _ = blobs(len(given))
    evidence = evidence_of(rows, np.array(given), max(given) + 1)
    counts = np.bincount([label for label in given if label >= 0], minlength=5)
    for label, of_label in zip(given, evidence.probabilities.of_label, strict=True):
        if label < 0 or counts[label] < 2:
            assert np.isnan(of_label)
    assert np.isfinite(evidence.probabilities.probability).all()


def test_classes_of_nothing_but_copies_are_judged_all_the_same():
    rows, labels = blobs(60, 2, spread=0.001)
    evidence = evidence_of(rows, labels, 2)
    assert (evidence.copy >= 0).all()
    assert np.isfinite(evidence.probabilities.of_label).all()
    assert (evidence.probe == labels).all()
