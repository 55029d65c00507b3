"""What an engine from outside needs: one file, one line, and spans that any process can score."""

import runpy
from pathlib import Path

import pytest
from runs import SMALL, run_again
from typer.testing import CliRunner

from curate.cli import app
from curate.engines.job import Job, open_all, score_span
from curate.engines.journal import WorkFolder
from curate.engines.run import ScoreRun
from curate.engines.score import score
from curate.engines.settings import ScoreSettings
from curate.engines.table import WHERE
from curate.manifest.contract import SourceOptions
from curate.options.option import declared
from curate.tables.table import open_table
from scoring.errors import InputError

ROOT = Path(__file__).parents[3]
OUTSIDE = """
import multiprocessing
import pickle
from contextlib import contextmanager
from functools import partial

from curate.engines.contract import Engine
from curate.engines.job import score_span


@contextmanager
def elsewhere(cluster, settings):
    \"\"\"Score in another process.\"\"\"
    yield Engine(settings, score_elsewhere, elsewhere=True)


@contextmanager
def crossed_over(cluster, settings):
    \"\"\"Score with a job that was pickled.\"\"\"
    yield Engine(settings, score_crossed_over)


@contextmanager
def forgetful(cluster, settings):
    \"\"\"Forget one.\"\"\"
    yield Engine(settings, forgets_one)


def score_elsewhere(run):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for part in pool.imap_unordered(partial(score_span, run.job), reversed(run.todo())):
            run.commit(part)


def score_crossed_over(run):
    job = pickle.loads(pickle.dumps(run.job)).open()
    for span in reversed(run.todo()):
        run.commit(score_span(job, span))


def forgets_one(run):
    for span in run.todo()[1:]:
        run.commit(score_span(run.job, span))
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    (tmp_path / "outside_engine.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(WHERE, "elsewhere", "outside_engine:elsewhere")
    monkeypatch.setitem(WHERE, "crossed", "outside_engine:crossed_over")
    monkeypatch.setitem(WHERE, "forgetful", "outside_engine:forgetful")


def job_of(folder, checkpoint, work):
    """A job as `score` makes it, open in this process."""
    settings = ScoreSettings(**SMALL)
    opened = open_all(folder, SourceOptions(), checkpoint, settings)
    fingerprint = opened.fingerprint(settings)
    return Job(folder, SourceOptions(), checkpoint, settings, 1, work, fingerprint, {"kind": "scores"}, 1 << 30, opened)


@pytest.mark.slow
def test_an_engine_in_another_process_writes_the_same_bytes(folder, full_table, tiny_checkpoint, tmp_path, outside):
    seen = []
    result = run_again(folder, tmp_path / "s.parquet", tiny_checkpoint, engine="elsewhere", report=seen.append)
    assert result.rows == 30
    assert (tmp_path / "s.parquet").read_bytes() == full_table.read_bytes()
    assert [(step.done, step.failed) for step in seen][-1] == (30, 2)
    assert [step.done for step in seen] == sorted(step.done for step in seen)


def test_what_one_engine_began_another_ends(folder, full_table, tiny_checkpoint, tmp_path, monkeypatch, outside):
    real, lines = WorkFolder.commit, []

    def two_and_no_more(self, part):
        if len(lines) == 2:
            raise KeyboardInterrupt
        lines.append(part.shard)
        real(self, part)

    monkeypatch.setattr(WorkFolder, "commit", two_and_no_more)
    with pytest.raises(KeyboardInterrupt):
        run_again(folder, tmp_path / "s.parquet", tiny_checkpoint, engine="crossed")
    monkeypatch.setattr(WorkFolder, "commit", real)
    assert lines == [3, 2]  # as they came in
    assert run_again(folder, tmp_path / "s.parquet", tiny_checkpoint).resumed == 6 + 8
    assert (tmp_path / "s.parquet").read_bytes() == full_table.read_bytes()


def test_an_engine_that_leaves_a_shard_out_is_a_bug_and_no_table(folder, tiny_checkpoint, tmp_path, outside):
    with pytest.raises(ValueError, match="30 rows went in"):
        run_again(folder, tmp_path / "s.parquet", tiny_checkpoint, engine="forgetful")
    assert not (tmp_path / "s.parquet").exists()


def test_an_engine_from_outside_is_in_the_command_and_its_help(folder, full_table, tiny_checkpoint, tmp_path, outside):
    args = ["score", str(folder), "-o", str(tmp_path / "s.parquet"), "--model", str(tiny_checkpoint), "--quiet"]
    sizes = ["--batch-size", "4", "--shard-size", "8", "--device", "cpu"]
    done = CliRunner().invoke(app, [*args, *sizes, "--engine", "crossed"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "s.parquet").read_bytes() == full_table.read_bytes()
    anew = declared(runpy.run_path(str(ROOT / "curate/engines/options.py"))["ScoreOptions"])
    assert "local, ray, elsewhere, crossed, forgetful" in {field.name: field.about.text for field in anew}["engine"]
    wrong = CliRunner().invoke(app, [*args, "--engine", "crosed"])
    assert wrong.exit_code == 1
    assert wrong.stderr.count("\n") == 1
    assert "did you mean 'crossed'" in wrong.stderr


def test_an_input_that_differs_where_a_span_is_scored_is_refused_by_name(folder, tiny_checkpoint, tmp_path):
    import shutil
    from dataclasses import replace

    copy = tmp_path / "photos"
    shutil.copytree(folder, copy)
    job = replace(job_of(copy, tiny_checkpoint, tmp_path), opened=None)
    (copy / "00.png").unlink()
    with pytest.raises(InputError, match="another input"):
        job.open()
    with pytest.raises(ValueError, match=r"job\.open"):
        ScoreRun(job, WorkFolder(tmp_path / "work", tmp_path / "out"), {}, lambda progress: None)


def test_a_part_that_is_foreign_or_that_the_driver_cannot_see_is_not_committed(folder, tiny_checkpoint, tmp_path):
    from dataclasses import replace

    with WorkFolder(tmp_path / "work", tmp_path / "out") as work:
        job = job_of(folder, tiny_checkpoint, work.folder)
        run = ScoreRun(job, work, {}, lambda progress: None)
        part = score_span(job, run.plan[0])
        with pytest.raises(ValueError, match="has 6 rows"):
            run.commit(replace(part, shard=3))
        with pytest.raises(ValueError, match="part of shard -1"):
            run.commit(replace(part, shard=-1))
        work.part(0).rename(tmp_path / "elsewhere")
        with pytest.raises(InputError, match=r"part-000000.*workers must share"):
            run.commit(part)
        (tmp_path / "elsewhere").rename(work.part(0))
        run.commit(part)
        assert [span.index for span in run.todo()] == [1, 2, 3]
        assert (work.folder / "journal.jsonl").read_text().count("\n") == 1


def test_a_run_goes_on_with_the_threads_that_it_began_with(
    folder, full_table, tiny_checkpoint, tmp_path, monkeypatch, outside
):
    import torch

    real, seen = WorkFolder.commit, []

    def first_alone(self, part):
        if seen:
            raise KeyboardInterrupt
        seen.append(torch.get_num_threads())
        real(self, part)

    began = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with monkeypatch.context() as patch:
            patch.setattr(WorkFolder, "commit", first_alone)
            with pytest.raises(KeyboardInterrupt):
                run_again(folder, tmp_path / "s.parquet", tiny_checkpoint)
        torch.set_num_threads(began)
        run_again(folder, tmp_path / "s.parquet", tiny_checkpoint, engine="crossed")
        assert torch.get_num_threads() == began
        assert open_table(tmp_path / "s.parquet").metadata["threads"] == 3
        torch.set_num_threads(3)
        run_again(folder, tmp_path / "undisturbed.parquet", tiny_checkpoint)
    finally:
        torch.set_num_threads(began)
    assert (tmp_path / "s.parquet").read_bytes() == (tmp_path / "undisturbed.parquet").read_bytes()


def test_score_takes_the_engine_by_name(folder, tiny_checkpoint, tmp_path):
    with pytest.raises(InputError, match="unknown engine 'dask'"):
        score(folder, tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL, engine="dask")
