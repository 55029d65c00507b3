"""Shards whose JPEGs a device decodes, tried on the CPU, where the same calls run: nobody ran this on a GPU."""

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from curate.engines.decoded import Decoded, DeviceBatches, decoded
from curate.engines.job import open_all
from curate.engines.score import score
from curate.engines.settings import ScoreSettings, refuse_difference
from curate.engines.shard import Span, start_shard
from curate.manifest.contract import SourceOptions
from curate.manifest.sources import open_manifest
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.images.budget import BODIES
from scoring.images.device_jpegs import DeviceJpegs, sound_jpeg
from scoring.images.signature import hamming
from scoring.marks import decoding_path
from scoring.runner import Runner

CPU = torch.device("cpu")
SETTINGS = ScoreSettings(device="cpu", quality=False, shard_size=100, fit=False, white=65535)
N = 12  # photographs
FACTS = ("key", "width", "height", "n_bytes", "format", "sha256", "status", "error")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Twelve JPEGs, one of them twice, among what no device may decode: another format, broken ones, none at all."""
    folder = tmp_path_factory.mktemp("heap")
    rng = np.random.default_rng(3)
    for i in range(N):
        coarse = rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)
        exif = Image.Exif()
        exif[274] = 1 + i % 8
        picture = Image.fromarray(coarse).resize((120 + i, 90), Image.Resampling.BICUBIC)
        picture.save(folder / f"{i:02}.jpg", quality=90, exif=exif)
    shutil.copy(folder / "03.jpg", folder / "03-again.jpg")
    picture.save(folder / "a.png")
    picture.convert("CMYK").save(folder / "ink.jpg")
    jpeg = (folder / "05.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(jpeg[: len(jpeg) // 2])
    (folder / "cut-with-end.jpg").write_bytes(jpeg[: len(jpeg) // 2] + b"\xff\xd9")
    (folder / "text.jpg").write_text("no image")
    (folder / "empty.jpg").write_bytes(b"")
    return folder


@pytest.fixture(scope="module")
def runner(tiny_checkpoint):
    return Runner(load_model(tiny_checkpoint)[0], CPU)


def table_of(dataset, runner, folder, decoder, *, workers=2, settings=SETTINGS):
    manifest = open_manifest(dataset, SourceOptions())
    span = Span(0, 0, manifest.n_rows)
    preprocessing = runner.model.spec.preprocessing
    places = {"workers": workers, "batch_size": 4, "folder": folder, "decoder": decoder}
    with Decoded(manifest, [span], preprocessing, settings, **places) as images:
        rows = manifest.rows(span.start, span.stop)
        return start_shard(rows, images.take(manifest.n_rows), runner, settings, 4)()


def on(runner, kind=DeviceJpegs):
    return kind(CPU, runner.model.spec.preprocessing)


class Counting(DeviceJpegs):
    """Notes the size of each batch."""

    def decode(self, jpegs):
        self.__dict__.setdefault("sizes", []).append(len(jpegs))
        return super().decode(jpegs)


class Choosy(DeviceJpegs):
    """Fails at every batch that holds a certain image, as a decoder on a GPU does that gives nothing of any then."""

    dislikes = b""

    def decode(self, jpegs):
        if any(jpeg.data == self.dislikes for jpeg in jpegs):
            raise RuntimeError("unsupported coding\nat a place")
        return super().decode(jpegs)


class Full(DeviceJpegs):
    """Has room for two images, or for none."""

    room = 2

    def decode(self, jpegs):
        if len(jpegs) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().decode(jpegs)


def test_every_row_has_the_facts_and_the_status_that_the_cpu_gives_it(dataset, runner, tmp_path):
    counting = on(runner, Counting)
    by_cpu, by_device = (table_of(dataset, runner, tmp_path, decoder) for decoder in (None, counting))
    assert sum(counting.sizes) == N  # each content once, and no other file
    assert by_cpu.schema == by_device.schema
    for name in FACTS:
        assert by_device.column(name).to_pylist() == by_cpu.column(name).to_pylist(), name
    statuses = dict(zip(by_device["key"].to_pylist(), by_device["status"].to_pylist(), strict=True))
    assert statuses["cut.jpg"] == "truncated"
    assert sum(status == "ok" for status in statuses.values()) == N + 4  # Pillow makes something of an early end
    warnings = dict(zip(by_device["key"].to_pylist(), by_device["error"].to_pylist(), strict=True))
    assert "but libjpeg-turbo says" in warnings["cut-with-end.jpg"]


def test_scores_hashes_and_signatures_are_near_those_of_the_cpu(dataset, runner, tmp_path):
    by_cpu, by_device = (table_of(dataset, runner, tmp_path, decoder) for decoder in (None, on(runner)))
    for expected, other in zip(by_cpu.to_pylist(), by_device.to_pylist(), strict=True):
        if expected["status"] != "ok":
            assert other["phash"] is other["signature"] is other["embedding"] is None
            continue
        assert hamming(expected["phash"], other["phash"]) <= 4
        assert np.dot(expected["embedding"], other["embedding"]) > 0.999
        a, b = (np.frombuffer(row["signature"], np.int8).astype(float) for row in (expected, other))
        assert a @ b > 0.999 * np.linalg.norm(a) * np.linalg.norm(b)


def test_a_table_is_the_same_however_batches_fall(dataset, runner, tmp_path):
    once = table_of(dataset, runner, tmp_path, on(runner), workers=1)
    assert table_of(dataset, runner, tmp_path, on(runner), workers=8) == once
    assert table_of(dataset, runner, tmp_path, on(runner, Full)) == once


def test_a_shard_at_which_a_process_died_gives_the_same_table(dataset, runner, tmp_path):
    counting = on(runner, Counting)
    undisturbed = table_of(dataset, runner, tmp_path, on(runner))
    decoding_path(tmp_path, 0).touch()
    assert table_of(dataset, runner, tmp_path, counting) == undisturbed
    assert sum(counting.sizes) == N


def test_what_the_device_cannot_decode_is_decoded_by_the_cpu_and_reported(dataset, runner, tmp_path):
    choosy = on(runner, Choosy)
    choosy.dislikes = (dataset / "07.jpg").read_bytes()
    by_cpu, all_of_it, mixed = (table_of(dataset, runner, tmp_path, decoder) for decoder in (None, on(runner), choosy))
    for cpu, device, row in zip(by_cpu.to_pylist(), all_of_it.to_pylist(), mixed.to_pylist(), strict=True):
        if row["key"] == "07.jpg":
            assert row["error"] == "decoded on the CPU, because the GPU reported: unsupported coding at a place"
            assert row["status"] == "ok"
            assert (row["phash"], row["signature"]) == (cpu["phash"], cpu["signature"])
        else:
            assert (row["phash"], row["signature"], row["error"]) == (
                device["phash"],
                device["signature"],
                device["error"],
            )


def test_too_little_memory_for_a_single_image_ends_the_run_with_one_line(dataset, runner, tmp_path):
    full = on(runner, Full)
    full.room = 0
    with pytest.raises(InputError, match="memory on cpu"):
        table_of(dataset, runner, tmp_path, full)
    jpeg = sound_jpeg((dataset / "00.jpg").read_bytes(), 32, max_pixels=10**6)
    full.room = 2
    assert len(decoded(full, [jpeg] * 5)) == 5


def test_images_that_are_not_consumed_block_nothing(dataset, runner, tmp_path):
    manifest = open_manifest(dataset, SourceOptions())
    places = {"workers": 2, "batch_size": 4, "folder": tmp_path, "decoder": on(runner)}
    with Decoded(manifest, [Span(0, 0, manifest.n_rows)], runner.model.spec.preprocessing, SETTINGS, **places) as some:
        next(some.take(manifest.n_rows))
        device = some._device
    assert isinstance(device, DeviceBatches)
    assert not device._thread.is_alive()


def test_jpegs_that_wait_for_the_device_count_in_the_budget_until_it_is_done(dataset, runner, tmp_path, monkeypatch):
    manifest, decoder, gate = open_manifest(dataset, SourceOptions()), on(runner), threading.Event()
    real = decoder.decode
    monkeypatch.setattr(decoder, "decode", lambda jpegs: gate.wait(20) and real(jpegs))
    resize = runner.model.spec.preprocessing.resize
    files = {path.read_bytes() for path in dataset.iterdir()}
    expected = sum(len(data) for data in files if sound_jpeg(data, resize, max_pixels=SETTINGS.max_pixels))
    assert expected > 10_000
    places = {"workers": 2, "batch_size": 64, "folder": tmp_path, "decoder": decoder}
    with Decoded(manifest, [Span(0, 0, manifest.n_rows)], runner.model.spec.preprocessing, SETTINGS, **places) as some:
        until = time.monotonic() + 10
        while BODIES.held != expected and time.monotonic() < until:
            time.sleep(0.02)
        assert BODIES.held == expected
        gate.set()
        assert sum(image.status == "ok" for image in some.take(manifest.n_rows)) > N
    assert BODIES.held == 0


def test_a_jpeg_that_comes_after_the_end_goes_through_the_cpu_and_leaves_the_budget(dataset, runner):
    data = (dataset / "00.jpg").read_bytes()
    with ThreadPoolExecutor(1) as pool:
        device = DeviceBatches(on(runner), 32, SETTINGS.max_pixels, pool)
        device.close()
        with BODIES.image():
            BODIES.take(len(data))
            image = device.start(data, "", lambda: "of the CPU", supervised=False).result(timeout=5)
    assert image == "of the CPU"
    assert BODIES.held == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_refused_in_one_line(dataset, tiny_checkpoint, tmp_path):
    options = {"decode": "gpu", "quality": False, "model": tiny_checkpoint}
    with pytest.raises(InputError, match=r"decode gpu.* 0 GPUs"):
        score(dataset, tmp_path / "s.parquet", **options)
    with pytest.raises(InputError, match="--engine local"):
        score(dataset, tmp_path / "s.parquet", engine="ray", num_gpus=1, **options)
    assert not list(tmp_path.iterdir())


def test_it_needs_no_quality_and_a_name_that_is_known():
    with pytest.raises(InputError, match="add --no-quality"):
        ScoreSettings(decode="gpu")
    with pytest.raises(InputError, match="unknown --decode 'card'"):
        ScoreSettings(decode="card")


def test_a_run_of_another_decoder_or_another_gpu_is_refused(dataset, tiny_checkpoint, monkeypatch):
    opened = open_all(dataset, SourceOptions(), tiny_checkpoint, SETTINGS)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A card")
    by_cpu, by_gpu = (opened.fingerprint(replace(SETTINGS, decode=name)) for name in ("cpu", "gpu"))
    assert "decoder" not in by_cpu
    with pytest.raises(InputError, match="another decoder: none"):
        refuse_difference("s", by_cpu, by_gpu)
    with pytest.raises(InputError, match="another decoder: gpu"):
        refuse_difference("s", by_gpu, by_cpu)
    with pytest.raises(InputError, match="another gpu: Another card"):
        refuse_difference("s", {**by_gpu, "gpu": "Another card"}, by_gpu)
