"""The scoring engine on real files: what it writes, and what it does when it is cut off."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from curate.engines import output, shard
from curate.engines.journal import JOURNAL, WorkFolder
from curate.engines.local import score
from curate.engines.settings import ScoreSettings
from curate.table import embedding_matrix, open_table
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.images import decode

SMALL = ScoreSettings(device="cpu", batch_size=4, shard_rows=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Thirty images, of which two are the same, one is broken and one is text."""
    path = tmp_path_factory.mktemp("heap") / "photos"
    path.mkdir()
    generator = np.random.default_rng(0)
    for i in range(28):
        size = generator.integers(32, 90, 2)
        small = generator.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(small).resize(tuple(size.tolist())).save(path / f"{i:02}.png")
    (path / "05.png").write_bytes((path / "03.png").read_bytes())
    (path / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 and no more")
    (path / "text.png").write_text("hello")
    return path


@pytest.fixture(scope="module")
def whole(folder, tiny_checkpoint, tmp_path_factory):
    """The table of an undisturbed run."""
    out = tmp_path_factory.mktemp("whole") / "scores.parquet"
    score(folder, out, model=tiny_checkpoint, settings=SMALL)
    return out


def run_again(folder, out, checkpoint, **changes):
    return score(folder, out, model=checkpoint, settings=SMALL, **changes)


def test_every_file_is_a_row_and_failures_say_why(folder, whole):
    table = open_table(whole).read()
    assert table.column("key").to_pylist() == sorted(p.name for p in folder.iterdir())
    status = dict(zip(table.column("key").to_pylist(), table.column("status").to_pylist(), strict=True))
    assert status.pop("broken.jpg") in ("truncated", "corrupt")
    assert status.pop("text.png") == "not_an_image"
    assert set(status.values()) == {"ok"}
    rows = table.to_pylist()
    for row in rows:
        assert (row["embedding"] is None) == (row["kappa_visimsiam"] is None) == (row["status"] != "ok")
        assert (row["error"] is not None) == (row["status"] != "ok")
        assert row["n_bytes"] == (folder / row["key"]).stat().st_size
        assert row["uri"] == str(folder / row["key"])


@torch.inference_mode()
def test_scores_are_those_of_the_model_on_the_decoded_image(folder, whole, tiny_checkpoint):
    model, card = load_model(tiny_checkpoint)
    table = open_table(whole)
    rows = [row for row in table.read().to_pylist() if row["status"] == "ok"]
    for row in rows[::5]:
        image = decode((folder / row["key"]).read_bytes(), model.spec.preprocessing)
        outputs = model(torch.from_numpy(image.pixels).permute(2, 0, 1)[None])
        assert row["kappa_visimsiam"] == pytest.approx(outputs.kappas["visimsiam"].item(), rel=1e-3)
        assert row["unc_visimsiam"] == pytest.approx(1 / row["kappa_visimsiam"], rel=1e-6)
        assert np.abs(np.array(row["embedding"], np.float32) - outputs.embedding[0].numpy()).max() < 2e-3
        assert (row["width"], row["height"]) == (image.width, image.height)
        assert row["sha256"] == image.sha256
        assert row["phash"] == image.phash
    assert len({row["kappa_visimsiam"] for row in rows}) > 20
    assert table.metadata["model"]["digest"] == card["digest"]
    norms = np.linalg.norm(embedding_matrix(table.read(["embedding"]).column(0)).astype(np.float64), axis=1)
    assert np.nanmax(np.abs(norms - 1)) < 1e-3


def test_the_same_bytes_are_decoded_once_a_shard_and_score_alike(folder, tiny_checkpoint, tmp_path, monkeypatch):
    decoded = []
    real = shard.decode
    monkeypatch.setattr(shard, "decode", lambda data, *a, **k: decoded.append(1) or real(data, *a, **k))
    run_again(folder, tmp_path / "s.parquet", tiny_checkpoint, workers=2)
    assert len(decoded) == 29  # thirty files, of which 03 and 05 share shard and bytes
    rows = {row["key"]: row for row in open_table(tmp_path / "s.parquet").read().to_pylist()}
    assert {**rows["03.png"], "key": "", "uri": ""} == {**rows["05.png"], "key": "", "uri": ""}


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_changes_no_byte(folder, whole, tiny_checkpoint, tmp_path, workers):
    run_again(folder, tmp_path / "s.parquet", tiny_checkpoint, workers=workers)
    assert (tmp_path / "s.parquet").read_bytes() == whole.read_bytes()


class Cut(Exception):
    """What the tests kill a run with."""


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_run_cut_off_after_any_shard_ends_with_the_same_bytes(
    folder, whole, tiny_checkpoint, tmp_path, monkeypatch, after
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
    assert out.read_bytes() == whole.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["s.parquet"]


def test_a_process_killed_at_random_moments_ends_with_the_same_bytes(folder, whole, tiny_checkpoint, tmp_path):
    out = tmp_path / "s.parquet"
    command = [sys.executable, "-m", "curate", "score", str(folder), "-o", str(out), "--model", str(tiny_checkpoint)]
    command += ["--batch-size", "4", "--shard-size", "8", "--device", "cpu", "--quiet"]
    kills = 0
    for delay in (2.0, 2.6, 3.2, 3.8):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
        if process.returncode == 0:
            break
    assert kills
    subprocess.run(command, check=True)
    assert out.read_bytes() == whole.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["s.parquet"]


def test_a_damaged_shard_or_journal_line_is_computed_again(folder, whole, tiny_checkpoint, tmp_path, monkeypatch):
    out = tmp_path / "s.parquet"
    monkeypatch.setattr(output, "_merge", lambda *a, **k: (_ for _ in ()).throw(Cut))
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
    assert out.read_bytes() == whole.read_bytes()


def test_a_finished_run_is_not_repeated(folder, whole, tiny_checkpoint):
    before = whole.stat().st_mtime_ns
    said = []
    result = score(folder, whole, model=tiny_checkpoint, settings=SMALL, announce=said.append)
    assert whole.stat().st_mtime_ns == before
    assert result.resumed == result.rows == 30
    assert result.failed == 2
    assert any("complete already" in text for text in said)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"batch_size": 8}, "batch-size: 4 there, 8 here"),
        ({"dtype": "float32"}, "embedding dtype: float16 there, float32 here"),
        ({"dtype": None}, "embedding dtype: float16 there, none here"),
        ({"precision": "bf16"}, "precision: fp32 there, bf16 here"),
        ({"max_pixels": 10}, "max-pixels"),
    ],
)
def test_other_settings_on_the_same_output_are_refused_by_name(folder, whole, tiny_checkpoint, changes, name):
    from dataclasses import replace

    with pytest.raises(InputError, match=name):
        score(folder, whole, model=tiny_checkpoint, settings=replace(SMALL, **changes))


