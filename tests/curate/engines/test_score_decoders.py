"""A scoring run whose decoder crashes, hangs or grows at one image: a row with a status, and the run goes on."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from curate.engines.score import score
from scoring.errors import InputError
from scoring.marks import decoding_path

FAILING = Path(__file__).parents[2] / "scoring" / "images" / "failing_decoder.py"


@pytest.fixture
def dataset(tmp_path):
    """Twenty JPEGs; at two of them a decoder crashes, at others of another format it hangs or grows."""
    folder = tmp_path / "heap"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(20):
        name = {3: "gif", 9: "bmp"}.get(i, "jpg")
        path = folder / f"{i:02}.{name}"
        Image.fromarray(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(path)
        marker = {3: b"<<SPIN>>", 9: b"<<GROW>>", 13: b"<<SEGV>>", 14: b"<<ABRT>>"}.get(i, b"")
        with path.open("ab") as file:
            file.write(marker)
    return folder


def run(dataset, out, checkpoint):
    command = [sys.executable, str(FAILING), "score", str(dataset), "-o", str(out), "--model", str(checkpoint)]
    command += ["--shard-size", "5", "--batch-size", "4", "--device", "cpu", "--workers", "2", "--decode-timeout", "3"]
    return subprocess.run([*command, "--max-pixels", "100000", "--no-fit"], capture_output=True, text=True)


@pytest.mark.slow
def test_a_crash_in_the_process_itself_is_found_when_the_run_is_repeated(dataset, tiny_checkpoint, tmp_path):
    out = tmp_path / "s.parquet"
    first = run(dataset, out, tiny_checkpoint)
    assert first.returncode in (-signal.SIGSEGV, -signal.SIGABRT), first.stderr
    assert not out.exists()
    marks = {path.name for path in (tmp_path / ".s.parquet.work").glob(".decoding-*")}
    assert decoding_path(Path(), 2).name in marks
    second = run(dataset, out, tiny_checkpoint)
    assert second.returncode == 0, second.stderr
    table = pq.read_table(out, columns=["key", "status", "error"]).to_pylist()
    failed = {row["key"]: row["status"] for row in table if row["status"] != "ok"}
    assert failed == {"03.gif": "timeout", "09.bmp": "too_large", "13.jpg": "crashed", "14.jpg": "crashed"}
    assert {row["error"] for row in table if row["key"] == "13.jpg"} == {"jpeg: the decoder's process ended by SIGSEGV"}
    assert [path.name for path in tmp_path.iterdir() if path.name != "heap"] == ["s.parquet"]
    assert "timeout" in second.stderr


def test_a_run_that_ends_in_order_leaves_no_mark_and_decodes_nothing_apart(dataset, tiny_checkpoint, tmp_path):
    class Cut(Exception):
        pass

    def report(progress):
        if progress.done:
            raise Cut

    out = tmp_path / "s.parquet"
    settings = {"shard_size": 5, "batch_size": 4, "device": "cpu", "fit": False}
    with pytest.raises(Cut):
        score(dataset, out, model=tiny_checkpoint, report=report, **settings)
    work = tmp_path / ".s.parquet.work"
    assert work.is_dir()
    assert not list(work.glob(".decoding-*"))


def test_a_shard_at_which_a_process_died_is_scored_with_the_same_bytes(dataset, tiny_checkpoint, tmp_path, monkeypatch):
    """Sound decoders: what they are made to decode apart gives the same table."""
    settings = {"shard_size": 5, "batch_size": 4, "device": "cpu", "fit": False}
    plain, marked = tmp_path / "a.parquet", tmp_path / "b.parquet"
    score(dataset, plain, model=tiny_checkpoint, **settings)
    apart = []
    from scoring.images import decoders

    real = decoders.decode
    monkeypatch.setattr(decoders, "decode", lambda *a, **k: apart.append(k["supervised"]) or real(*a, **k))
    monkeypatch.setattr(Path, "exists", died_at(1, Path.exists))
    score(dataset, marked, model=tiny_checkpoint, **settings)
    assert sum(apart) == 5
    assert len(apart) == 20
    monkeypatch.undo()
    assert plain.read_bytes() == marked.read_bytes()


def died_at(shard, real):
    return lambda path: path.name == decoding_path(Path(), shard).name or real(path)


def test_a_time_out_of_range_is_refused_with_its_option():
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InputError, match=r"--decode-timeout.* 0\.1 .*86,400"):
            score("nowhere", "s.parquet", decode_timeout=seconds)


def test_marks_of_another_run_are_swept(dataset, tiny_checkpoint, tmp_path):
    work = tmp_path / ".s.work"
    work.mkdir()
    for shard in (1, 77):
        decoding_path(work, shard).touch()
    score(dataset, tmp_path / "s", model=tiny_checkpoint, shard_size=5, device="cpu")
    assert not list((tmp_path / "s").glob("decoding*"))
