"""Thumbnails: what they hold, and which pairs of them show the same image."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance, ImageFont

from scoring.images import Preprocessing, decode
from scoring.images.thumbnail import COPY, OTHER, differences, local_change


def encoded(image, kind="JPEG", **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def of(image, kind="JPEG", **options):
    return decode(encoded(image, kind, **options), Preprocessing()).thumbnail


def photograph(seed=0):
    coarse = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    fine = np.random.default_rng(seed + 1).normal(0, 8, (240, 320, 3))
    wide = np.asarray(Image.fromarray(coarse).resize((320, 240), Image.Resampling.BICUBIC)).astype(float) + fine
    return Image.fromarray(wide.clip(0, 255).astype(np.uint8))


def plate(text, seed=0):
    image = photograph(seed)
    pen = ImageDraw.Draw(image)
    pen.rectangle((100, 160, 220, 190), fill="white")
    pen.text((106, 162), text, fill="black", font=ImageFont.load_default(24))
    return image


def test_a_thumbnail_is_the_grey_of_the_reduced_image():
    grey = np.linspace(0, 255, 64).astype(np.uint8)
    image = Image.fromarray(np.repeat(np.tile(grey, (64, 1))[..., None], 3, 2))
    assert (of(image, "PNG").reshape(64, 64) == grey).all()


@pytest.mark.parametrize(
    "edit",
    [
        lambda image: of(image, quality=60),
        lambda image: of(image.resize((160, 120), Image.Resampling.LANCZOS)),
        lambda image: of(ImageEnhance.Brightness(image).enhance(0.92)),
        lambda image: of(ImageEnhance.Contrast(image).enhance(1.1)),
        lambda image: of(image, "WEBP", quality=80),
    ],
)
def test_edits_change_no_part_of_an_image(edit):
    image = plate("AB 1234")
    assert local_change(of(image, "PNG")[None], edit(image)[None])[0] <= COPY


@pytest.mark.parametrize("text", ["AB 1834", "KX 7650"])
def test_another_number_on_a_plate_is_a_local_change_in_any_order(text):
    first, second = (of(plate(each), quality=85)[None] for each in ("AB 1234", text))
    assert local_change(first, first)[0] == 0
    assert min(local_change(first, second)[0], local_change(second, first)[0]) > COPY
    assert local_change(first, of(photograph(5))[None])[0] > OTHER


def test_pairs_of_one_image_are_compared_as_each_alone():
    base = of(plate("AB 1234"), "PNG")
    others = [of(plate(text), quality=quality) for text in ("AB 1234", "AB 1834", "KX 7650") for quality in (85, 50)]
    others += [of(plate("AB 1234").crop((4, 3, 318, 236))), of(photograph(5))]
    others = np.stack(others)
    images = np.stack([others[0], base])
    at = np.repeat([0, 1], len(others))
    together = local_change(images, np.concatenate([others, others]), at)
    alone = [local_change(first[None], second[None])[0] for first in images for second in others]
    np.testing.assert_allclose(together, alone, atol=0.002)
    strict = local_change(images, np.concatenate([others, others]), at, most=0.75)
    assert ((strict <= 0.75) == (together <= 0.75)).all()


def test_copies_differ_alike_from_another_image_of_the_template():
    base, one, copy, other = (
        of(plate(text), quality=quality)[None]
        for text, quality in (("AB 1234", 90), ("KX 7650", 90), ("KX 7650", 60), ("ZT 0388", 90))
    )
    vectors = [differences(base, each)[0].astype(float) for each in (one, copy, other)]
    cosine = [vectors[0] @ each / np.linalg.norm(vectors[0]) / np.linalg.norm(each) for each in vectors[1:]]
    assert cosine[0] > 0.9 > 0.7 > cosine[1]
