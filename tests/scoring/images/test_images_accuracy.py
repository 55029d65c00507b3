"""The fast road for JPEG against Pillow's full decode, resize and crop."""

import io
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scoring.images import Preprocessing, decode
from scoring.images.geometry import dct_scale

PHOTOS = Path(__file__).parents[4] / "shared" / "data" / "caltech_subset.parquet"


def psnr(a, b):
    error = np.mean((a.astype(float) - b) ** 2)
    return np.inf if error == 0 else 10 * np.log10(255**2 / error)


def by_pillow(data, preprocessing):
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    short = min(picture.size)
    size = tuple(int(side * preprocessing.resize / short) for side in picture.size)
    picture = picture.resize(size, getattr(Image.Resampling, preprocessing.interpolation.upper()))
    left, top = (round((side - preprocessing.size) / 2) for side in picture.size)
    return np.asarray(picture.crop((left, top, left + preprocessing.size, top + preprocessing.size)))


@cache
def photograph(width, height, *, seed=0, quality=90, subsampling=2):
    """Edges at every scale, in the spectrum of natural images, with a sensor's noise."""
    rng = np.random.default_rng(seed)
    total = np.zeros((height, width, 3), dtype=np.float32)
    for octave in range(1, 9):
        side = 2**octave
        layer = Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8))
        total += np.asarray(layer.resize((width, height), Image.Resampling.BICUBIC), dtype=np.float32) / 2**octave
    total[height // 3 : height // 2, width // 4 : width // 2] = (240, 30, 60)
    total += rng.normal(0, 4, total.shape).astype(np.float32)
    stream = io.BytesIO()
    options = {"quality": quality, "subsampling": subsampling}
    Image.fromarray(total.clip(0, 255).astype(np.uint8)).save(stream, "JPEG", **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("width", "height", "target", "scale"),
    [(1024, 768, 64, 2), (2048, 1536, 64, 4), (2048, 1536, 32, 8), (2048, 1536, 96, 4), (1280, 2000, 64, 4)]
    + [pytest.param(4000, 3000, *each, marks=pytest.mark.slow) for each in ((64, 8), (224, 4))],
)
@pytest.mark.parametrize("subsampling", [0, 2])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_shrinking_while_decoding_agrees_to_fifty_decibels(width, height, target, scale, subsampling, interpolation):
    assert dct_scale(width, height, target) == scale
    data = photograph(width, height, subsampling=subsampling)
    preprocessing = Preprocessing(size=target, resize=target, interpolation=interpolation)
    assert psnr(decode(data, preprocessing).pixels, by_pillow(data, preprocessing)) >= 50


@pytest.mark.parametrize(("width", "height"), [(1001, 751), (500, 375), (1023, 767), (64, 64), (31, 17)])
@pytest.mark.parametrize("target", [32, 64])
def test_sizes_that_cannot_be_shrunk_exactly_agree_to_within_one(width, height, target):
    data = photograph(width, height, seed=1)
    preprocessing = Preprocessing(size=target, resize=target)
    difference = decode(data, preprocessing).pixels.astype(int) - by_pillow(data, preprocessing)
    assert np.abs(difference).max() <= 1


@pytest.mark.skipif(not PHOTOS.is_file(), reason=f"{PHOTOS.name} is not next to the checkout")
@pytest.mark.parametrize("target", [32, 64, 224])
def test_real_photographs_agree_to_fifty_decibels_each(target):
    parquet = pytest.importorskip("pyarrow.parquet")
    files = parquet.read_table(PHOTOS, columns=["image"])["image"].to_pylist()[:: 50 if target > 64 else 20]
    preprocessing = Preprocessing(size=target, resize=target)
    worst = min(psnr(decode(data, preprocessing).pixels, by_pillow(data, preprocessing)) for data in files)
    assert worst >= 50


@pytest.mark.skipif(not PHOTOS.is_file(), reason=f"{PHOTOS.name} is not next to the checkout")
@pytest.mark.parametrize("times", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_enlarged_real_photographs_agree_to_fifty_decibels_each(times):
    parquet = pytest.importorskip("pyarrow.parquet")
    files = parquet.read_table(PHOTOS, columns=["image"])["image"].to_pylist()[::190]
    for target in (32, 64):
        preprocessing = Preprocessing(size=target, resize=target)
        for number, data in enumerate(files):
            picture = Image.open(io.BytesIO(data)).convert("RGB")
            width, height = (side * times // 8 * 8 for side in picture.size)
            pixels = np.asarray(picture.resize((width, height), Image.Resampling.LANCZOS)).astype(float)
            pixels += np.random.default_rng(number).normal(0, 3, pixels.shape)
            stream = io.BytesIO()
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(stream, "JPEG", quality=92)
            large = stream.getvalue()
            agreement = psnr(decode(large, preprocessing).pixels, by_pillow(large, preprocessing))
            assert agreement >= 50, (number, width, height, target, dct_scale(width, height, target))
