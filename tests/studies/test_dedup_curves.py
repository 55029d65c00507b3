"""The curves of the deduplication benchmark, against counting by hand."""

import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

import curate

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import dedup_quality
from dedup_curves import PRECISIONS, Pairs, Truth, measure

pytestmark = pytest.mark.study


def counted(pairs, truth, least):
    """Recall of the loosest threshold with the precision, by trying each."""
    same, out = {tuple(pair) for pair in truth.same}, {tuple(pair) for pair in truth.left_out}
    rows = [((a, b), s) for a, b, s in zip(pairs.a, pairs.b, pairs.score, strict=True) if (a, b) not in out]
    best = 0.0
    for threshold in {score for _, score in rows}:
        reached = [pair for pair, score in rows if score >= threshold]
        hits = sum(pair in same for pair in reached)
        if hits / len(reached) >= least:
            best = max(best, hits / len(same))
    return best


def judged(seed, n=14):
    generator = np.random.default_rng(seed)
    a, b = np.triu_indices(n, 1)
    score = generator.integers(0, 12, len(a)) / 10  # with ties
    kinds = generator.choice(3, len(a), p=[0.7, 0.2, 0.1])
    score = score + (kinds == 1) * 0.6
    listed = np.stack([a, b], 1)
    return Pairs(a, b, score), Truth(n, listed[kinds == 1], listed[kinds == 2])


@pytest.mark.parametrize("seed", range(6))
def test_recall_at_a_precision_matches_trying_every_threshold(seed):
    pairs, truth = judged(seed)
    numbers = measure(pairs, truth).numbers
    for least in PRECISIONS:
        value, low, high = numbers[f"recall at {least:g}"]
        assert value == pytest.approx(counted(pairs, truth, least))
        assert 0 <= low <= high <= 1


def test_precision_and_recall_at_a_threshold_leave_uncertain_pairs_out_both_ways():
    pairs = Pairs(np.array([0, 0, 1, 2]), np.array([1, 2, 3, 3]), np.array([0.9, 0.9, 0.9, 0.2]))
    truth = Truth(4, same=np.array([[0, 1], [2, 3]]), left_out=np.array([[0, 2]]))
    measured = measure(pairs, truth, 0.5)
    assert measured.n == 2
    assert measured.numbers["precision"][0] == pytest.approx(1 / 2)
    assert measured.numbers["recall"][0] == pytest.approx(1 / 2)


def test_nothing_reached_has_recall_zero_and_no_precision():
    pairs, truth = judged(0)
    measured = measure(pairs, truth, 99.0)
    assert np.isnan(measured.numbers["precision"]).all()
    assert measured.numbers["recall"][0] == 0


def test_a_perfect_finder_has_recall_one_in_every_resample():
    truth = Truth(6, np.array([[0, 1], [2, 3], [4, 5]]), np.zeros((0, 2), int))
    measured = measure(Pairs(truth.same[:, 0], truth.same[:, 1], np.ones(3)), truth, 1.0)
    assert all((measured.numbers[name][:2] == 1).all() for name in measured.numbers)


def test_intervals_resample_images_and_so_are_wider_where_one_image_carries_many_pairs():
    star = np.array([(0, k) for k in range(1, 13)])
    apart = np.array([(2 * k + 13, 2 * k + 14) for k in range(12)])
    width = []
    for listed in (star, apart):
        others = np.array([(37 + 2 * k, 38 + 2 * k) for k in range(12)])
        truth = Truth(61, np.concatenate([listed, others]), np.zeros((0, 2), int))
        recall = measure(Pairs(listed[:, 0], listed[:, 1], np.ones(12)), truth, 1.0).numbers["recall"]
        assert recall[0] == pytest.approx(0.5)
        width.append(recall[2] - recall[1])
    assert width[0] > 1.2 * width[1]


def test_pairs_come_once_whatever_their_direction_with_the_best_score():
    pairs = Pairs.of(np.array([3, 1, 1, 2]), np.array([1, 3, 1, 0]), np.array([0.5, 0.7, 1.0, 0.1]))
    assert list(zip(pairs.a.tolist(), pairs.b.tolist(), pairs.score.tolist(), strict=True)) == [
        (0, 2, 0.1),
        (1, 3, 0.7),
    ]


def test_pairs_within_groups_are_all_of_each_group_and_none_of_no_group():
    pairs = Pairs.within(np.array([0, -1, 0, 5, 0, -1, 5]))
    assert set(zip(pairs.a.tolist(), pairs.b.tolist(), strict=True)) == {(0, 2), (0, 4), (2, 4), (3, 6)}


def test_full_runs_request_what_exists():
    parameters = inspect.signature(curate.dedup).parameters
    for options in dedup_quality.AS_RUN.values():
        assert options.keys() <= parameters.keys()
