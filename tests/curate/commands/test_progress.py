"""Progress in a log: when there is a line, and what its rate is counted from."""

import time

import pytest

from curate.commands.progress import Bar


@pytest.fixture
def clock(monkeypatch):
    at = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: at[0])
    return at


def show(bar, clock, moments, total, start, words):
    """Show what was done at some moments."""
    for moment, done in moments:
        clock[0] = moment
        bar.show(done, total, start, words)


def test_the_rate_of_a_line_is_that_since_the_line_before(clock, capsys):
    moments = ((100.0, 0), (540.0, 1_000), (550.0, 21_000), (580.0, 91_000), (620.0, 291_000))
    show(Bar("rows compared"), clock, moments, 10_000_000, 0, "")
    # 440 s passed before the first row; then 90,000 rows in 40 s, then 200,000 in 40 s
    assert capsys.readouterr().err.splitlines() == [
        "0 of 10,000,000 rows compared",
        "1,000 of 10,000,000 rows compared",
        "91,000 of 10,000,000 rows compared, 2,250.0/s, 73 min left",
        "291,000 of 10,000,000 rows compared, 5,000.0/s, 32 min left",
    ]


def test_what_was_done_before_this_run_is_no_part_of_the_rate(clock, capsys):
    show(Bar("images"), clock, ((101.0, 500), (102.0, 510), (140.0, 700), (180.0, 980)), 1_000, 500, "2 failed")
    assert capsys.readouterr().err.splitlines() == [
        "700 of 1,000 images, 5.0/s, 1 min left, 2 failed",
        "980 of 1,000 images, 7.0/s, less than a minute left, 2 failed",
    ]


def test_short_or_quiet_runs_show_no_progress(clock, capsys):
    for bar, after in ((Bar("rows"), 20.0), (Bar("rows", quiet=True), 100.0)):
        bar.show(0, 1_000 if after == 20.0 else 2_000_000, 0, "")
        clock[0] += after
        bar.show(500, 1_000, 0, "")
    assert capsys.readouterr().err == ""
