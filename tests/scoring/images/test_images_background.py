"""What is put behind images with alpha, so that what is drawn can be seen."""

import numpy as np
import pytest
from pictures import encoded
from PIL import Image, ImageDraw

from scoring.images import Preprocessing, decode, decode_rgb, hamming
from scoring.images.colour import LEAST_CONTRAST

P64 = Preprocessing(size=64, resize=64)
FORMATS = {
    "png": {},
    "webp": {"lossless": True, "exact": True},
    "tiff": {},
    "avif": {"quality": 100, "subsampling": "4:4:4"},
}


def drawing(seed, colour, size=128):
    """Outlines on transparency, another drawing for every seed."""
    random = np.random.default_rng(seed)
    picture = Image.new("RGBA", (size, size), (0, 0, 0, 0))
    draw = ImageDraw.Draw(picture)
    for _ in range(4):
        x, y, side = (int(value) for value in random.integers(5, 70, 3))
        draw.rectangle([x, y, x + side, y + side // 2], outline=colour, width=4)
    return picture


def on(picture, grey):
    """By hand: a x v + (1 - a) x background."""
    values = np.asarray(picture.convert("RGBA")).astype(float)
    alpha = values[..., 3:] / 255
    return np.rint(values[..., :3] * alpha + grey * (1 - alpha))


@pytest.mark.parametrize("name", FORMATS)
def test_white_drawings_are_on_black_and_others_on_white(name):
    cases = (((255, 255, 255, 255), 0), ((240, 240, 240, 255), 0), ((0, 0, 0, 255), 255), ((255, 255, 0, 255), 255))
    for colour, behind in cases:
        picture = drawing(1, colour)
        got = decode_rgb(encoded(picture, name, **FORMATS[name])).astype(float)
        assert np.abs(got - on(picture, behind)).max() <= (1 if name != "avif" else 12), (colour, behind)


def test_different_white_drawings_have_different_signatures_and_hashes():
    images = [decode(encoded(drawing(seed, (255, 255, 255, 255))), P64) for seed in range(12)]
    assert all(image.signature.any() for image in images)
    assert min(hamming(a.phash, b.phash) for i, a in enumerate(images) for b in images[:i]) > 2


def test_the_rule_is_a_tenth_of_white_root_mean_square_over_the_drawn_pixels():
    grey = 255 * (1 - LEAST_CONTRAST)
    for level, behind in ((int(grey) - 2, 255), (int(grey) + 2, 0)):
        picture = drawing(2, (level, level, level, 255))
        assert decode_rgb(encoded(picture))[0, 0].tolist() == [behind] * 3


def test_faint_pixels_count_where_there_are_no_others():
    assert decode_rgb(encoded(drawing(3, (255, 255, 255, 100))))[0, 0, 0] == 0


@pytest.mark.parametrize(("alpha", "behind"), [(20, 0), (60, 255)])
def test_a_shadow_makes_a_white_drawing_visible_on_white_where_it_is_dark_enough(alpha, behind):
    shadow = Image.new("RGBA", (128, 128), (0, 0, 0, alpha))
    shadow.alpha_composite(drawing(4, (255, 255, 255, 255)))
    values = np.array(shadow)
    values[:2] = 0
    assert decode_rgb(encoded(Image.fromarray(values)))[0, 0, 0] == behind


def test_thin_lines_between_the_sampled_rows_are_seen():
    values = np.zeros((256, 256, 4), np.uint8)
    values[3::8] = 255
    assert decode_rgb(encoded(Image.fromarray(values)))[0, 0, 0] == 0


@pytest.mark.parametrize("mode", ["P", "L", "LA", "1-bit-hidden"])
def test_the_rule_holds_for_every_form_of_alpha(mode):
    mask = np.asarray(drawing(5, (255, 255, 255, 255)))[..., 3] > 0
    if mode == "LA":
        data = encoded(Image.fromarray(np.where(mask[..., None], 255, 0).repeat(2, 2).astype(np.uint8), "LA"))
    elif mode == "P":
        picture = Image.fromarray(mask.astype(np.uint8), "P")
        picture.putpalette([9, 9, 9, 255, 255, 255])
        data = encoded(picture, "gif", transparency=0)
    else:
        data = encoded(Image.fromarray(np.where(mask, 255, 7).astype(np.uint8)), transparency=7)
    got = decode_rgb(data)[..., 0]
    assert (got == np.where(mask, 255, 0)).all()


def test_the_rule_holds_for_sixteen_bit_grey_with_a_transparent_value():
    mask = np.asarray(drawing(6, (255, 255, 255, 255)))[..., 3] > 0
    for level, behind in ((65535, 0), (3000, 255)):
        values = np.where(mask, level, 999).astype(np.uint16)
        got = decode_rgb(encoded(Image.fromarray(values), transparency=999))[..., 0]
        assert set(np.unique(got[~mask])) == {behind}


def test_opaque_and_empty_images_are_as_before():
    white = Image.new("RGBA", (40, 40), (255, 255, 255, 255))
    assert (decode_rgb(encoded(white)) == 255).all()
    assert (decode_rgb(encoded(Image.new("RGBA", (40, 40), (9, 9, 9, 0)))) == 255).all()


def test_bands_of_a_large_image_share_one_background(monkeypatch):
    data = encoded(drawing(7, (255, 255, 255, 255)))
    decoded = decode_rgb(data)
    monkeypatch.setattr("scoring.images.deep._BAND", 1000)
    assert (decode_rgb(data) == decoded).all()
