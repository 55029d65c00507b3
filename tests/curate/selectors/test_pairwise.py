from dataclasses import replace

import numpy as np
import pytest
from coverage_pools import lowest_best, small_pool

from curate.selectors import Pool
from curate.selectors.pairwise import Pairwise
from scoring.errors import InputError


def paired(rows, pool, budget, worth, k, alpha):
    """The definition: alpha times the worth of picks less (1 - alpha) times the cosines of neighbours both chosen."""
    members = np.sort(np.concatenate([pool.candidates, pool.labelled]))
    cosine = np.maximum(rows @ rows.T, 0)
    pair = np.zeros((len(rows), len(rows)), bool)
    for row in members:
        others = sorted((other for other in members if other != row), key=lambda o: (-(rows[row] @ rows[o]), o))
        pair[row, others[:k]] = True
    pair |= pair.T

    def value(chosen):
        both = np.ix_([*pool.labelled, *chosen], [*pool.labelled, *chosen])
        return alpha * sum(worth[row] for row in chosen) - (1 - alpha) * (cosine * pair)[both].sum() / 2

    picks, gains = [], []
    for _ in range(budget):
        left = [row for row in pool.candidates if row not in picks]
        added = [value([*picks, row]) - value(picks) for row in left]
        picks.append(lowest_best(added, left))
        gains.append(max(added))
    return picks, gains


@pytest.mark.parametrize("labelled", [0, 9])
@pytest.mark.parametrize("alpha", [0.3, 0.9])
@pytest.mark.parametrize("seed", range(2))
def test_it_is_its_definition(seed, alpha, labelled):
    pool, rows = small_pool(seed, copies=False, labelled=labelled)
    uncertainty = np.random.default_rng(seed).integers(0, 20, len(rows)).astype(np.float32)
    inside = uncertainty[pool.candidates]
    rank = {
        row: ((inside < value).sum() + ((inside == value).sum() + 1) / 2) / len(inside)
        for row, value in zip(pool.candidates, inside, strict=True)
    }
    picks, gains = paired(rows, pool, 60, rank, 5, alpha)
    found = Pairwise(alpha=alpha, neighbours=5)(replace(pool, uncertainty=uncertainty), 60)
    assert found.rows.tolist() == picks
    assert found.gains == pytest.approx(gains, abs=1e-6)
    assert found.parts["worth"] - found.parts["similarity"] == pytest.approx(found.gains)


def test_without_a_score_it_avoids_copies_of_what_is_picked():
    vectors = np.repeat(np.eye(4, dtype=np.float32), 2, axis=0)
    found = Pairwise(neighbours=1)(Pool(np.arange(8), vectors=vectors), 8)
    assert found.rows.tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert found.gains == pytest.approx([0.9] * 4 + [0.8] * 4)


def test_one_row_alone_and_a_zero_row_have_no_neighbours():
    assert Pairwise()(Pool(np.array([0]), vectors=np.ones((1, 1), np.float32)), 1).rows.tolist() == [0]
    assert Pairwise()(Pool(np.arange(3), vectors=np.zeros((3, 2), np.float32)), 3).rows.tolist() == [0, 1, 2]


def test_a_share_beyond_one_is_refused():
    with pytest.raises(InputError, match=r"alpha must be in \[0, 1\].* got 1.5"):
        Pairwise(alpha=1.5)
