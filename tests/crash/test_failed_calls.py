"""Every call that changes the disk fails in turn: one line, nothing half written, and a repeat that ends as usual."""

import errno

import pytest
from crash_commands import COMMANDS, DRIVEN
from crash_lab import FAIL, FAIL_FROM, READ_ONLY
from crash_trials import ERRORS, bench, kinds, place, plain, some

pytestmark = pytest.mark.slow  # the process that is forked imports everything


def failed_at(trial, fault):
    """Let a call fail; return what is wrong with what was reported, what is left, and the repeat."""
    ended = trial.disturbed(fault=fault)
    call = f"{place(trial, fault['n'])} {errno.errorcode[fault['errno']]}"
    return [
        f"{trial.name}, {call}: {problem}"
        for problem in plain(ended, COMMANDS[trial.name].ends) + trial.half_written() + trial.repeat()
    ]


@pytest.mark.parametrize(
    ("name", "call", "error"),
    [
        ("filter", "write", errno.ENOSPC),
        ("filter", "link", errno.EACCES),
        ("export csv", "rename", errno.EIO),
        ("export csv", "unlink", errno.EROFS),
        ("round import", "truncate", errno.EIO),
    ],
)
def test_a_call_that_fails_is_one_line_and_costs_nothing(lab, name, call, error):
    trial = bench(lab, name)
    last = max(n for n, made in enumerate(trial.calls, 1) if made.kind == call)
    assert failed_at(trial, {"action": FAIL, "n": last, "errno": error}) == []


def test_a_folder_system_without_hard_links_gets_the_same_files(lab):
    trial = bench(lab, "filter")
    first = next(n for n, call in enumerate(trial.calls, 1) if call.kind == "link")
    ended = trial.disturbed(fault={"action": FAIL, "n": first, "errno": errno.EPERM})
    assert ended.code == 0, ended.said
    assert trial.half_written() == trial.repeat() == []


@pytest.mark.parametrize("name", DRIVEN)
def test_any_call_may_fail_in_any_way(lab, name):
    trial = bench(lab, name)
    points = some([(n, error) for n in kinds(trial.calls) for error in ERRORS[trial.calls[n - 1].kind]])
    wrong = [problem for n, error in points for problem in failed_at(trial, {"action": FAIL, "n": n, "errno": error})]
    print(f"{name}: {len(points)} calls that failed, {len(wrong)} wrong")
    assert wrong == []


@pytest.mark.parametrize("name", DRIVEN)
@pytest.mark.parametrize(("action", "error"), [(FAIL_FROM, errno.ENOSPC), (READ_ONLY, errno.EROFS)])
def test_a_disk_that_is_full_or_read_only_from_any_call_on_costs_nothing_but_a_repeat(lab, name, action, error):
    trial = bench(lab, name)
    points = kinds(trial.calls)
    points = some(points[:: max(1, len(points) // 8)])
    wrong = [problem for n in points for problem in failed_at(trial, {"action": action, "n": n, "errno": error})]
    print(f"{name}: {errno.errorcode[error]} from {len(points)} calls on, {len(wrong)} wrong")
    assert wrong == []
