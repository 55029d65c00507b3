"""The perceptual hash: its definition, and what it survives."""

import io
from pathlib import Path

import numpy as np
import pytest
from pictures import encoded
from PIL import Image, ImageOps
from scipy.fft import dct

from scoring.images import Preprocessing, decode, hamming, perceptual_hash

PHOTOS = Path(__file__).parents[4] / "shared" / "data" / "caltech_subset.parquet"
P64 = Preprocessing()


def naive_hash(picture):
    grey = [[0.299 * r + 0.587 * g + 0.114 * b for r, g, b in row] for row in picture.astype(float)]
    low = dct(dct(np.array(grey), axis=0), axis=1)[:8, :8]
    low = [round(value, 3) for value in low.ravel()]
    middle = sorted(low)[31:33]
    bits = "".join("1" if value > sum(middle) / 2 else "0" for value in low)
    return int(bits, 2)


def phash(picture, name="png", **options):
    return decode(encoded(picture, name, **options), P64).phash


def scene(seed, width=300, height=240):
    corners = np.random.default_rng(seed).integers(0, 256, (9, 11, 3), dtype=np.uint8)
    return Image.fromarray(corners).resize((width, height), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("seed", range(20))
def test_hash_equals_the_slow_definition(seed):
    picture = np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    assert perceptual_hash(picture) == naive_hash(picture)


def test_the_hash_of_an_image_is_computed_from_32_pixels():
    picture = scene(3, 500, 120)
    small = np.asarray(picture.resize((32, 32), Image.Resampling.BILINEAR))
    assert hamming(phash(picture), naive_hash(small)) <= 1  # the two resizes differ by 1 in a few pixels


def test_one_colour_hashes_to_the_constant_part_alone():
    for value in (1, 77, 255):
        assert perceptual_hash(np.full((32, 32, 3), value, dtype=np.uint8)) == 1 << 63


def test_wrong_shape_is_the_callers_bug():
    with pytest.raises(ValueError, match=r"got \(8, 8, 3\)"):
        perceptual_hash(np.zeros((8, 8, 3), dtype=np.uint8))


@pytest.mark.parametrize("seed", range(6))
def test_hash_survives_recompression_and_resizing_and_separates_images(seed):
    picture = scene(seed)
    original = phash(picture)
    assert hamming(original, phash(picture, "jpeg", quality=40)) <= 4
    assert hamming(original, phash(picture.resize((1000, 800), Image.Resampling.BICUBIC), "jpeg")) <= 4
    assert hamming(original, phash(picture.resize((75, 60), Image.Resampling.BICUBIC))) <= 4
    assert hamming(original, phash(ImageOps.mirror(picture))) >= 16
    assert hamming(original, phash(scene(seed + 100))) >= 12


def test_hash_is_taken_after_orientation():
    picture = scene(1)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = phash(picture.transpose(Image.Transpose.ROTATE_270))
    assert hamming(phash(picture, exif=exif.tobytes()), turned) <= 1
    assert hamming(phash(picture), turned) >= 12


def test_hash_sees_what_the_crop_leaves_out():
    wide = Image.new("RGB", (400, 100), (128, 128, 128))
    other = wide.copy()
    other.paste((250, 250, 250), (0, 0, 100, 100))
    assert (decode(encoded(wide, "png"), P64).pixels == decode(encoded(other, "png"), P64).pixels).all()
    assert phash(wide) != phash(other)


@pytest.mark.skipif(not PHOTOS.is_file(), reason=f"{PHOTOS.name} is not next to the checkout")
def test_hashes_of_real_photographs_are_near_for_copies_and_far_for_others():
    parquet = pytest.importorskip("pyarrow.parquet")
    files = parquet.read_table(PHOTOS, columns=["image"]).slice(0, 2663)["image"].to_pylist()[::60]
    originals, copies = [], []
    for data in files:
        picture = Image.open(io.BytesIO(data)).convert("RGB")
        originals.append(decode(data, P64).phash)
        copies.append(phash(picture.resize((picture.width * 2 // 3, picture.height * 2 // 3)), "jpeg", quality=60))
    same = [hamming(a, b) for a, b in zip(originals, copies, strict=True)]
    others = [hamming(a, b) for i, a in enumerate(originals) for b in originals[i + 1 :]]
    assert max(same) <= 8
    assert np.median(same) <= 2
    assert np.median(others) >= 24
