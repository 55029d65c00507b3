"""Decoding in other processes gives what decoding here gives, whatever happens to them."""

import io
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import curate
from scoring.images import Preprocessing, decode
from scoring.images import decoders as decoders_module
from scoring.images.budget import BUDGET
from scoring.images.decoders import DECODERS, decode_elsewhere, decoder_for
from scoring.images.raster import DecodeOptions

P32 = Preprocessing(size=32, resize=40)


def encoded(pixels, kind="jpeg", **options):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, **options)
    return stream.getvalue()


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture(autouse=True, scope="module")
def ended():
    yield
    DECODERS.end()


def assert_equal(image, other):
    arrays = ("pixels", "signature", "thumbnail")
    assert replace(image, pixels=None, signature=None, thumbnail=None) == replace(
        other, pixels=None, signature=None, thumbnail=None
    )
    for name in arrays:
        first, second = getattr(image, name), getattr(other, name)
        assert (first is None) == (second is None)
        if first is not None:
            assert first.dtype == second.dtype
            assert (first == second).all()


def test_every_outcome_matches_decoding_here():
    photograph = encoded(noise(60, 90))
    images = [
        photograph,
        photograph[:-400],
        photograph[:30],
        b"",
        b"no image at all",
        encoded(noise(50, 50), "png"),
        encoded(noise(20, 30), "gif"),
        encoded(noise(40, 3000)),
    ]
    for data in images:
        for options, with_quality in ((DecodeOptions(allow_truncated=True), True), (DecodeOptions(5000), False)):
            more = {"with_quality": with_quality}
            assert_equal(decode_elsewhere(data, P32, options, **more), decode(data, P32, options, **more))
    made = decode_elsewhere(photograph, P32)
    assert made.pixels.flags.writeable
    assert made.pixels.flags.c_contiguous
    assert len(DECODERS.pids()) == 1  # one process for all of them


def test_many_threads_get_each_its_own_image():
    images = [encoded(noise(30 + n, 40, seed=n)) for n in range(24)]
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda data: decode_elsewhere(data, P32), images))
    for data, image in zip(images, made, strict=True):
        assert_equal(image, decode(data, P32))
    assert 1 <= len(DECODERS.pids()) <= 2


def test_a_process_that_was_killed_costs_no_image():
    data = encoded(noise(60, 90))
    decode_elsewhere(data, P32)
    pid = DECODERS.pids()[-1]  # the next that is taken
    os.kill(pid, signal.SIGSTOP)  # so that it is there when it is asked, and gone before it answers
    killer = threading.Timer(0.5, os.kill, (pid, signal.SIGKILL))
    killer.start()
    assert_equal(decode_elsewhere(data, P32), decode(data, P32))
    killer.join()
    assert pid not in DECODERS.pids()


def test_large_images_of_all_processes_share_one_budget(monkeypatch):
    held = []
    hold = BUDGET.hold
    monkeypatch.setattr(BUDGET, "hold", lambda n_pixels: held.append(n_pixels) or hold(n_pixels))
    large = encoded(np.zeros((2001, 2001, 3), np.uint8))
    image = decode_elsewhere(large, P32)
    assert held == [2001 * 2001]
    assert_equal(image, decode(large, P32))


def test_a_bug_there_is_a_traceback_here():
    with pytest.raises(RuntimeError, match="unknown"):
        decode_elsewhere(encoded(noise(9, 9)), P32, unknown=1)


def test_few_images_or_threads_or_little_memory_stay_in_this_process(monkeypatch):
    monkeypatch.setattr(decoders_module, "free_memory", lambda: 100 << 30)
    assert decoder_for(16, 100) == (decode, 16)
    assert decoder_for(2, 10**6) == (decode, 2)
    assert decoder_for(16, 10**6) == (decode_elsewhere, 20)
    assert decoder_for(96, 10**6) == (decode_elsewhere, 24)
    monkeypatch.setattr(decoders_module, "free_memory", lambda: 8 << 30)
    assert decoder_for(16, 10**6) == (decode_elsewhere, 10)
    monkeypatch.setattr(decoders_module, "free_memory", lambda: 2 << 30)
    assert decoder_for(16, 10**6) == (decode, 16)


def test_a_table_scored_with_processes_matches_threads(tmp_path, monkeypatch, tiny_checkpoint):
    folder = tmp_path / "images"
    folder.mkdir()
    for n in range(12):
        (folder / f"{n}.jpg").write_bytes(encoded(noise(40, 50, seed=n // 2)))
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff broken")
    tables, seen = [], []
    real = decoders_module.decode_elsewhere
    monkeypatch.setattr(
        decoders_module, "decode_elsewhere", lambda data, *a, **k: seen.append(1) or real(data, *a, **k)
    )
    monkeypatch.setattr(decoders_module, "FEWEST_THREADS", 2)
    for fewest in (10**6, 2):
        monkeypatch.setattr(decoders_module, "FEWEST_IMAGES", fewest)
        curate.score(folder, tmp_path / f"{fewest}.parquet", model=tiny_checkpoint, workers=2)
        tables.append(pq.read_table(tmp_path / f"{fewest}.parquet"))
    assert len(seen) == 7  # thirteen files, two of each photograph
    assert not DECODERS.pids()  # they end with the run
    assert tables[0].equals(tables[1])