def test_a_changed_input_is_refused_on_resume_and_overwrite_starts_anew(folder, tiny_checkpoint, tmp_path):
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
    with WorkFolder(tmp_path / ".s.parquet.work"), pytest.raises(InputError, match=r"being written by process \d+"):
        run_again(folder, tmp_path / "s.parquet", tiny_checkpoint)


def test_a_folder_of_parts_holds_the_same_rows(folder, whole, tiny_checkpoint, tmp_path):
    result = run_again(folder, tmp_path / "scores", tiny_checkpoint)
    parts = open_table(tmp_path / "scores")
    assert len(parts.files) == 4
    assert parts.read().equals(open_table(whole).read())
    assert result.rows == 30
    assert run_again(folder, tmp_path / "scores", tiny_checkpoint).resumed == 30


def test_a_foreign_file_or_folder_at_the_output_is_left_alone(folder, tiny_checkpoint, tmp_path):
    (tmp_path / "mine.parquet").write_text("important")
    with pytest.raises(InputError, match="exists and is not a table of scores; it is left alone"):
        run_again(folder, tmp_path / "mine.parquet", tiny_checkpoint)
    assert (tmp_path / "mine.parquet").read_text() == "important"
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("important")
    with pytest.raises(InputError, match="exists and is not a table of scores; it is left alone"):
        run_again(folder, other, tiny_checkpoint)
    assert [p.name for p in other.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_scored_is_never_taken_for_the_output(folder, tiny_checkpoint, tmp_path, overwrite):
    before = sorted(p.name for p in folder.iterdir())
    for out in (folder, folder.parent):
        with pytest.raises(InputError, match="is what is to be scored, or holds it"):
            run_again(folder, out, tiny_checkpoint, overwrite=overwrite)
    assert sorted(p.name for p in folder.iterdir()) == before


def test_overwrite_replaces_scores_and_nothing_else(folder, whole, tiny_checkpoint, tmp_path):
    mine = tmp_path / "mine.parquet"
    pq.write_table(pq.read_table(whole, columns=["key"]).replace_schema_metadata({}), mine)
    with pytest.raises(InputError, match="is not a table of scores, and is left alone"):
        run_again(folder, mine, tiny_checkpoint, overwrite=True)
    run_again(folder, tmp_path / "scores", tiny_checkpoint)
    (tmp_path / "scores" / "notes.txt").write_text("important")
    with pytest.raises(InputError, match="holds more than scores, and is left alone"):
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
    with pytest.raises(InputError, match="appeared while it was being written"):
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
    from dataclasses import replace

    out = tmp_path / "s.parquet"
    cut_after(2, monkeypatch)
    with pytest.raises(Cut):
        run_again(folder, out, tiny_checkpoint)
    monkeypatch.undo()
    (tmp_path / ".s.parquet.work" / "run.json").unlink()
    result = score(folder, out, model=tiny_checkpoint, settings=replace(SMALL, dtype="float32"))
    assert result.resumed == 0
    assert "float" in str(open_table(out).schema.field("embedding").type)
    assert "halffloat" not in str(open_table(out).schema.field("embedding").type)


def test_a_finished_run_leaves_another_runs_work_alone(folder, tiny_checkpoint, tmp_path, monkeypatch):
    from dataclasses import replace

    out = tmp_path / "s.parquet"
    run_again(folder, out, tiny_checkpoint)
    cut_after(2, monkeypatch)
    other = replace(SMALL, dtype="float32")
    with pytest.raises(Cut):
        score(folder, out, model=tiny_checkpoint, settings=other, overwrite=True)
    monkeypatch.undo()
    said = []
    run_again(folder, out, tiny_checkpoint, announce=said.append)
    assert any("another run towards" in text for text in said)
    assert score(folder, out, model=tiny_checkpoint, settings=other, overwrite=True).resumed == 16


def test_a_run_that_committed_nothing_binds_no_later_one(folder, tiny_checkpoint, tmp_path, monkeypatch):
    from dataclasses import replace

    out = tmp_path / "s.parquet"
    cut_after(0, monkeypatch)
    with pytest.raises(Cut):
        run_again(folder, out, tiny_checkpoint)
    monkeypatch.undo()
    assert score(folder, out, model=tiny_checkpoint, settings=replace(SMALL, batch_size=2)).rows == 30


def test_what_a_dead_merge_left_is_swept(folder, whole, tiny_checkpoint, tmp_path):
    (tmp_path / ".s.parquet.tmp.123.abcd").write_bytes(b"half a table")
    run_again(folder, tmp_path / "s.parquet", tiny_checkpoint)
    assert [p.name for p in tmp_path.iterdir()] == ["s.parquet"]


@pytest.mark.parametrize("out", [".", "/", ".."])
def test_an_output_without_a_name_is_refused(folder, tiny_checkpoint, out):
    with pytest.raises(InputError, match="expected a name for --out"):
        run_again(folder, out, tiny_checkpoint)


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)",
        "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory",
    ],
)
def test_every_way_of_saying_that_memory_ran_out_is_understood(text):
    from scoring.runner import is_out_of_memory

    assert is_out_of_memory(RuntimeError(text))
    assert not is_out_of_memory(RuntimeError("shape mismatch"))


