import math

import numpy as np
import pytest

from curate.selectors.contract import Pool
from curate.selectors.ranked import Entropy, HighestScore, LeastConfidence, Margin, entropy, least_confidence, margin


def chances(*shape, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(shape[-1], 0.4), shape[:-1]).astype(np.float32)


def entropy_of(p):
    return -sum(float(x) * math.log(x) for x in p if x > 0)


@pytest.mark.parametrize("n_classes", [1, 2, 3, 17])
def test_scores_of_a_distribution_match_their_definitions(n_classes):
    rows = chances(40, n_classes)
    for row, least, gap, nats in zip(rows, least_confidence(rows), margin(rows), entropy(rows), strict=True):
        best = sorted(map(float, row), reverse=True)
        assert least == pytest.approx(1 - best[0], abs=1e-12)
        assert gap == pytest.approx(1 - (best[0] - (best[1] if n_classes > 1 else 0)), abs=1e-12)
        assert nats == pytest.approx(entropy_of(row), abs=1e-9)


def test_scores_of_known_distributions():
    coin, sure = [0.5, 0.5, 0.0], [0.0, 1.0, 0.0]
    rows = np.array([coin, sure, [1 / 3] * 3])
    assert least_confidence(rows) == pytest.approx([0.5, 0, 2 / 3])
    assert margin(rows) == pytest.approx([1, 0, 1])
    assert entropy(rows) == pytest.approx([math.log(2), 0, math.log(3)])


def test_scores_over_many_blocks_equal_single_rows():
    rows = chances(7001, 600)  # more numbers than one block holds
    for score in (least_confidence, margin, entropy):
        scores = score(rows)
        for row in (0, 6665, 6666, 6667, 7000):
            assert scores[row] == score(rows[row : row + 1])[0]


@pytest.mark.parametrize("kind", [LeastConfidence, Margin, Entropy, HighestScore])
@pytest.mark.parametrize("seed", range(3))
def test_a_ranked_selector_takes_the_candidates_one_by_one_from_the_highest(kind, seed):
    generator = np.random.default_rng(seed)
    values = generator.integers(0, 9, 50).astype(np.float32)
    pool = Pool(np.arange(0, 50, 2), np.array([1, 3]), probabilities=chances(50, 3), uncertainty=values)
    score = kind().scores(pool)
    left, expected = list(range(0, 50, 2)), []
    while len(expected) < 11:
        best = max(left, key=lambda row: (score[row], -row))  # of equal ones the lower row
        expected.append(best)
        left.remove(best)
    choice = kind()(pool, 11)
    assert choice.rows.tolist() == expected
    assert choice.gains.tolist() == [score[row] for row in expected]


def test_scores_of_rows_that_are_no_candidates_do_not_matter():
    uncertainty = np.array([9, 1, 8, 2, 7], np.float32)
    pool = Pool(np.array([1, 3]), np.array([0]), uncertainty=uncertainty)
    assert HighestScore()(pool, 2).rows.tolist() == [3, 1]
