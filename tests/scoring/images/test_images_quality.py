"""Image quality, against slow restatements, Pillow, and images whose measures are known."""

import io
import math

import numpy as np
import pytest
from pictures import encoded
from PIL import Image, ImageFilter

from curate.columns import QUALITY_COLUMNS
from scoring.images import Preprocessing, decode
from scoring.images.geometry import Raster, resize
from scoring.images.jpeg import read_jpeg_header
from scoring.images.quality import MEASURES, Quality, border, colourfulness, measure, noise, reduce, sharpness


def scene(width=256, height=192, seed=0):
    """Detail at every scale, as scenes have it."""
    rng = np.random.default_rng(seed)
    total = np.zeros((height, width, 3))
    for octave in range(1, 9):
        layer = Image.fromarray(rng.integers(0, 256, (2**octave, 2**octave, 3), dtype=np.uint8))
        total += np.asarray(layer.resize((width, height), Image.Resampling.BICUBIC), float) / 2 ** (octave / 2)
    total = (total - total.mean()) / total.std() * 45 + 120
    return Image.fromarray(total.clip(0, 255).astype(np.uint8))


def measured(picture) -> Quality:
    pixels = np.array(picture.convert("RGB"))
    height, width = pixels.shape[:2]
    return measure(Raster(pixels, width, height), resize(pixels, 32, 32, "bilinear"))


def linear(picture, factor, offset):
    return Image.fromarray((np.asarray(picture, float) * factor + offset).clip(0, 255).round().astype(np.uint8))


def test_every_measure_is_a_described_column():
    assert [f"quality_{name}" for name in MEASURES] == list(QUALITY_COLUMNS)
    assert all(column.unit and column.higher for column in QUALITY_COLUMNS.values())


@pytest.mark.parametrize(("side", "step"), [(100, 1), (128, 2), (300, 2)])
def test_tone_equals_numpy_and_pillow_on_the_grey(side, step):
    quality, pixels = measured(scene(side, side)), np.array(scene(side, side))
    pixels = pixels if side <= 128 else reduce(Raster(pixels, side, side))
    some = Image.fromarray(pixels[::step, ::step]).convert("L")  # rounds, where ours rounds down
    grey = np.asarray(some) / 255
    assert quality.brightness == pytest.approx(grey.mean(), abs=1 / 255)
    assert quality.contrast == pytest.approx(grey.std(), abs=1 / 255)
    assert quality.shadow == pytest.approx(np.quantile(grey, 0.05, method="inverted_cdf"), abs=1.1 / 255)
    assert quality.highlight == pytest.approx(np.quantile(grey, 0.95, method="inverted_cdf"), abs=1.1 / 255)
    assert quality.entropy == pytest.approx(some.entropy(), abs=0.1)


def test_colourfulness_is_the_papers_third_metric():
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    rg = [float(r) - float(g) for r, g, _ in pixels.reshape(-1, 3)]
    yb = [(float(r) + float(g)) / 2 - float(b) for r, g, b in pixels.reshape(-1, 3)]
    spread, mean = math.hypot(np.std(rg), np.std(yb)), math.hypot(np.mean(rg), np.mean(yb))
    assert colourfulness(pixels) == pytest.approx(spread + 0.3 * mean, rel=1e-4)
    assert colourfulness(np.full((32, 32, 3), 77, np.uint8)) == 0


def test_blur_lowers_sharpness_and_contrast_leaves_it():
    picture = scene()
    blurred = [measured(picture.filter(ImageFilter.GaussianBlur(radius))).sharpness for radius in (0, 1, 2, 5, 8)]
    assert blurred[0] > blurred[1] > blurred[2]
    assert max(blurred[2:]) < blurred[0] / 2
    assert measured(linear(picture, 0.3, 40)).sharpness == pytest.approx(blurred[0], rel=0.1)


def test_sharpness_is_the_root_of_a_ratio_of_laplacian_energies():
    green = np.asarray(scene(128, 128))[..., 1]

    def energy(values, step):
        inner = [
            4 * values[y, x] - values[y - 1, x] - values[y + 1, x] - values[y, x - 1] - values[y, x + 1]
            for y in range(1, len(values) - 1, step)
            for x in range(1, values.shape[1] - 1)
        ]
        return sum(value**2 for value in inner) / len(inner)

    def halved(values):
        return (values[::2, ::2] + values[1::2, ::2] + values[::2, 1::2] + values[1::2, 1::2]) / 4

    rounding, full = 20 / 12, green.astype(float)
    half = halved(full)
    coarse = max(energy(half, 2) - rounding / 4, energy(halved(half), 1) - rounding / 16)
    assert sharpness(green) == pytest.approx(math.sqrt((energy(full, 4) - rounding) / coarse), rel=1e-4)