def test_no_embedding_leaves_the_column_out(folder, tiny_checkpoint, tmp_path):
    from dataclasses import replace

    score(folder, tmp_path / "s.parquet", model=tiny_checkpoint, settings=replace(SMALL, dtype=None))
    assert "embedding" not in open_table(tmp_path / "s.parquet").schema.names


def test_the_batch_shrinks_when_memory_runs_out_and_the_run_says_so(
    folder, whole, tiny_checkpoint, tmp_path, monkeypatch
):
    from scoring.model import ScoringModel

    real = ScoringModel.forward

    def hungry(self, pixels):
        if len(pixels) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return real(self, pixels)

    monkeypatch.setattr(ScoringModel, "forward", hungry)
    result = run_again(folder, tmp_path / "s.parquet", tiny_checkpoint)
    assert any("2 images at a time" in note for note in result.notes)
    ours, theirs = (
        np.array(open_table(p).read(["kappa_visimsiam"]).column(0)) for p in (tmp_path / "s.parquet", whole)
    )
    assert np.allclose(ours, theirs, rtol=1e-4, equal_nan=True)


def test_another_error_in_the_model_is_not_taken_for_a_lack_of_memory(folder, tiny_checkpoint, tmp_path, monkeypatch):
    from scoring.model import ScoringModel

    monkeypatch.setattr(ScoringModel, "forward", lambda self, pixels: (_ for _ in ()).throw(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        run_again(folder, tmp_path / "s.parquet", tiny_checkpoint)


def test_a_heap_of_failures_alone_is_a_table_of_failures(tiny_checkpoint, tmp_path):
    (tmp_path / "bad").mkdir()
    for i in range(3):
        (tmp_path / "bad" / f"{i}.png").write_text("no")
    result = run_again(tmp_path / "bad", tmp_path / "s.parquet", tiny_checkpoint)
    assert result.statuses == {"not_an_image": 3}
    assert open_table(tmp_path / "s.parquet").read(["kappa_visimsiam"]).column(0).null_count == 3


def test_a_heap_of_failures_alone_exits_with_a_line_that_says_so(tiny_checkpoint, tmp_path):
    (tmp_path / "list.txt").write_text("/nowhere/a.jpg\n/nowhere/b.jpg\n")
    command = [sys.executable, "-m", "curate", "score", str(tmp_path / "list.txt"), "-o", str(tmp_path / "s.parquet")]
    done = subprocess.run([*command, "--model", str(tiny_checkpoint), "-q"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "none of 2 images could be scored (2 missing)" in done.stderr
    assert open_table(tmp_path / "s.parquet").n_rows == 2


@pytest.mark.parametrize("option", ["key", "root", "path_column", "image_column"])
def test_an_option_of_tables_is_refused_for_a_folder(folder, tiny_checkpoint, tmp_path, option):
    with pytest.raises(InputError, match=f"--{option.replace('_', '-')} is for tables and lists"):
        run_again(folder, tmp_path / "s.parquet", tiny_checkpoint, **{option: "nothing"})


def test_labels_from_sub_folders_that_are_not_there_are_refused(folder, tiny_checkpoint, tmp_path):
    with pytest.raises(InputError, match="expected sub-folders to take labels from, found 30 images directly"):
        run_again(folder, tmp_path / "s.parquet", tiny_checkpoint, label_from_folder=True)


def test_a_file_that_vanishes_is_a_row(folder, tiny_checkpoint, tmp_path):
    listing = tmp_path / "list.txt"
    listing.write_text(f"{folder / '00.png'}\n{folder / 'gone.png'}\n")
    result = run_again(listing, tmp_path / "s.parquet", tiny_checkpoint)
    assert result.statuses == {"ok": 1, "missing": 1}


def test_a_gpu_that_is_not_there_is_refused_and_nothing_slower_is_taken(folder, tiny_checkpoint, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InputError, match=r"there is no cuda: torch .* sees 0 GPUs"):
        score(folder, tmp_path / "s.parquet", model=tiny_checkpoint, settings=ScoreSettings(device="cuda"))


def test_the_cpu_is_announced_once(folder, tiny_checkpoint, tmp_path):
    said = []
    run_again(folder, tmp_path / "s.parquet", tiny_checkpoint, announce=said.append)
    assert sum("running on the CPU" in text for text in said) == 1


def test_ctrl_c_keeps_what_is_committed_and_says_how_to_go_on(folder, tiny_checkpoint, tmp_path):
    heap = tmp_path / "heap"
    heap.mkdir()
    for i in range(600):
        os.link(folder / f"{i % 28:02}.png", heap / f"{i:04}.png")
    out = tmp_path / "s.parquet"
    command = [sys.executable, "-m", "curate", "score", str(heap), "-o", str(out), "--model", str(tiny_checkpoint)]
    command += ["--batch-size", "4", "--shard-size", "8", "--device", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    journal = tmp_path / ".s.parquet.work" / JOURNAL
    deadline = time.monotonic() + 60
    while not journal.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("the run was faster than the signal")
    assert process.returncode == 130
    assert said.strip().splitlines()[-1].startswith("interrupted")
    assert "Traceback" not in said
    assert journal.read_text().count("\n") >= 1
    finished = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(finished.stdout)["resumed"] >= 8


def test_a_folder_without_permission_and_a_full_disk_are_one_line(folder, tiny_checkpoint, tmp_path):
    with pytest.raises(InputError, match=r"the folder .* for --out does not exist"):
        run_again(folder, tmp_path / "no" / "s.parquet", tiny_checkpoint)
    full = Path("/dev/full")
    if full.exists():
        from curate.engines.journal import Committed

        with WorkFolder(tmp_path / "w") as work:
            work.begin({"a": 1}, {})
            (tmp_path / "w" / JOURNAL).symlink_to(full)
            with pytest.raises(InputError, match="the disk is full"):
                work.commit(Committed(0, 1, 1, "x", {}, 1))


@pytest.mark.parametrize("bad", [{"batch_size": 0}, {"shard_rows": 0}, {"dtype": "int8"}])
def test_impossible_settings_are_refused(bad):
    with pytest.raises(InputError, match="must be"):
        ScoreSettings(**bad)


def test_every_odd_file_of_the_corpus_is_one_row(shared_data, tiny_checkpoint, tmp_path):
    source = shared_data / "malformed.parquet"
    result = score(source, tmp_path / "s.parquet", model=tiny_checkpoint, settings=ScoreSettings(device="cpu"))
    names = pq.read_table(source, columns=["name"]).column(0).to_pylist()
    table = open_table(tmp_path / "s.parquet").read()
    assert result.rows == len(names) == 1002
    assert table.column("name").to_pylist() == names
    assert sum(result.statuses.values()) == 1002
    failed = [row for row in table.select(["status", "error", "kappa_visimsiam"]).to_pylist() if row["status"] != "ok"]
    assert failed
    assert all(row["error"] and row["kappa_visimsiam"] is None for row in failed)
    assert "source_width" in table.column_names
