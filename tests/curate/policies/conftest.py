"""The place of a subset in an object store."""

import tempfile

import pytest


@pytest.fixture
def out(s3, tmp_path, monkeypatch):
    """The URL of a subset in a bucket; what passes through this machine is in the test's own folder."""
    (tmp_path / "tmp").mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    return f"{s3}/run/k.parquet"
