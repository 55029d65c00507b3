"""Which image of an animation or a document represents it."""

import numpy as np
import pytest
from pictures import encoded
from PIL import Image, ImageDraw

from scoring.images import Preprocessing, decode, decode_rgb
from scoring.images import frames as subject

P32 = Preprocessing(size=32, resize=32)
FORMATS = {"gif": {}, "png": {}, "webp": {"lossless": True}, "tiff": {}, "avif": {"quality": 100}}


def scene(seed, size=(64, 48)):
    random = np.random.default_rng(seed)
    picture = Image.new("RGB", size, tuple(random.integers(0, 90, 3).tolist()))
    draw = ImageDraw.Draw(picture)
    for _ in range(6):
        x, y = random.integers(0, 40, 2).tolist()
        draw.rectangle([x, y, x + 20, y + 12], fill=tuple(random.integers(90, 256, 3).tolist()))
    return picture


def animation(name, *pictures, **options):
    first, *rest = pictures
    return encoded(first, name, save_all=True, append_images=rest, **FORMATS[name], **options)


def near(data, picture, most=24):
    return np.abs(decode_rgb(data).astype(int) - np.asarray(picture.convert("RGB"))).mean() < most


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("flat", ["black", "white", "#777"])
def test_a_flat_first_image_gives_way_to_the_one_of_most_contrast(name, flat):
    dim = Image.eval(scene(1), lambda value: value // 6)
    blank = Image.new("RGB", (64, 48), flat)
    data = animation(name, blank, dim, scene(1), dim)
    outcome = decode(data, P32)
    assert (outcome.status, outcome.n_frames) == ("ok", 4)
    assert "image 3" in outcome.error
    assert near(data, scene(1))


@pytest.mark.parametrize("name", FORMATS)
def test_a_first_image_with_content_represents_the_file(name):
    data = animation(name, Image.eval(scene(2), lambda value: value // 3), scene(3))
    outcome = decode(data, P32)
    assert (outcome.error, outcome.n_frames) == (None, 2)
    assert near(data, Image.eval(scene(2), lambda value: value // 3))


@pytest.mark.parametrize("name", FORMATS)
def test_where_all_images_are_flat_the_first_stays(name):
    data = animation(name, *(Image.new("RGB", (64, 48), colour) for colour in ("#c80a0a", "#0ac80a", "#0a0ac8")))
    assert decode(data, P32).error is None
    assert near(data, Image.new("RGB", (64, 48), "#c80a0a"), 6)


def test_a_transparent_first_image_is_flat():
    clear = Image.new("RGBA", (64, 48), (0, 0, 0, 0))
    data = animation("png", clear, scene(4).convert("RGBA"))
    assert near(data, scene(4), 1)


def test_a_page_of_another_size_is_another_document():
    blank = Image.new("RGB", (64, 48), "white")
    data = animation("tiff", blank, scene(5, (32, 24)), scene(6))
    assert (decode_rgb(data) == 255).all()


def test_a_later_image_that_is_damaged_ends_the_search_and_costs_nothing():
    data = animation("gif", Image.new("RGB", (64, 48)), scene(7), scene(8))
    outcome = decode(data[: len(data) * 2 // 3], P32)
    assert outcome.status == "ok"


def test_the_search_is_bounded_by_images_and_by_pixels(monkeypatch):
    data = animation("tiff", *[Image.new("RGB", (64, 48))] * 3, scene(9))
    assert near(data, scene(9), 1)
    assert subject.n_looked_at(10_000, 10_000) == 1
    assert subject.n_looked_at(1000, 1000) == subject.MOST_PIXELS // 10**6
    assert subject.n_looked_at(10, 10) == subject.MOST_PICTURES


def test_a_fade_longer_than_the_limit_shows_the_last_examined_image():
    steps = [Image.eval(scene(10), lambda value, k=k: value * k // 100) for k in range(100)]
    data = animation("png", *steps)
    assert near(data, steps[subject.MOST_PICTURES - 1], 2)
