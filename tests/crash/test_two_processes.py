"""Two processes that write the same place at the same time: one wins, or waits, or is refused; never a mixture."""

import pytest
from crash_commands import COMMANDS
from crash_trials import bench, is_work, steady

pytestmark = pytest.mark.slow  # the process that is forked imports everything

ROUNDS = 2


def results(snapshot):
    """What of a snapshot are results."""
    return {name: data for name, data in steady(snapshot).items() if not is_work(name)}


def refused(code, said):
    """Whether a command was refused with one line."""
    return code == 1 and said.splitlines()[-1].startswith("error: ") and "Traceback" not in said


@pytest.mark.parametrize("name", ["export csv"])
def test_the_same_command_twice_at_once_leaves_what_one_leaves(lab, name):
    trial = bench(lab, name)
    for _ in range(ROUNDS):
        ended = trial.disturbed(beside=[trial.line])
        both = [(ended.code, ended.said), *ended.beside]
        assert 0 in [code for code, _ in both], both
        assert all(code == 0 or refused(code, said) for code, said in both), both
        assert steady(lab.snapshot()) == trial.whole


@pytest.mark.parametrize("overwrite", ["", " --overwrite"])
def test_two_commands_at_once_leave_what_one_of_them_leaves(lab, overwrite):
    first = bench(lab, "filter over another" if overwrite else "filter")
    other = first.line.replace("75%", "25%").replace("50%", "25%")
    lab.begin(first.name)
    assert lab.run(other).code == 0
    either = [results(first.whole), results(lab.snapshot())]
    assert either[0] != either[1]
    for _ in range(ROUNDS):
        ended = first.disturbed(beside=[other])
        both = [(ended.code, ended.said), *ended.beside]
        assert 0 in [code for code, _ in both], both
        assert all(code == 0 or refused(code, said) for code, said in both), both
        assert results(lab.snapshot()) in either


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if not name.startswith("score of")])
def test_any_command_twice_at_once_leaves_what_one_leaves(lab, name):
    trial = bench(lab, name)
    ended = trial.disturbed(beside=[trial.line])
    both = [(ended.code, ended.said), *ended.beside]
    ends = COMMANDS[name].ends
    assert all(code == ends or refused(code, said) for code, said in both), both
    assert any(code == ends and not refused(code, said) for code, said in both), both
    assert trial.half_written() == trial.repeat() == []
