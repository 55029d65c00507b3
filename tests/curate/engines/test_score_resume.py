"""A scoring run that is cut off, repeated, or meets something at its output."""

import os
import random
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest
from runs import SMALL, run_again

from curate.engines import output
from curate.engines.journal import JOURNAL, WorkFolder, append_line, journal_lines
from curate.engines.score import score
from curate.engines.store_work import work_of
from curate.tables.table import open_table
from scoring.errors import InputError


class Cut(Exception):
    """What the tests kill a run with."""


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_run_cut_off_after_any_shard_ends_with_the_same_bytes(
    folder, full_table, tiny_checkpoint, tmp_path, monkeypatch, after
):
    out = tmp_path / "s.parquet"
    commits = 0
    real = WorkFolder.commit

    def commit(self, line):
        nonlocal commits
        if commits == after:
            raise Cut
        commits += 1
        real(self, line)

    monkeypatch.setattr(WorkFolder, "commit", commit)
    with pytest.raises(Cut):
        run_again(folder, out, tiny_checkpoint)
    monkeypatch.undo()
    assert not out.exists()
    result = run_again(folder, out, tiny_checkpoint)
    assert result.resumed == 8 * after
    assert result.rows == 30
    assert out.read_bytes() == full_table.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["s.parquet"]


def lines_of(journal):
    return journal.read_text().count("\n") if journal.exists() else 0


def started(source, out, checkpoint, until):
    """A process that scores, as soon as its journal has so many lines."""
    command = [sys.executable, "-m", "curate", "score", str(source), "-o", str(out), "--model", str(checkpoint)]
    command += ["--batch-size", "4", "--shard-size", "8", "--device", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while lines_of(out.parent / f".{out.name}.work" / JOURNAL) < until and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return process


@pytest.mark.slow
def test_a_process_killed_at_random_moments_ends_with_the_same_bytes(folder, full_table, tiny_checkpoint, tmp_path):
    out = tmp_path / "s.parquet"
    kills = 0
    for until in (1, 2):
        process = started(folder, out, tiny_checkpoint, until)
        time.sleep(random.random() * 0.02)  # of a shard, or of the merge
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        if out.exists():
            break
    assert kills
    assert run_again(folder, out, tiny_checkpoint).resumed >= 8
    assert out.read_bytes() == full_table.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["s.parquet"]


def test_a_damaged_shard_or_journal_line_is_computed_again(folder, full_table, tiny_checkpoint, tmp_path, monkeypatch):
    out = tmp_path / "s.parquet"
    monkeypatch.setattr(output, "write_joined", lambda *a, **k: (_ for _ in ()).throw(Cut))
    with pytest.raises(Cut):
        run_again(folder, out, tiny_checkpoint)
    monkeypatch.undo()
    work = tmp_path / ".s.parquet.work"
    part = bytearray((work / "part-000001.parquet").read_bytes())
    part[200] ^= 1
    (work / "part-000001.parquet").write_bytes(part)
    lines = (work / JOURNAL).read_bytes().splitlines(keepends=True)
    torn = lines[3][: len(lines[3]) // 2]
    (work / JOURNAL).write_bytes(b"".join([lines[0], lines[1], lines[2].replace(b'"rows": 8', b'"rows": 9'), torn]))
    (work / ".part-000003.parquet.tmp.1.ab").write_bytes(b"left by a dead process")
    result = run_again(folder, out, tiny_checkpoint)
    assert result.resumed == 8  # shard 0; shard 1 has a flipped bit, 2 a changed line, 3 a torn one
    assert out.read_bytes() == full_table.read_bytes()


def test_a_finished_run_is_not_repeated(folder, full_table, tiny_checkpoint):
    before = full_table.stat().st_mtime_ns
    said = []
    result = score(folder, full_table, model=tiny_checkpoint, **SMALL, announce=said.append)
    assert full_table.stat().st_mtime_ns == before
    assert result.resumed == result.rows == 30
    assert result.failed == 2
    assert any("complete already" in text for text in said)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"batch_size": 8}, "batch-size: 4"),
        ({"dtype": "float32"}, "there, float32 here"),
        ({"embedding": False}, "there, none here"),
        ({"precision": "bf16"}, "precision: fp32"),
        ({"max_pixels": 10}, "max-pixels"),
        ({"quality": False}, "quality: 128 px"),
    ],
)
def test_other_settings_on_the_same_output_are_refused_by_name(folder, full_table, tiny_checkpoint, changes, name):

    with pytest.raises(InputError, match=name):
        score(folder, full_table, model=tiny_checkpoint, **{**SMALL, **changes})


