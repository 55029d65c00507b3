"""Labels that are wrong, from class probabilities alone: against slow restatements of the definitions."""

import numpy as np
import pytest

from curate.policies.differences import CLOSE
from curate.statistics.noise.annotators import majority, weigh
from curate.statistics.noise.quality import (
    MOST_KEPT,
    PRIOR_ROWS,
    STEPS,
    ClassProbabilities,
    Mistakes,
    confident_joint,
    judge,
    trust,
)
from curate.statistics.noise.share import anchors, shares


def kept(table, labels):
    """Probabilities of all classes as ``ClassProbabilities``."""
    empty = ClassProbabilities.room(len(table), table.shape[1])
    empty.put(np.arange(len(table)), labels, table)
    return empty


def drawn(n=300, n_classes=4, wrong=0.2, sharp=4.0, seed=0):
    """Rows of known classes, probabilities that lean to them, and labels of which some are wrong."""
    generator = np.random.default_rng(seed)
    true = generator.integers(0, n_classes, n)
    logits = generator.normal(size=(n, n_classes)) + sharp * np.eye(n_classes)[true]
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.where(generator.random(n) < wrong, (true + generator.integers(1, n_classes, n)) % n_classes, true)
    return chances, labels, true


def naive_joint(chances, labels):
    n_classes = chances.shape[1]
    threshold = [np.mean([p[j] for p, y in zip(chances, labels, strict=True) if y == j]) for j in range(n_classes)]
    count = np.zeros((n_classes, n_classes), int)
    for p, y in zip(chances, labels, strict=True):
        reached = [j for j in range(n_classes) if p[j] >= threshold[j] - 1e-9]
        if reached:
            count[y, max(reached, key=lambda j: p[j])] += 1
    return count


@pytest.mark.parametrize("seed", range(3))
def test_the_confident_joint_is_as_northcutt_defines_it(seed):
    chances, labels, _ = drawn(seed=seed)
    joint = confident_joint(kept(chances, labels), labels, 4)
    rows, columns = np.mgrid[:4, :4]
    np.testing.assert_array_equal(joint.at(rows, columns), naive_joint(chances, labels))
    assert joint.count.sum() == (joint.confident >= 0).sum()


def test_quality_is_the_odds_against_the_likeliest_other_class():
    chances, labels, _ = drawn()
    few = kept(chances, labels)
    mistakes = Mistakes.of(confident_joint(few, labels, 4))
    count = naive_joint(chances, labels)
    rate = (count.sum() - np.trace(count) + 1) / (count.sum() + 2)
    judged = judge(few, labels, mistakes)
    for row in range(len(labels)):
        g = labels[row]

        def weight(k, g=g, row=row):
            even = 1 - rate if k == g else rate / 3
            mistaken = (count[g, k] + PRIOR_ROWS * even) / (count[:, k].sum() + PRIOR_ROWS)
            return chances[row, k] * mistaken**0.5

        best = max((k for k in range(4) if k != g), key=weight)
        odds = weight(g) / weight(best)
        assert judged.quality[row] == pytest.approx(odds / (1 + odds), abs=1e-4)
        assert judged.rival[row] == best
        assert judged.suggested[row] == (best if judged.quality[row] < 0.5 else g)


def test_wrong_labels_have_the_lowest_quality_and_nothing_is_thought_of_rows_without_one():
    chances, labels, true = drawn()
    labels[:5] = -1
    few = kept(chances, labels)
    judged = judge(few, labels, Mistakes.of(confident_joint(few, labels, 4)))
    assert np.isnan(judged.quality[:5]).all()
    np.testing.assert_array_equal(judged.suggested[:5], chances[:5].argmax(1))
    wrong = (labels != true)[5:]
    assert np.median(judged.quality[5:][wrong]) < 0.1 < 0.9 < np.median(judged.quality[5:][~wrong])
    assert (trust(few)[:5] == 0).all()
    assert ((trust(few) >= 0) & (trust(few) <= 1)).all()


def test_of_many_classes_the_likeliest_are_kept_in_order_and_the_label_too():
    generator = np.random.default_rng(1)
    table = generator.dirichlet(np.full(100, 0.1), 20)
    labels = table.argmin(1)
    few = kept(table, labels)
    assert few.index.shape == (20, MOST_KEPT)
    np.testing.assert_array_equal(few.index, np.argsort(-table, axis=1)[:, :MOST_KEPT])
    np.testing.assert_allclose(few.of_label, table.min(1), rtol=1e-6)


