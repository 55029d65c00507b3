"""What rounds with few rows held out would have reported, in replays whose truth is known."""

import json

import numpy as np
import pytest
from commandline import run
from rounds_table import table

import curate
from curate.rounds.measures.rules import StopRule
from curate.simulation.curves import Curves
from curate.simulation.looks import accuracy_looks, lift_looks, stops, watch
from curate.statistics.anytime import level_of_look
from curate.statistics.paired import paired_interval
from scoring.errors import InputError
from scoring.metrics.proportions import clopper_pearson


def curves(accuracy, right, seed=0):
    """Curves of some accuracies, shape (S, B), whose models are right on so many of forty rows held out."""
    generator = np.random.default_rng(seed)
    held = np.zeros((*np.shape(accuracy), 40), bool)
    for at in np.ndindex(np.shape(accuracy)):
        held[at][generator.permutation(40)[: right[at]]] = True
    n_runs, n_budgets = np.shape(accuracy)
    picks = np.zeros((n_runs, n_budgets), np.int64)
    return Curves(np.arange(1, n_budgets + 1), tuple(range(n_runs)), np.array(accuracy), picks, held)


RIGHT = np.array([[20, 30, 36], [20, 39, 40]])
TRUTH = [[0.5, 0.75, 0.9], [0.5, 0.6, 0.8]]


def test_every_round_is_a_look_and_alone_it_has_the_whole_error():
    looks = accuracy_looks(curves(TRUTH, RIGHT), 0.95)
    for run_, look in np.ndindex(2, 3):
        every = clopper_pearson(int(RIGHT[run_, look]), 40, level_of_look(look + 1))
        alone = clopper_pearson(int(RIGHT[run_, look]), 40)
        assert (looks.low[run_, look], looks.high[run_, look]) == (every.low, every.high)
        assert (looks.alone_low[run_, look], looks.alone_high[run_, look]) == (alone.low, alone.high)
    assert looks.held.tolist() == [True, False]
    assert looks.alone_held.tolist() == [True, False]


def test_a_lift_is_paired_row_by_row_and_seed_by_seed():
    ours, reference = curves(TRUTH, RIGHT), curves([[0.4, 0.5, 0.6], [0.4, 0.5, 0.6]], RIGHT - 9, seed=1)
    looks = lift_looks(ours, reference, 0.9)
    a, b = ours.held_right[1, 2], reference.held_right[1, 2]
    expected = paired_interval(int((a & ~b).sum()), int((b & ~a).sum()), 40, level_of_look(3, 0.9))
    assert (looks.low[1, 2], looks.high[1, 2]) == (expected.low, expected.high)
    assert looks.truth == pytest.approx(ours.accuracy - reference.accuracy)
    assert watch(reference, None, 0.9, [StopRule.parse("lift <= 5%")]).stops == ()
    with pytest.raises(ValueError, match="replayed with rows held out"):
        accuracy_looks(Curves(ours.budgets, ours.seeds, ours.accuracy, ours.picks), 0.95)


def test_a_stop_is_the_first_round_in_which_it_is_shown_and_wrong_where_it_is_not_true():
    stopped = stops(StopRule.parse("accuracy >= 65%"), accuracy_looks(curves(TRUTH, RIGHT), 0.95))
    assert stopped.truly.tolist() == [2, 3]
    assert stopped.stopped.tolist() == [3, 2]
    assert stopped.wrong.tolist() == [False, True]
    never = stops(StopRule.parse("accuracy <= 10%"), accuracy_looks(curves(TRUTH, RIGHT), 0.95))
    assert np.isnan(never.stopped).all()
    assert not never.wrong.any()


def test_a_replay_reports_what_held_and_where_it_would_have_stopped(tmp_path):
    table(tmp_path / "t.parquet", n=400)
    typed = ("--label", "truth", "--budget", "6,12,24", "--test", "0.5", "--seeds", "3", "--holdout", "60")
    typed += ("--stop", "accuracy >= 40%", "--stop", "lift <= 50%", "--strategy", "margin")
    finished = run("round", "simulate", tmp_path / "t.parquet", *typed, "-o", tmp_path / "r.json")
    assert finished.exit_code == 0
    assert "each run holds out 60 of the images measured on" in finished.stdout
    record = json.loads((tmp_path / "r.json").read_text())
    assert (record["holdout"], record["confidence"], record["stop"]) == (60, 0.95, ["accuracy >= 40%", "lift <= 50%"])
    margin = record["at_every_look"]["margin"]
    assert margin["accuracy"]["runs"] == 3
    assert np.shape(margin["lift"]["low"]) == (3, 3)
    assert [stop["rule"] for stop in margin["stops"]] == record["stop"]
    assert [stop["rule"] for stop in record["at_every_look"]["random"]["stops"]] == ["accuracy >= 40%"]
    assert run("round", "plot", tmp_path / "r.json", "-o", tmp_path / "r.svg").exit_code == 0


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"holdout": "90"}, "--holdout draws from the 80 images measured on, got 90"),
        ({"holdout": "0", "stop": ["accuracy >= 50%"]}, "--holdout 0 holds out none"),
        ({"holdout": "30", "stop": ["accuracy >= 99%"]}, "can never be reached with 30 held-out images"),
        ({"confidence": 1.0}, "--confidence takes a share above 0 and below 1"),
        ({"stop": ["precision >= 9%"]}, "unknown measure 'precision'"),
    ],
)
def test_what_cannot_be_is_refused_before_the_work(tmp_path, asked, text):
    table(tmp_path / "t.parquet", n=400)
    with pytest.raises(InputError, match=text):
        curate.round_simulate(tmp_path / "t.parquet", "truth", [6], strategy=["margin"], **asked)


def test_without_rows_held_out_nothing_is_said_of_looks(tmp_path):
    table(tmp_path / "t.parquet")
    simulation = curate.round_simulate(
        tmp_path / "t.parquet", "truth", [6, 12], strategy=["margin"], seeds=2, holdout="0"
    )
    assert simulation.watched == {}
    assert simulation.to_json()["at_every_look"] == {}
