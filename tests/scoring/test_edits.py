"""Edits do what their strength says, for any image, and the same each time."""

import io

import numpy as np
import pytest
from PIL import Image

from scoring.edits import EDITS, edited, shrunk
from scoring.errors import InputError

W, H = 120, 80


def smooth(width=W, height=H, seed=0):
    generator = np.random.default_rng(seed)
    small = generator.integers(40, 216, (4, 6, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def result(name, picture, seed=0):
    return Image.open(io.BytesIO(edited(name, picture, seed)))


def pixels(picture):
    return np.asarray(picture.convert("RGB"), np.float64)


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_the_same_each_time_and_leaves_the_image_alone(name):
    picture = smooth()
    before, attributes = pixels(picture), set(vars(picture))
    assert edited(name, picture, 3) == edited(name, picture, 3)
    assert (pixels(picture) == before).all()
    assert set(vars(picture)) == attributes  # other threads save it, too


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (3, 2)])
def test_an_edit_can_be_made_of_any_image(name, size):
    out = result(name, Image.new("RGB", size, (10, 200, 30)))
    out.load()
    assert min(out.size) >= 1


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("crop-90", (108, 72)),
        ("crop-80", (96, 64)),
        ("crop-60", (72, 48)),
        ("half-size", (60, 40)),
        ("quarter-size", (30, 20)),
        ("rotate-90", (80, 120)),
        ("rotate-5", (120, 80)),
        ("border-5", (128, 88)),
        ("border-15", (144, 104)),
        ("letterbox", (120, 104)),
        ("blur", (120, 80)),
    ],
)
def test_an_edit_has_the_size_of_its_strength(name, size):
    assert result(name, smooth()).size == size


@pytest.mark.parametrize("name", ["crop-90", "crop-80", "crop-60"])
def test_a_crop_is_a_window_of_the_image_and_another_seed_takes_another(name):
    picture = smooth()
    windows = set()
    for seed in range(6):
        edited = pixels(result(name, picture, seed))
        height, width = edited.shape[:2]
        full = pixels(picture)
        places = [(y, x) for y in range(H - height + 1) for x in range(W - width + 1)]
        gaps = [np.abs(full[y : y + height, x : x + width] - edited).mean() for y, x in places]
        assert min(gaps) < 2
        windows.add(places[int(np.argmin(gaps))])
    assert len(windows) > 2


@pytest.mark.parametrize(
    ("name", "turned"),
    [
        ("mirror", lambda p: p[:, ::-1]),
        ("rotate-180", lambda p: p[::-1, ::-1]),
        ("rotate-90", lambda p: np.rot90(p)),
        ("png", lambda p: p),
        ("jpeg-50", lambda p: p),
        ("webp", lambda p: p),
    ],
)
def test_turns_and_formats_move_pixels_and_change_them_by_no_more_than_compression(name, turned):
    picture = smooth()
    assert np.abs(pixels(result(name, picture)) - turned(pixels(picture))).mean() < 4


def test_png_loses_nothing_and_formats_match_their_names():
    picture = smooth()
    assert (pixels(result("png", picture)) == pixels(picture)).all()
    assert [result(name, picture).format for name in ("png", "webp", "mirror")] == ["PNG", "WEBP", "JPEG"]


def test_a_lower_quality_takes_fewer_bytes():
    noisy = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    sizes = [len(edited(name, noisy, 0)) for name in ("jpeg-20", "jpeg-50", "png")]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize(("name", "factor"), [("brighter", 1.3), ("darker", 0.7)])
def test_brightness_is_multiplied(name, factor):
    picture = Image.new("RGB", (16, 16), (100, 80, 120))
    assert pixels(result(name, picture))[8, 8] == pytest.approx(factor * np.array([100, 80, 120]), abs=2)


@pytest.mark.parametrize(("name", "factor"), [("more-contrast", 1.4), ("less-contrast", 0.6)])
def test_contrast_is_multiplied_around_the_mean(name, factor):
    values = np.full((16, 32, 3), 100, np.uint8)
    values[:, 16:] = 140
    edited = pixels(result(name, Image.fromarray(values)))
    assert edited[:, 24:].mean() - edited[:, :8].mean() == pytest.approx(40 * factor, abs=3)


def test_grey_has_no_colour_and_hue_keeps_the_luma():
    picture = Image.new("RGB", (16, 16), (160, 90, 100))
    luma = np.array([0.299, 0.587, 0.114])
    grey, hue = (pixels(result(name, picture))[8, 8] for name in ("grey", "hue"))
    assert np.ptp(grey) <= 2
    assert hue @ luma == pytest.approx(pixels(picture)[8, 8] @ luma, abs=3)
    assert np.abs(hue - pixels(picture)[8, 8]).max() > 10


def test_blur_has_the_stated_sigma():
    values = np.zeros((40, 400, 3), np.uint8)
    values[:, 200:] = 255
    edge = np.diff(pixels(result("blur", Image.fromarray(values)))[20, :, 0]) / 255
    at = np.arange(len(edge))
    mean = (edge * at).sum()
    assert np.sqrt((edge * (at - mean) ** 2).sum()) == pytest.approx(4.0, rel=0.1)


def test_noise_has_the_stated_sigma_before_it_is_compressed():
    grey = Image.new("RGB", (128, 128), (128, 128, 128))
    noisy = EDITS["noise"].change(grey, np.random.default_rng(0))
    assert pixels(noisy).std() == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize(("name", "least", "most"), [("text", 0.01, 0.25), ("watermark", 0.03, 0.06)])
def test_an_overlay_changes_a_part_of_the_image(name, least, most):
    grey = Image.new("RGB", (200, 150), (90, 90, 90))
    changed = np.abs(pixels(result(name, grey)) - 90).max(2) > 30
    assert least < changed.mean() < most


def test_a_border_is_white_and_a_letterbox_black():
    assert pixels(result("border-15", smooth()))[3, 60].min() > 240
    assert pixels(result("letterbox", smooth()))[3, 60].max() < 15


def test_an_unknown_edit_is_named_with_what_there_is():
    with pytest.raises(InputError, match="did you mean 'crop-90'"):
        edited("crop-9", smooth(), 0)


def test_an_image_that_is_not_rgb_is_refused():
    with pytest.raises(ValueError, match="RGB"):
        edited("mirror", Image.new("L", (4, 4)), 0)


@pytest.mark.parametrize(
    ("shape", "size", "smaller"),
    [((30, 40, 3), (40, 30), False), ((3000, 3000, 3), (1414, 1414), True), ((1, 16384, 3), (8192, 1), True)],
)
def test_large_images_are_made_smaller_before_they_are_edited(shape, size, smaller):
    picture, was = shrunk(np.zeros(shape, np.uint8))
    assert (picture.size, was) == (size, smaller)