@pytest.mark.parametrize("sigma", [4, 10, 25])
def test_noise_is_its_standard_deviation(sigma):
    flat = np.full((128, 160, 3), 128.0) + np.random.default_rng(1).normal(0, sigma, (128, 160, 3))
    assert noise(flat.round().astype(np.uint8)) == pytest.approx(sigma, rel=0.15)
    assert noise(np.array(scene().convert("L").convert("RGB"))) == 0  # grain equal in all channels is not separated


@pytest.mark.parametrize(("top", "side"), [(20, 0), (0, 12), (16, 8)])
@pytest.mark.parametrize("colour", [0, 255])
def test_border_is_the_share_of_the_area_in_bars(top, side, colour):
    inner = np.asarray(scene(100, 90).convert("L").point(lambda value: 60 + value // 2))
    framed = np.pad(inner, ((top, top), (side, side)), constant_values=colour)
    assert border(framed) == pytest.approx(1 - inner.size / framed.size)


def test_a_thing_before_a_plain_wall_has_no_border():
    grey = np.full((128, 128), 255, np.uint8)
    y, x = np.mgrid[:128, :128]
    grey[np.hypot(y - 64, x - 64) < 40] = 30
    assert border(grey) == 0
    assert border(grey[16:112:4, 16:112:4]) == 0  # a ball of 20 pixels, whose top covers much of two rows


def test_blocking_shows_in_a_copy_that_is_no_jpeg():
    picture = scene()
    clean = measured(picture).blocking
    copies = [Image.open(io.BytesIO(encoded(picture, "JPEG", quality=quality))) for quality in (5, 10)]
    assert clean < 1.2
    assert measured(copies[0]).blocking > measured(copies[1]).blocking > 1.4


def test_the_jpeg_quality_is_the_one_that_pillow_was_given():
    picture = scene(32, 32)
    for quality in range(1, 101):
        header = read_jpeg_header(encoded(picture, "JPEG", quality=quality))
        assert header is not None
        assert header.quality == pytest.approx(quality, abs=1 if quality > 1 else 0)
    qtables = [[255] * 64, [255] * 64]
    assert read_jpeg_header(encoded(picture, "JPEG", qtables=qtables)).quality == 1


def test_the_measures_of_an_image_do_not_change_at_twice_the_size():
    small = scene(256, 192)
    first, two = measured(small), measured(small.resize((512, 384), Image.Resampling.BICUBIC))
    for name in ("brightness", "shadow", "highlight", "contrast", "colourfulness", "border"):
        assert getattr(two, name) == pytest.approx(getattr(first, name), abs=0.01, rel=0.03), name
    assert two.sharpness == pytest.approx(first.sharpness, rel=0.1)


@pytest.mark.parametrize("resize_to", [64, 128, 224])
def test_the_models_preprocessing_changes_no_measure(resize_to):
    data = encoded(scene(300, 200), "png")
    model = Preprocessing(size=resize_to, resize=resize_to)
    default = Preprocessing(size=128, resize=128)
    assert decode(data, model, with_quality=True).quality == decode(data, default, with_quality=True).quality


@pytest.mark.parametrize("size", [(1, 1), (1, 400), (400, 1), (3, 2), (15, 60), (9000, 4)])
def test_measures_that_need_more_pixels_are_none(size):
    quality = decode(encoded(Image.new("RGB", size, (9, 8, 7))), Preprocessing(), with_quality=True).quality
    assert quality is not None
    assert (quality.sharpness, quality.noise, quality.blocking, quality.jpeg) == (None, None, None, None)
    assert quality.resolution is None
    assert (quality.entropy, quality.contrast, quality.border) == (0, 0, 0)


def test_a_blank_image_is_neither_sharp_nor_blurred():
    quality = measured(Image.new("RGB", (200, 150), "teal"))
    assert quality.sharpness is None
    assert (quality.noise, quality.entropy, quality.blocking) == (0, 0, 1)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "F"])
def test_every_mode_is_measured(mode):
    picture = scene(64, 48)
    if mode == "I;16":
        picture = Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
    elif mode == "F":
        picture = Image.fromarray(np.asarray(picture.convert("L"), np.float32) / 255)
    else:
        picture = picture.convert(mode)
    outcome = decode(encoded(picture, "tiff"), Preprocessing(), with_quality=True)
    assert outcome.status == "ok"
    assert 0.2 < outcome.quality.brightness < 0.8


def test_an_image_is_measured_only_on_request_and_where_it_decodes():
    data = encoded(scene(64, 48), "JPEG")
    assert decode(data, Preprocessing()).quality is None
    assert decode(data[:300], Preprocessing(), with_quality=True).quality is None


def test_a_jpeg_that_was_shrunk_while_decoding_has_no_blocking():
    picture = scene(1024, 768)
    quality = decode(encoded(picture, "JPEG", quality=20), Preprocessing(), with_quality=True).quality
    assert (quality.blocking, quality.resolution, quality.jpeg) == (None, None, 20)