@pytest.mark.parametrize("wrong", [0.05, 0.1, 0.3])
def test_the_share_of_wrong_labels_is_in_its_interval_for_planted_noise(wrong):
    inside = 0
    for seed in range(20):
        chances, labels, true = drawn(n=600, wrong=wrong, seed=seed)
        few = kept(chances, labels)
        joint = confident_joint(few, labels, 4)
        judged = judge(few, labels, Mistakes.of(joint))
        estimate = shares(few, labels, joint, judged.quality < 0.5, judged.suggested)
        inside += estimate.overall.low <= (labels != true).mean() <= estimate.overall.high
        assert estimate.overall.low <= estimate.overall.value <= estimate.overall.high
        counts = [pair.rows for pair in estimate.pairs]
        assert counts == sorted(counts, reverse=True)
        assert sum(counts) == (judged.quality < 0.5).sum()
    assert inside >= 18


def test_anchors_are_the_most_certain_rows_of_each_class():
    chances, labels, _ = drawn()
    sure = anchors(kept(chances, labels), 0.25)
    for label in range(4):
        called = np.flatnonzero(chances.argmax(1) == label)
        assert sure[called].sum() == np.ceil(len(called) * 0.25)
        assert chances[called[sure[called]], label].min() >= chances[called[~sure[called]], label].max()


def test_wrong_predictions_of_a_weak_model_are_no_lower_bound_for_wrong_labels():
    generator = np.random.default_rng(0)
    certainty = generator.uniform(0.3, 0.99, 5_000)  # of the predicted class, one of ten, and how often it is right
    predicted = generator.integers(0, 10, 5_000)
    chances = np.repeat((1 - certainty)[:, None] / 9, 10, axis=1)
    chances[np.arange(5_000), predicted] = certainty
    is_right = generator.random(5_000) < certainty
    labels = np.where(is_right, predicted, (predicted + generator.integers(1, 10, 5_000)) % 10)  # all of them correct
    few = kept(chances, labels)
    joint = confident_joint(few, labels, 10)
    judged = judge(few, labels, Mistakes.of(joint))
    estimate = shares(few, labels, joint, judged.quality < 0.5, judged.suggested)
    assert (predicted != labels)[certainty > 0.85].mean() > 0.06  # in the most certain fifth
    assert estimate.overall.low < 0.03


def test_the_majority_follows_the_number_of_the_row_where_votes_are_tied():
    votes = np.array([[2, 1, 2], [0, 1, -1], [0, 1, -1], [-1, -1, 3], [-1, -1, -1]])
    assert majority(votes, np.array([5, 0, 1, 0, 0], np.uint64)).tolist() == [2, 0, 1, 3, -1]


def test_votes_weigh_the_same_as_columns_of_annotators_and_as_lists_of_who_gave_them():
    rng = np.random.default_rng(3)
    n, annotators = 500, 7
    chances = rng.dirichlet(np.ones(4), n).astype(np.float32)
    votes = rng.integers(0, 4, (n, annotators))
    votes[rng.random(votes.shape) < 0.5] = -1
    order = np.argsort(votes < 0, axis=1, kind="stable")
    short, who = np.take_along_axis(votes, order, 1), np.where(np.take_along_axis(votes, order, 1) < 0, 0, order)
    width = int((votes >= 0).sum(1).max())
    labels = majority(votes, np.arange(n, dtype=np.uint64))
    first = weigh(kept(chances, labels), votes, labels, 4)
    second = weigh(kept(chances, labels), short[:, :width], labels, 4, who[:, :width])
    assert np.allclose(first.quality, second.quality, atol=1e-6, equal_nan=True)
    assert np.array_equal(first.suggested, second.suggested)
    assert np.array_equal(first.agreement, second.agreement, equal_nan=True)
    assert first.accuracy == second.accuracy
    pairs = [(a, b) for row in votes for i, a in enumerate(row) for b in row[:i] if a >= 0 and b >= 0]
    assert first.pairs == second.pairs == pytest.approx(sum(a == b for a, b in pairs) / len(pairs))


def test_annotators_are_weighed_by_how_often_they_are_right():
    generator = np.random.default_rng(0)
    chances, _, true = drawn(n=3000, sharp=2.0)
    right = [0.95, 0.7, 0.6]
    votes = np.stack(
        [np.where(generator.random(3000) < p, true, (true + generator.integers(1, 4, 3000)) % 4) for p in right], 1
    )
    votes[:100, 1:] = -1
    labels = majority(votes, np.arange(3000, dtype=np.uint64))
    weighed = weigh(kept(chances, labels), votes, labels, 4)
    for estimate, p in zip(weighed.accuracy, right, strict=True):
        assert estimate.value == pytest.approx(p, abs=0.03)
        assert estimate.low < estimate.value < estimate.high
    assert (weighed.suggested == true).mean() > (labels == true).mean() + 0.03
    assert (weighed.agreement[:100] == 1).all()
    doubted = weighed.quality < 0.5
    assert (labels != true)[doubted].mean() > 0.7
    assert weighed.pairs == pytest.approx(
        np.mean([(votes[100:, a] == votes[100:, b]).mean() for a, b in ((0, 1), (0, 2), (1, 2))]), abs=0.001
    )


def test_a_quality_that_rounds_the_other_way_on_another_machine_is_verified_as_the_same():
    assert STEPS <= CLOSE / 4