def test_a_changed_input_is_refused_on_resume_and_overwrite_starts_again(folder, tiny_checkpoint, tmp_path):
    import shutil

    copy = tmp_path / "photos"
    shutil.copytree(folder, copy)
    out = tmp_path / "s.parquet"
    run_again(copy, out, tiny_checkpoint)
    (copy / "zz.png").write_bytes((copy / "00.png").read_bytes())
    with pytest.raises(InputError, match="another input"):
        run_again(copy, out, tiny_checkpoint)
    assert run_again(copy, out, tiny_checkpoint, overwrite=True).rows == 31
    assert open_table(out).n_rows == 31


def test_a_second_process_on_the_same_output_is_refused(folder, tiny_checkpoint, tmp_path):
    with work_of(tmp_path / "s.parquet"), pytest.raises(InputError, match=r"written by process \d+"):
        run_again(folder, tmp_path / "s.parquet", tiny_checkpoint)


def test_a_folder_of_parts_holds_the_same_rows(folder, full_table, tiny_checkpoint, tmp_path):
    result = run_again(folder, tmp_path / "scores", tiny_checkpoint)
    parts = open_table(tmp_path / "scores")
    assert len(parts.files) == 4
    assert parts.read().equals(open_table(full_table).read())
    assert result.rows == 30
    assert run_again(folder, tmp_path / "scores", tiny_checkpoint).resumed == 30


