"""The scoring engine on real files: what it writes, row by row."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from runs import SMALL, run_again
from typer.testing import CliRunner

from curate.cli import app
from curate.engines.journal import JOURNAL, WorkFolder
from curate.engines.score import score
from curate.engines.settings import ScoreSettings
from curate.tables.table import embedding_matrix, open_table
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.images import decode, decoders
from scoring.images.quality import MEASURES


def test_every_file_is_a_row_and_failures_say_why(folder, full_table):
    table = open_table(full_table).read()
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


def test_without_quality_the_table_has_the_other_columns_alone(folder, full_table, tiny_checkpoint, tmp_path):
    settings = SMALL | {"quality": False}
    score(folder, tmp_path / "s.parquet", model=tiny_checkpoint, **settings)
    names, plain = open_table(full_table).schema.names, open_table(tmp_path / "s.parquet").schema.names
    assert plain == [name for name in names if not name.startswith("quality_")]
    assert len(names) - len(plain) == len(MEASURES)


@torch.inference_mode()
def test_scores_match_the_model_on_the_decoded_image(folder, full_table, tiny_checkpoint):
    model, card = load_model(tiny_checkpoint)
    table = open_table(full_table)
    rows = [row for row in table.read().to_pylist() if row["status"] == "ok"]
    for row in rows[::5]:
        image = decode((folder / row["key"]).read_bytes(), model.spec.preprocessing, with_quality=True)
        outputs = model(torch.from_numpy(image.pixels).permute(2, 0, 1)[None])
        assert row["kappa_visimsiam"] == pytest.approx(outputs.columns["kappa_visimsiam"].item(), rel=1e-3)
        assert row["unc_visimsiam"] == pytest.approx(1 / row["kappa_visimsiam"], rel=1e-6)
        assert np.abs(np.array(row["embedding"], np.float32) - outputs.embedding[0].numpy()).max() < 2e-3
        assert (row["width"], row["height"]) == (image.width, image.height)
        assert row["sha256"] == image.sha256
        assert row["phash"] == image.phash
        for name in MEASURES:
            value = getattr(image.quality, name)
            assert row[f"quality_{name}"] == (None if value is None else pytest.approx(value, rel=1e-6))
    assert len({row["kappa_visimsiam"] for row in rows}) > 20
    assert table.metadata["model"]["digest"] == card["digest"]
    norms = np.linalg.norm(embedding_matrix(table.read(["embedding"]).column(0)).astype(np.float64), axis=1)
    assert np.nanmax(np.abs(norms - 1)) < 1e-3


def test_the_same_bytes_are_decoded_once_a_shard_and_score_alike(folder, tiny_checkpoint, tmp_path, monkeypatch):
    seen = []
    real = decoders.decode
    monkeypatch.setattr(decoders, "decode", lambda data, *a, **k: seen.append(1) or real(data, *a, **k))
    run_again(folder, tmp_path / "s.parquet", tiny_checkpoint, workers=2)
    assert len(seen) == 29  # thirty files, of which 03 and 05 share shard and bytes
    rows = {row["key"]: row for row in open_table(tmp_path / "s.parquet").read().to_pylist()}
    assert {**rows["03.png"], "key": "", "uri": "", "mtime": 0} == {**rows["05.png"], "key": "", "uri": "", "mtime": 0}


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_changes_no_byte(folder, full_table, tiny_checkpoint, tmp_path, workers):
    run_again(folder, tmp_path / "s.parquet", tiny_checkpoint, workers=workers)
    assert (tmp_path / "s.parquet").read_bytes() == full_table.read_bytes()


@pytest.mark.parametrize("out", [".", "/", ".."])
def test_an_output_without_a_name_is_refused(folder, tiny_checkpoint, out):
    with pytest.raises(InputError, match="name for --out"):
        run_again(folder, out, tiny_checkpoint)


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)",
        "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory",
    ],
)
def test_every_message_about_lack_of_memory_is_recognised(text):
    from scoring.runner import is_out_of_memory

    assert is_out_of_memory(RuntimeError(text))
    assert not is_out_of_memory(RuntimeError("shape mismatch"))


def test_no_embedding_leaves_the_column_out(folder, tiny_checkpoint, tmp_path):

    score(folder, tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL, embedding=False)
    assert "embedding" not in open_table(tmp_path / "s.parquet").schema.names


def test_the_batch_shrinks_when_memory_runs_out_and_the_run_reports_it(
    folder, full_table, tiny_checkpoint, tmp_path, monkeypatch
):
    from scoring.model import ScoringModel

    real = ScoringModel.forward

    def hungry(self, pixels, scorers):
        if len(pixels) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return real(self, pixels, scorers)

    monkeypatch.setattr(ScoringModel, "forward", hungry)
    result = run_again(folder, tmp_path / "s.parquet", tiny_checkpoint)
    assert any("2 images at a time" in note for note in result.notes)
    by_default, in_small_batches = (
        np.array(open_table(p).read(["kappa_visimsiam"]).column(0)) for p in (tmp_path / "s.parquet", full_table)
    )
    assert np.allclose(by_default, in_small_batches, rtol=1e-4, equal_nan=True)


def test_another_error_in_the_model_is_not_taken_for_a_lack_of_memory(folder, tiny_checkpoint, tmp_path, monkeypatch):
    from scoring.model import ScoringModel

    monkeypatch.setattr(
        ScoringModel, "forward", lambda self, pixels, scorers: (_ for _ in ()).throw(RuntimeError("a bug"))
    )
    with pytest.raises(RuntimeError, match="a bug"):
        run_again(folder, tmp_path / "s.parquet", tiny_checkpoint)


def test_a_dataset_of_failures_alone_is_a_table_of_failures(tiny_checkpoint, tmp_path):
    (tmp_path / "bad").mkdir()
    for i in range(3):
        (tmp_path / "bad" / f"{i}.png").write_text("no")
    result = run_again(tmp_path / "bad", tmp_path / "s.parquet", tiny_checkpoint)
    assert result.statuses == {"not_an_image": 3}
    assert open_table(tmp_path / "s.parquet").read(["kappa_visimsiam"]).column(0).null_count == 3


def test_a_dataset_of_failures_alone_exits_with_one_line(tiny_checkpoint, tmp_path):
    (tmp_path / "list.txt").write_text("/nowhere/a.jpg\n/nowhere/b.jpg\n")
    command = ["score", tmp_path / "list.txt", "-o", tmp_path / "s.parquet", "--model", tiny_checkpoint, "-q"]
    done = CliRunner().invoke(app, [str(word) for word in command])
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert "of 2 images" in done.stderr
    assert open_table(tmp_path / "s.parquet").n_rows == 2


@pytest.mark.parametrize("option", ["key", "root", "path_column", "image_column"])
def test_an_option_of_tables_is_refused_for_a_folder(folder, tiny_checkpoint, tmp_path, option):
    with pytest.raises(InputError, match=f"--{option.replace('_', '-')} is for"):
        run_again(folder, tmp_path / "s.parquet", tiny_checkpoint, **{option: "nothing"})


def test_labels_from_sub_folders_that_are_not_there_are_refused(folder, tiny_checkpoint, tmp_path):
    with pytest.raises(InputError, match=r"sub-folders.* 30 images"):
        run_again(folder, tmp_path / "s.parquet", tiny_checkpoint, label_from_folder=True)


def test_a_file_that_vanishes_is_a_row(folder, tiny_checkpoint, tmp_path):
    listing = tmp_path / "list.txt"
    listing.write_text(f"{folder / '00.png'}\n{folder / 'gone.png'}\n")
    result = run_again(listing, tmp_path / "s.parquet", tiny_checkpoint)
    assert result.statuses == {"ok": 1, "missing": 1}


def test_a_gpu_that_is_not_there_is_refused_and_nothing_slower_is_taken(folder, tiny_checkpoint, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InputError, match=r"no cuda.*0 GPUs"):
        score(folder, tmp_path / "s.parquet", model=tiny_checkpoint, device="cuda")


def test_the_cpu_is_announced_once(folder, tiny_checkpoint, tmp_path):
    said = []
    run_again(folder, tmp_path / "s.parquet", tiny_checkpoint, announce=said.append)
    assert sum("running on the CPU" in text for text in said) == 1


def test_a_folder_without_permission_and_a_full_disk_are_one_line(folder, tiny_checkpoint, tmp_path):
    (tmp_path / "no").touch()
    with pytest.raises(InputError, match="not a folder"):
        run_again(folder, tmp_path / "no" / "s.parquet", tiny_checkpoint)
    full = Path("/dev/full")
    if full.exists():
        from curate.engines.journal import Part

        with WorkFolder(tmp_path / "w", tmp_path / "out") as work:
            work.begin({"a": 1}, {})
            (tmp_path / "w" / JOURNAL).symlink_to(full)
            with pytest.raises(InputError, match="the disk is full"):
                work.commit(Part(0, 1, 1, "x", {}, 1))


@pytest.mark.parametrize("bad", [{"batch_size": 0}, {"shard_size": 0}, {"dtype": "int8"}])
def test_impossible_settings_are_refused(bad):
    with pytest.raises(InputError, match=r"must be|unknown --dtype .int8"):
        ScoreSettings(**bad)


def test_every_odd_file_of_the_corpus_is_one_row(shared_data, tiny_checkpoint, tmp_path):
    source = shared_data / "malformed.parquet"
    result = score(source, tmp_path / "s.parquet", model=tiny_checkpoint, device="cpu", fit=False)
    names = pq.read_table(source, columns=["name"]).column(0).to_pylist()
    table = open_table(tmp_path / "s.parquet").read()
    assert result.rows == len(names) == 1002
    assert table.column("name").to_pylist() == names
    assert sum(result.statuses.values()) == 1002
    failed = [row for row in table.select(["status", "error", "kappa_visimsiam"]).to_pylist() if row["status"] != "ok"]
    assert failed
    assert all(row["error"] and row["kappa_visimsiam"] is None for row in failed)
    assert "source_width" in table.column_names
