"""The study of looks at held-out rows, on runs whose truth is known."""

import sys
from pathlib import Path

import numpy as np
import pytest

from curate.rounds.measures.rules import StopRule
from curate.statistics.paired import level_of_look, paired_interval
from scoring.metrics.proportions import clopper_pearson

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import round_looks

pytestmark = pytest.mark.study

COUNTS = np.array([[20, 30, 36], [20, 39, 40]])
TRUTH = np.array([[0.5, 0.75, 0.9], [0.5, 0.6, 0.8]])


def right(counts, seed=0):
    """Whether models are right on forty rows held out, on so many of them in each run and round."""
    generator = np.random.default_rng(seed)
    held = np.zeros((*counts.shape, 40), bool)
    for at in np.ndindex(counts.shape):
        held[at][generator.permutation(40)[: counts[at]]] = True
    return held


def test_every_round_is_a_look_and_alone_it_has_the_whole_error():
    ends = round_looks.of_accuracy(right(COUNTS), 0.95)
    for run, look in np.ndindex(2, 3):
        every = clopper_pearson(int(COUNTS[run, look]), 40, level_of_look(look + 1))
        alone = clopper_pearson(int(COUNTS[run, look]), 40)
        assert ends[:, run, look].tolist() == [every.low, every.high, alone.low, alone.high]
    assert round_looks.held(TRUTH, ends) == [1, 1]


def test_a_lift_is_paired_row_by_row_and_seed_by_seed():
    ours, reference = right(COUNTS), right(COUNTS - 9, seed=1)
    a, b = ours[1, 2], reference[1, 2]
    expected = paired_interval(int((a & ~b).sum()), int((b & ~a).sum()), 40, level_of_look(3, 0.9))
    assert round_looks.of_lift(ours, reference, 0.9)[:2, 1, 2].tolist() == [expected.low, expected.high]


def test_a_stop_is_the_first_round_in_which_it_is_shown_and_wrong_where_it_is_not_true():
    ends = round_looks.of_accuracy(right(COUNTS), 0.95)
    true, shown, wrongly, *_ = round_looks.stops(StopRule.parse("accuracy >= 65%"), TRUTH, ends)
    assert (true, shown, wrongly) == ("2 (2)", "2 (2)", 1)  # the runs: true in 2 and 3, shown in 3 and 2
    _, never, wrongly, *_ = round_looks.stops(StopRule.parse("accuracy <= 10%"), TRUTH, ends)
    assert (never, wrongly) == ("never", 0)