def test_a_foreign_file_or_folder_at_the_output_is_left_alone(folder, tiny_checkpoint, tmp_path):
    (tmp_path / "mine.parquet").write_text("important")
    with pytest.raises(InputError, match="not a table"):
        run_again(folder, tmp_path / "mine.parquet", tiny_checkpoint)
    assert (tmp_path / "mine.parquet").read_text() == "important"
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("important")
    with pytest.raises(InputError, match="not a table"):
        run_again(folder, other, tiny_checkpoint)
    assert [p.name for p in other.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_scored_is_never_taken_for_the_output(folder, tiny_checkpoint, tmp_path, overwrite):
    before = sorted(p.name for p in folder.iterdir())
    for out in (folder, folder.parent):
        with pytest.raises(InputError, match="is the source"):
            run_again(folder, out, tiny_checkpoint, overwrite=overwrite)
    assert sorted(p.name for p in folder.iterdir()) == before


def test_overwrite_replaces_scores_and_nothing_else(folder, full_table, tiny_checkpoint, tmp_path):
    mine = tmp_path / "mine.parquet"
    pq.write_table(pq.read_table(full_table, columns=["key"]).replace_schema_metadata({}), mine)
    with pytest.raises(InputError, match="not a table"):
        run_again(folder, mine, tiny_checkpoint, overwrite=True)
    run_again(folder, tmp_path / "scores", tiny_checkpoint)
    (tmp_path / "scores" / "notes.txt").write_text("important")
    with pytest.raises(InputError, match="more than scores"):
        run_again(folder, tmp_path / "scores", tiny_checkpoint, overwrite=True)
    (tmp_path / "scores" / "notes.txt").unlink()
    assert run_again(folder, tmp_path / "scores", tiny_checkpoint, overwrite=True).resumed == 0
    assert open_table(tmp_path / "scores").n_rows == 30


def test_a_folder_that_appears_meanwhile_is_left_alone(folder, tiny_checkpoint, tmp_path, monkeypatch):
    out = tmp_path / "scores"
    real = WorkFolder.become

    def become(self, *args, **kwargs):
        out.mkdir()
        (out / "precious.txt").write_text("important")
        real(self, *args, **kwargs)

    monkeypatch.setattr(WorkFolder, "become", become)
    with pytest.raises(InputError, match="appeared while"):
        run_again(folder, out, tiny_checkpoint)
    assert (out / "precious.txt").read_text() == "important"


def cut_after(n, monkeypatch):
    """Make the n-th commit fail."""
    real = WorkFolder.commit
    commits = iter(range(1000))

    def commit(self, line):
        if next(commits) == n:
            raise Cut
        real(self, line)

    monkeypatch.setattr(WorkFolder, "commit", commit)


def test_shards_without_the_note_of_their_run_count_for_nothing(folder, tiny_checkpoint, tmp_path, monkeypatch):

    out = tmp_path / "s.parquet"
    cut_after(2, monkeypatch)
    with pytest.raises(Cut):
        run_again(folder, out, tiny_checkpoint)
    monkeypatch.undo()
    (tmp_path / ".s.parquet.work" / "run.json").unlink()
    result = score(folder, out, model=tiny_checkpoint, **SMALL | {"dtype": "float32"})
    assert result.resumed == 0
    assert "float" in str(open_table(out).schema.field("embedding").type)
    assert "halffloat" not in str(open_table(out).schema.field("embedding").type)


def test_a_finished_run_leaves_another_runs_work_alone(folder, tiny_checkpoint, tmp_path, monkeypatch):

    out = tmp_path / "s.parquet"
    run_again(folder, out, tiny_checkpoint)
    cut_after(2, monkeypatch)
    other = SMALL | {"dtype": "float32"}
    with pytest.raises(Cut):
        score(folder, out, model=tiny_checkpoint, **other, overwrite=True)
    monkeypatch.undo()
    said = []
    run_again(folder, out, tiny_checkpoint, announce=said.append)
    assert any("another run towards" in text for text in said)
    assert score(folder, out, model=tiny_checkpoint, **other, overwrite=True).resumed == 16


def test_a_run_that_committed_nothing_binds_no_later_one(folder, tiny_checkpoint, tmp_path, monkeypatch):

    out = tmp_path / "s.parquet"
    cut_after(0, monkeypatch)
    with pytest.raises(Cut):
        run_again(folder, out, tiny_checkpoint)
    monkeypatch.undo()
    assert score(folder, out, model=tiny_checkpoint, **SMALL | {"batch_size": 2}).rows == 30


def test_what_a_dead_merge_left_is_swept(folder, full_table, tiny_checkpoint, tmp_path):
    (tmp_path / ".s.parquet.tmp.123.abcd").write_bytes(b"half a table")
    run_again(folder, tmp_path / "s.parquet", tiny_checkpoint)
    assert [p.name for p in tmp_path.iterdir()] == ["s.parquet"]


def test_ctrl_c_keeps_what_is_committed_and_says_how_to_go_on(folder, tiny_checkpoint, tmp_path):
    dataset = tmp_path / "heap"
    dataset.mkdir()
    for i in range(160):
        os.link(folder / f"{i % 28:02}.png", dataset / f"{i:04}.png")
    out = tmp_path / "s.parquet"
    process = started(dataset, out, tiny_checkpoint, 1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("the run was faster than the signal")
    assert process.returncode == 130
    assert said.strip().splitlines()[-1].startswith("interrupted")
    assert "Traceback" not in said
    committed = lines_of(tmp_path / ".s.parquet.work" / JOURNAL)
    assert committed >= 1
    result = run_again(dataset, out, tiny_checkpoint)
    assert (result.resumed, result.rows) == (8 * committed, 160)


def test_a_folder_of_parts_whose_lock_was_left_in_it_is_complete_and_loses_the_lock(folder, tiny_checkpoint, tmp_path):
    """As a run leaves it that dies between the name of the folder and the end."""
    run_again(folder, tmp_path / "scores", tiny_checkpoint)
    before = sorted(path.name for path in (tmp_path / "scores").iterdir())
    (tmp_path / "scores" / "lock").write_text("process 1 on here\n")
    assert run_again(folder, tmp_path / "scores", tiny_checkpoint).resumed == 30
    assert sorted(path.name for path in (tmp_path / "scores").iterdir()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["scores"]


def test_a_torn_last_line_of_a_journal_leaves_no_trace(tmp_path):
    journal = tmp_path / JOURNAL
    append_line(journal, {"shard": 0})
    complete = journal.read_bytes()
    journal.write_bytes(complete + complete[:-1])  # all but the end of the line
    assert journal_lines(journal) == [{"shard": 0}]
    assert journal.read_bytes() == complete
