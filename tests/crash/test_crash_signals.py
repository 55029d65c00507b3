"""Commands that are reported to stop, or put to sleep."""

import signal

import pytest
from crash_lab import COUNT, INTERRUPT, TERMINATE
from crash_trials import bench, steady

pytestmark = pytest.mark.slow  # the process that is forked imports everything

SAID = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "the terminal is gone"}


@pytest.mark.parametrize("name", ["filter", "export csv"])
@pytest.mark.parametrize(("action", "number"), [(INTERRUPT, signal.SIGINT), (TERMINATE, signal.SIGTERM)])
def test_a_command_that_is_stopped_cleans_up_and_prints_how_to_resume(lab, name, action, number):
    trial = bench(lab, name)
    middle = next(n for n, call in enumerate(trial.calls, 1) if call.kind == "fsync")
    ended = trial.disturbed(fault={"action": action, "n": middle})
    assert ended.code == 128 + number
    assert ended.said.splitlines()[-1] == f"{SAID[number]}; repeat the command to resume"
    assert "Traceback" not in ended.said
    assert trial.half_written() == trial.repeat() == []


def test_a_terminal_that_goes_away_is_a_stop_too_but_for_nohup(lab):
    trial = bench(lab, "filter")
    ended = trial.disturbed(signals=[(0.6 * trial.seconds, signal.SIGHUP)])
    assert ended.code in (128 + signal.SIGHUP, 0)
    assert trial.half_written() == trial.repeat() == []
    ended = trial.disturbed(signals=[(0.6 * trial.seconds, signal.SIGHUP)], ignored=[signal.SIGHUP])
    assert ended.code == 0


def test_a_command_put_to_sleep_and_woken_ends_as_usual(lab):
    trial = bench(lab, "filter")
    for share in (0.4, 0.8):
        at = share * trial.seconds
        ended = trial.disturbed(signals=[(at, signal.SIGSTOP), (at + 0.05, signal.SIGCONT)])
        assert ended.code == 0
        assert trial.half_written() == trial.repeat() == []


@pytest.mark.parametrize("years", [-10, 10])
def test_a_clock_that_jumps_changes_nothing(lab, years):
    trial = bench(lab, "filter")
    middle = len(trial.calls) // 2
    ended = trial.disturbed(fault={"action": COUNT, "n": middle, "jump": years * 365 * 86_400})
    assert ended.code == 0
    assert steady(lab.snapshot()) == trial.whole
