"""The power goes at any moment of a command: what was not flushed is lost, in part, or in another order."""

import random

import pytest
from crash_commands import DRIVEN
from crash_power import Disk, restore
from crash_trials import bench, some

pytestmark = pytest.mark.slow  # the process that is forked imports everything

MODELLED = [
    name for name in DRIVEN if not name.startswith("export") and name != "run"
]  # what copies files is not noted


def states(lab, trial, mixes):
    """Return every different state that a power cut at any call may leave, in order, with the call."""
    lab.begin(trial.name)
    disk, generator, distinct = Disk(lab.folder), random.Random(0), {}
    for number, call in enumerate(trial.calls, 1):
        disk.apply(call)
        for state in disk.after_a_cut(generator, mixes):
            distinct.setdefault(frozenset(state.items()), (number, state))
    return list(distinct.values())


@pytest.mark.parametrize("name", ["filter", "filter over another"])
def test_no_power_cut_leaves_half_a_file_under_its_name(lab, name):
    trial = bench(lab, name, data=True)
    cut = states(lab, trial, mixes=2)
    assert len(cut) > 20
    for number, state in cut:
        restore(lab.folder, state)
        assert trial.half_written() == [], trial.calls[number - 1]


@pytest.mark.parametrize("name", MODELLED)
def test_after_any_power_cut_a_repeat_ends_as_if_there_had_been_none(lab, name):
    trial = bench(lab, name, data=True)
    cut = states(lab, trial, mixes=1)
    tried = some(cut[:: max(1, len(cut) // 20)])
    wrong = []
    for number, state in tried:
        lab.begin(name)
        restore(lab.folder, state)
        call = trial.calls[number - 1]
        wrong += [f"{name}, cut after {number} {call.kind} {call.one}: {problem}" for problem in trial.half_written()]
        wrong += [f"{name}, cut after {number} {call.kind} {call.one}: {problem}" for problem in trial.repeat()]
    print(f"{name}: {len(tried)} of {len(cut)} states, {len(wrong)} wrong")
    assert wrong == []
