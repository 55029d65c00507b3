"""Commands that are killed, at random moments and at every call that changes the disk, and then repeated."""

import os
import random
import signal

import pytest
from crash_commands import DRIVEN
from crash_lab import DIE_AFTER, DIE_BEFORE, TEAR
from crash_trials import bench, kinds, place, some

pytestmark = pytest.mark.slow  # the process that is forked imports everything

CHEAP = ("filter", "filter over another", "fit", "round import", "export csv")
KILLED = -signal.SIGKILL


def shift_clock(trial, hours):
    """Change the times of all that a command left in the folder, which is as good as a clock that was set."""
    for path in trial.lab.folder.rglob("*"):
        name = str(path.relative_to(trial.lab.folder))
        if not {name, f"{name}/"} & trial.before.keys():
            seconds = path.lstat().st_mtime + 3600 * hours
            os.utime(path, (seconds, seconds), follow_symlinks=False)


def killed_at(trial, action, n):
    """Kill a command at its n-th call; return what is wrong then, and after the repeat."""
    ended = trial.disturbed(fault={"action": action, "n": n})
    assert ended.code == KILLED, (trial.name, n, ended.said)
    return [f"{trial.name}, killed at {place(trial, n)}: {wrong}" for wrong in trial.half_written() + trial.repeat()]


@pytest.mark.parametrize("name", CHEAP)
def test_a_command_killed_while_it_names_its_files_ends_as_if_it_had_not_been(lab, name):
    trial = bench(lab, name)
    naming = [n for n, call in enumerate(trial.calls, 1) if call.kind in ("link", "rename", "exchange")]
    assert naming
    for n in sorted({naming[0], naming[-1]}):
        assert killed_at(trial, DIE_AFTER, n) == []


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_set_back_or_ahead_before_the_repeat_changes_nothing(lab, hours):
    """What the killed process left seems an hour older than it is, or of an hour from now."""
    trial = bench(lab, "filter")
    naming = [n for n, call in enumerate(trial.calls, 1) if call.kind == "link"]
    assert trial.disturbed(fault={"action": DIE_AFTER, "n": naming[0]}).code == KILLED
    shift_clock(trial, hours)
    assert trial.repeat() == []


def test_a_command_killed_again_and_again_ends_as_if_it_had_not_been(lab):
    trial = bench(lab, "export csv")
    generator = random.Random(0)
    lab.begin(trial.name)
    for _ in range(4):  # each of what the one before it left, which shortens what is to do
        ended = lab.run(trial.line, fault={"action": DIE_AFTER, "n": generator.randint(1, len(trial.calls) // 4)})
        assert ended.code == KILLED, ended.said
        assert trial.half_written() == []
    assert trial.repeat() == []


@pytest.mark.parametrize("name", DRIVEN)
@pytest.mark.parametrize("hours", [-1, 1])
def test_any_command_killed_before_the_clock_is_set_ends_as_if_it_had_not_been(lab, name, hours):
    trial = bench(lab, name)
    n = len(trial.calls) * 2 // 3
    assert trial.disturbed(fault={"action": DIE_AFTER, "n": max(n, 1)}).code == KILLED
    shift_clock(trial, hours)
    assert trial.half_written() + trial.repeat() == []


@pytest.mark.parametrize("name", DRIVEN)
@pytest.mark.parametrize("action", [DIE_AFTER, TEAR], ids=["after", "torn"])
def test_a_command_killed_at_any_call_ends_as_if_it_had_not_been(lab, name, action):
    """At the first and the last call of each kind: before the next is after the last, so DIE_BEFORE adds nothing."""
    trial = bench(lab, name)
    points = [n for n in kinds(trial.calls) if action == DIE_AFTER or trial.calls[n - 1].kind == "write"]
    assert [wrong for n in some(points) for wrong in killed_at(trial, action, n)] == []
    assert killed_at(trial, DIE_BEFORE, 1) == []


def test_200_kills_at_random_moments_end_in_200_times_the_same(lab):
    """Over all commands; a repeat is killed too, every third time, before the one that ends."""
    generator = random.Random(1)
    trials = {name: bench(lab, name) for name in DRIVEN}
    before = {name: trial.overwritten for name, trial in trials.items()}
    kills, wrong = 0, []
    while kills < 200:
        trial = trials[generator.choice(DRIVEN)]
        lab.begin(trial.name)
        while kills < 200:
            ended = lab.run(trial.line, signals=[(generator.uniform(0, 1.05) * trial.seconds, signal.SIGKILL)])
            kills += ended.code == KILLED
            wrong += [f"{trial.name}: {problem}" for problem in trial.half_written()]
            if ended.code != KILLED or generator.random() > 1 / 3:
                break
        wrong += [f"{trial.name}: {problem}" for problem in trial.repeat()]
    overwritten = {name: trial.overwritten - before[name] for name, trial in trials.items()}
    overwritten = {name: n for name, n in overwritten.items() if n}
    print(f"{kills} kills of {len(DRIVEN)} commands, {len(wrong)} wrong; repeats with --overwrite: {overwritten}")
    assert wrong == []
