"""Picks that are given while they are made."""

import numpy as np
import pytest

from curate.policies.select.plan import choose
from curate.policies.select.request import SelectRequest
from curate.selectors.contract import Pool
from curate.selectors.picking import picking, reporting_picks
from curate.tables.rows import Codes

VECTORS = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
POOL = Pool(np.arange(60), vectors=VECTORS)


@pytest.mark.parametrize("strategy", ["k-center", "herding", "typiclust"])
def test_every_pick_is_reported_and_reporting_changes_none(strategy):
    progress = []
    plan = SelectRequest(strategy, "12")
    chosen = choose(POOL, plan, picked=lambda done, total: progress.append((done, total)))
    done = [each for each, _ in progress]
    assert {total for _, total in progress} == {12}
    assert done == sorted(done)
    assert done[-1] == 12
    assert chosen.rows.tolist() == choose(POOL, plan).rows.tolist()


def test_groups_count_together():
    progress = []
    groups = Codes((np.arange(60) % 3).astype(np.int32), ("a", "b", "c"))
    choose(POOL, SelectRequest("k-center", "4", per="group"), groups, picked=lambda *at: progress.append(at))
    # what one group ends with is what the next begins with
    assert progress == [(done, 12) for done in (0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12)]


def test_a_strategy_that_scores_more_than_it_picks_never_passes_the_end():
    progress = []
    with reporting_picks(lambda *at: progress.append(at), 3):
        assert [list(picking(2)), list(picking(1)), list(picking(4))] == [[0, 1], [0], [0, 1, 2, 3]]
    assert progress == [(done, 3) for done in (0, 1, 2, 2, 3, 3, 3, 3, 3, 3)]
    assert list(picking(2)) == [0, 1]  # and nobody is reported outside
    assert len(progress) == 10
