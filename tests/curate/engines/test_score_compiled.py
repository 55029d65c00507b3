"""A run by what torch compiled: what its table says of it, and where it is compiled."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from runs import SMALL

from curate.engines.job import open_all
from curate.engines.score import score
from curate.engines.settings import ScoreSettings
from curate.manifest import SourceOptions
from curate.tables.table import open_table
from scoring.errors import InputError

SETTINGS = SMALL | {"backend": "compile"}


@pytest.mark.skipif(shutil.which(os.environ.get("CXX", "g++")) is None, reason="there is no C++ compiler")
@pytest.mark.slow
def test_the_table_names_the_compiler_and_has_the_scores_of_the_default(folder, full_table, tiny_checkpoint, tmp_path):
    out = tmp_path / "compiled.parquet"
    score(folder, out, model=tiny_checkpoint, **SETTINGS)
    settings = open_table(out).metadata["settings"]
    assert settings["backend"] == "compile"
    assert "." in settings["compiler"]
    before, after = (open_table(path).read().to_pydict() for path in (full_table, out))
    assert before["status"] == after["status"]
    kappa = next(name for name in before if name.startswith("kappa_"))
    pairs = [pair for pair in zip(before[kappa], after[kappa], strict=True) if pair[0] is not None]
    assert pairs
    assert np.allclose(*zip(*pairs, strict=True), rtol=1e-3)
    with pytest.raises(InputError, match="another backend: compile there, torch here"):
        score(folder, out, model=tiny_checkpoint, **SMALL)


def test_who_hands_the_work_to_gpus_elsewhere_compiles_nothing(folder, tiny_checkpoint):
    settings = ScoreSettings(**SETTINGS | {"device": "cuda", "precision": "fp32"})
    opened = open_all(folder, SourceOptions(), tiny_checkpoint, settings, elsewhere=True)
    assert opened.runner.backend == "torch"
    assert opened.fingerprint(settings)["backend"] == "compile"
    assert "compiler" not in opened.fingerprint(settings)
    with pytest.raises(InputError, match="unknown backend 'compiled'; did you mean 'compile'"):
        open_all(folder, SourceOptions(), tiny_checkpoint, replace(settings, backend="compiled"), elsewhere=True)


def test_a_source_that_cannot_be_read_is_told_before_anything_is_compiled(tmp_path, tiny_checkpoint, monkeypatch):
    def compiled(*_: object) -> None:
        raise AssertionError("it was compiled")

    monkeypatch.setattr("scoring.compiled_backbone.with_compiled", compiled)
    with pytest.raises(InputError, match="nowhere"):
        open_all(str(tmp_path / "nowhere"), SourceOptions(), tiny_checkpoint, ScoreSettings(**SETTINGS))
