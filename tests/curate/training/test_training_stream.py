"""`curate.train` on sources whose images are read while the run goes on."""

import tarfile
from io import BytesIO

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import curate
import trainers.data
from curate.manifest.sources import open_manifest
from curate.training import stream
from curate.training.stream import stream_readers
from scoring.cards import read_header
from scoring.errors import InputError
from trainers import loop

N = 24
SMALL = {"backbone": "test_resnet", "size": 32, "epochs": 2, "batch_size": 8, "device": "cpu", "set": {"latent_dim": 8}}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The same images in a folder, a tar and a table, in the same order; one is broken."""
    root = tmp_path_factory.mktemp("sources")
    (root / "photos").mkdir()
    files = {}
    for number in range(N):
        noise = np.random.default_rng(number).integers(0, 256, (30, 40, 3), dtype=np.uint8)
        with BytesIO() as file:
            Image.fromarray(noise).save(file, "png")
            files[f"{number:02}.png"] = file.getvalue()
    files["07.png"] = files["07.png"][:200]
    with tarfile.open(root / "photos.tar", "w") as shard:
        for name, data in files.items():
            (root / "photos" / name).write_bytes(data)
            member = tarfile.TarInfo(name)
            member.size = len(data)
            shard.addfile(member, BytesIO(data))
    label = [number % 3 for number in range(N)]
    table = pl.DataFrame({"key": list(files), "image": list(files.values()), "label": label})
    table.write_parquet(root / "photos.parquet", row_group_size=5)
    return root


def test_a_folder_a_tar_and_a_table_of_the_same_images_make_the_same_model(sources, tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "HELD_BYTES", 10_000)  # most images of the table wait in a file
    said, made = [], []
    for name in ("photos", "photos.tar", "photos.parquet"):
        made.append(tmp_path / f"{name}.safetensors")
        curate.train("simclr", sources / name, out=made[-1], stream=True, announce=said.append, **SMALL)
        card = read_header(made[-1])["training"]
        assert card["recipe"]["stream"] is True
        assert card["replaced"] == {"truncated": 1}
    assert sum("1 truncated" in line for line in said) == 3
    first = load_file(made[0])
    for path in made[1:]:
        assert all(torch.equal(value, first[name]) for name, value in load_file(path).items())


def test_what_does_not_fit_in_memory_streams_and_so_it_does_where_the_run_goes_on(sources, tmp_path, monkeypatch):
    out = tmp_path / "m.safetensors"
    run = {"out": out, **SMALL, "set": {"latent_dim": 8, "positives": "labels"}}
    said = []

    def killed(progress):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trainers.data, "free_memory", lambda: 1000)
        patch.setattr(loop.time, "monotonic", iter(range(0, 10_000, 100)).__next__)
        with pytest.raises(KeyboardInterrupt):
            curate.train("simclr", sources / "photos.parquet", report=killed, announce=said.append, **run)
    assert any("--stream" in line and "GB" in line for line in said)
    with pytest.raises(InputError, match="stream = True"):
        curate.train("simclr", sources / "photos.parquet", stream=False, **run)
    curate.train("simclr", sources / "photos.parquet", **run)
    assert read_header(out)["training"]["recipe"]["stream"] is True
    with monkeypatch.context() as patch:
        patch.setattr(trainers.data, "free_memory", lambda: 1000)
        with pytest.raises(InputError, match="--stream"):
            curate.train("simclr", sources / "photos.parquet", stream=False, overwrite=True, **run)


def test_a_source_that_goes_away_ends_the_run_and_its_state_stays(sources, tmp_path, monkeypatch):
    folder, out = tmp_path / "photos", tmp_path / "m.safetensors"
    (sources / "photos").rename(folder)
    clock = iter(range(0, 1_000_000, 100))
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(clock))

    def away(progress):
        if folder.exists():
            folder.rename(tmp_path / "away")

    run = {"out": out, "stream": True, **SMALL, "epochs": 9}
    with pytest.raises(InputError, match="source is gone"):
        curate.train("simclr", folder, report=away, **run)
    assert (tmp_path / ".m.safetensors.work" / "state.safetensors").exists()
    (tmp_path / "away").rename(folder)
    said = []
    curate.train("simclr", folder, announce=said.append, **run)
    assert any("resuming" in line for line in said)
    folder.rename(sources / "photos")


def test_readers_come_in_the_order_of_the_windows(sources):
    manifest = open_manifest(str(sources / "photos.parquet"))
    rows = [torch.tensor([23, 1, 0, 12]), torch.tensor([5, 22]), torch.tensor([3])]
    expected = [next(manifest.readers(row, row + 1))() for part in rows for row in part.tolist()]
    assert [read() for read in stream_readers(manifest, rows)] == expected
