from dataclasses import replace

import numpy as np
import pytest
from coverage_pools import lowest_best, small_pool

from curate.selectors.determinantal import Determinantal
from curate.selectors.pool import Pool
from scoring.errors import InputError


def volumes(rows, pool, budget, weights):
    """The definition: log det of the weighted kernel of labelled rows and picks, from scratch each time."""
    kernel = np.exp(-((rows[:, None] - rows[None]) ** 2).sum(-1) / 0.5)

    def volume(chosen):
        chosen = [*pool.labelled, *chosen]
        scale = np.array([1.0] * len(pool.labelled) + [weights[row] for row in chosen[len(pool.labelled) :]])
        return np.linalg.slogdet(kernel[np.ix_(chosen, chosen)] * np.outer(scale, scale))[1] if chosen else 0.0

    picks, gains = [], []
    for _ in range(budget):
        left = [row for row in pool.candidates if row not in picks]
        added = [volume([*picks, row]) - volume(picks) for row in left]
        picks.append(lowest_best(added, left))
        gains.append(max(added))
    return picks, gains


@pytest.mark.parametrize("labelled", [0, 6])
@pytest.mark.parametrize("seed", range(3))
def test_it_adds_most_to_the_log_determinant_given_the_labelled(seed, labelled):
    pool, rows = small_pool(seed, n=60, width=6, labelled=labelled, copies=False)
    quality = np.random.default_rng(seed).uniform(0.2, 1, len(rows)).astype(np.float32)
    picks, gains = volumes(rows, pool, 25, quality.astype(np.float64))
    found = Determinantal()(replace(pool, quality=quality), 25)
    assert found.rows.tolist() == picks
    assert found.gains == pytest.approx(gains, abs=1e-6)


def test_copies_come_last():
    pool, _ = small_pool(2)
    budget = len(pool.candidates)
    rows = Determinantal()(pool, budget).rows.tolist()
    copies = [row for row in (3, 10, 40, 41) if row in pool.candidates]
    assert sorted(rows) == pool.candidates.tolist()
    assert all(rows.index(copy) >= budget - len(copies) + 1 for copy in copies[1:])


def test_a_shortlist_is_drawn_noted_and_keeps_prefixes():
    pool, _ = small_pool(0)
    rule = Determinantal(shortlist=50)
    whole = rule(pool, 50)
    assert whole.notes == (
        "approximate: 50 of 101 candidates drawn, and 100% of those are picked, nearly at random; raise its shortlist",
    )
    assert rule(pool, 12).notes == ("approximate: 50 of 101 candidates drawn",)
    assert ", and 26% of those are picked" in rule(pool, 13).notes[0]
    assert np.array_equal(rule(pool, 7).rows, whole.rows[:7])


def test_more_picks_than_memory_is_meant_for_are_refused():
    pool, _ = small_pool(0)
    with pytest.raises(
        InputError, match=r"at most 50 rows.* budget of 51: take another strategy.* or raise its shortlist"
    ):
        Determinantal(shortlist=50)(pool, 51)
    with pytest.raises(InputError, match=r"\(0\.8 GB at least\)"):
        Determinantal()(Pool(np.arange(10_500), vectors=np.ones((10_500, 1), np.float32)), 10_000)
    assert len(Determinantal(shortlist=51)(pool, 51).rows) == 51
