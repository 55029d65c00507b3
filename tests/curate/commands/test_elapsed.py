"""The seconds that a terminal shows while a command prints nothing."""

import errno
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

import curate.training.launch
import curate.training.train
from curate.cli import app
from curate.commands import elapsed as shown_seconds
from curate.commands.elapsed import elapsed, replace_elapsed
from curate.commands.printing import say
from curate.commands.progress import Bar
from curate.tables.table import open_table


@pytest.fixture
def wait_for(monkeypatch, capsys):
    """Return a function that waits until a terminal is shown a text, and returns all since the last call."""
    monkeypatch.setattr(shown_seconds, "SILENT", 0.0)
    monkeypatch.setattr(shown_seconds, "EVERY", 0.005)

    def wait(text):
        seen = capsys.readouterr().err
        for _ in range(1000):
            if text in seen:
                return seen
            time.sleep(0.005)
            seen += capsys.readouterr().err
        raise AssertionError(seen)

    return wait


def test_seconds_are_shown_and_gone_before_a_line_and_at_the_end(wait_for, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with elapsed(quiet=False):
        wait_for("\r0 s")
        say("kept 3")
        assert "\r   \rkept 3\n" in wait_for("kept 3\n")
        wait_for("\r0 s")
    assert wait_for("\r   \r").endswith("\r   \r")


def test_a_bar_is_drawn_again_instead_of_seconds(wait_for, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with elapsed(quiet=False), Bar("rows") as bar:
        bar.show(1, 9, 0, "")
        wait_for("1/9")
        shown = wait_for("1/9")
        assert "\r0 s" not in shown


def test_none_are_shown_where_notes_are_unwanted(wait_for, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with elapsed(quiet=True):
        time.sleep(0.05)
        assert wait_for("") == ""


def test_a_log_gets_lines_with_the_rows_that_were_read(wait_for, monkeypatch, tmp_path):
    monkeypatch.setattr(shown_seconds, "SILENT_LOG", 0.0)
    pq.write_table(pa.table({"key": ["a", "b", "c", "d", "e"]}), tmp_path / "scores.parquet")
    batches = open_table(tmp_path / "scores.parquet").batches(rows=2)
    with elapsed(quiet=False):
        wait_for(" s\n")
        next(batches)
        next(batches)
        wait_for(" s: 2 of 5 rows of scores.parquet read\n")
        batches.close()
        wait_for(" s\n")
        replace_elapsed(lambda: None)
        wait_for("")
        time.sleep(0.05)
        assert wait_for("") == ""


@pytest.mark.parametrize("settings", [{"quiet": True}, {"quiet": False}])
def test_a_log_gets_none_when_unwanted_or_soon_over(wait_for, settings):
    with elapsed(**settings):
        time.sleep(0.05)
    assert wait_for("") == ""


def test_a_terminal_that_went_away_hides_no_exception(wait_for, monkeypatch):
    def gone(_):
        raise OSError(errno.EIO, "Input/output error")

    @elapsed(quiet=False)
    def interrupted():
        wait_for("\r0 s")
        monkeypatch.setattr(sys.stderr, "write", gone)
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with pytest.raises(KeyboardInterrupt):
        interrupted()


@pytest.mark.parametrize(
    ("module", "name", "ranks"),
    [(curate.training.launch, "launch", {}), (curate.training.train, "run_train", {"RANK": "1", "WORLD_SIZE": "2"})],
)
def test_of_several_processes_only_the_first_shows_them(wait_for, monkeypatch, module, name, ranks):
    class Reached(Exception):
        """The command did what is replaced here."""

    def replaced(_):
        wait_for("")
        time.sleep(0.05)
        assert wait_for("") == ""
        raise Reached

    for variable, value in ranks.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(module, name, replaced)
    command = ["train", "simsiam", "photos", "-o", "m.safetensors", "--device", "cpu", "--devices", "2"]
    with pytest.raises(Reached):
        typer.main.get_command(app).main(command, standalone_mode=False)
