"""A run by a backend: its bytes after a kill, what its table says of it, and another backend on the same output."""

import os
from importlib.util import find_spec

import pytest
from runs import SMALL
from typer.testing import CliRunner

from curate.cli import app
from curate.engines.journal import WorkFolder
from curate.engines.score import score
from curate.tables.table import open_table
from scoring.errors import InputError

pytestmark = pytest.mark.skipif(
    find_spec("openvino") is None or "CURATE_TEST_OPENVINO" not in os.environ,
    reason="openvino runs in its own process: tests/test_openvino.py",
)
SETTINGS = SMALL | {"backend": "openvino"}


@pytest.mark.slow
def test_a_run_that_was_cut_off_ends_with_the_same_bytes_and_no_other_backend_goes_on_with_it(
    folder, full_table, tiny_checkpoint, tmp_path, monkeypatch
):
    done, cut = tmp_path / "done.parquet", tmp_path / "cut.parquet"
    score(folder, done, model=tiny_checkpoint, **SETTINGS)
    real, commits = WorkFolder.commit, []

    def commit(self, line):
        if commits:
            raise KeyboardInterrupt
        commits.append(line)
        real(self, line)

    monkeypatch.setattr(WorkFolder, "commit", commit)
    with pytest.raises(KeyboardInterrupt):
        score(folder, cut, model=tiny_checkpoint, **SETTINGS)
    monkeypatch.undo()
    with pytest.raises(InputError, match="another backend: openvino"):
        score(folder, cut, model=tiny_checkpoint, **SMALL)
    assert score(folder, cut, model=tiny_checkpoint, **SETTINGS).resumed == 8
    assert cut.read_bytes() == done.read_bytes()
    settings = open_table(done).metadata["settings"]
    assert settings["backend"] == "openvino"
    assert settings["openvino"].startswith("20")
    assert open_table(full_table).metadata["settings"]["backend"] == "torch"


def test_the_command_says_which_backend_runs_and_refuses_another_device(folder, tiny_checkpoint, tmp_path):
    line = ["score", str(folder), "-o", str(tmp_path / "s.parquet"), "--model", str(tiny_checkpoint), "--device", "cpu"]
    result = CliRunner().invoke(app, [*line, "--backend", "openvino"])
    assert result.exit_code == 0, result.output
    assert "no GPU is used" in result.output
    result = CliRunner().invoke(app, [*line, "--backend", "onnx"])
    assert result.exit_code == 1
    assert "unknown backend 'onnx'" in result.output
