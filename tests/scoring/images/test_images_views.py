"""Views computed from a signature, against the signature of the image that is really mirrored or turned."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scoring.images.signature import AS_IT_IS, ORIENTATIONS, signature, views

PHOTOS = sorted((Path(__file__).parents[3] / "examples" / "photos").glob("*.jpg"))
TURNS = {
    "mirrored": Image.Transpose.FLIP_LEFT_RIGHT,
    "upside down": Image.Transpose.FLIP_TOP_BOTTOM,
    "rotated 180": Image.Transpose.ROTATE_180,
    "rotated 90": Image.Transpose.ROTATE_270,  # Pillow turns the other way round
    "rotated 270": Image.Transpose.ROTATE_90,
    "transposed": Image.Transpose.TRANSPOSE,
    "transversed": Image.Transpose.TRANSVERSE,
}


def signed(image):
    return signature(np.asarray(image.convert("RGB").resize((32, 32), Image.Resampling.BOX)))


def cosine(a, b):
    a, b = a.astype(float), b.astype(float)
    return a @ b / np.sqrt((a @ a) * (b @ b))


@pytest.fixture(scope="module")
def photos():
    assert len(PHOTOS) >= 8
    return [Image.open(path).convert("RGB") for path in PHOTOS]


def test_the_first_view_is_the_image_as_it_is(photos):
    for options in ({}, {"mirrored": True}, {"rotated": True}, {"mirrored": True, "rotated": True}):
        first = views(**options)[0]
        made = np.stack([signed(photo) for photo in photos])
        assert first.name == AS_IT_IS
        assert np.array_equal(first.apply(made), made)


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, [AS_IT_IS]),
        ({"mirrored": True}, [AS_IT_IS, "mirrored"]),
        ({"rotated": True}, [AS_IT_IS, "rotated 180", "rotated 90", "rotated 270"]),
        ({"mirrored": True, "rotated": True}, list(ORIENTATIONS)),
    ],
)
def test_views_are_those_requested(asked, names):
    assert [view.name for view in views(**asked)] == names


def test_what_undoes_a_view_gives_the_old_signature(photos):
    made = np.stack([signed(photo) for photo in photos])
    for view in views(mirrored=True, rotated=True):
        assert np.array_equal(view.undo(view.apply(made)), made)


@pytest.mark.parametrize("turn", sorted(TURNS))
def test_a_turned_view_is_the_signature_of_the_turned_image(photos, turn):
    (view,) = [view for view in views(mirrored=True, rotated=True) if view.name == turn]
    made = view.apply(np.stack([signed(photo) for photo in photos]))
    for mine, photo in zip(made, photos, strict=True):
        turned = signed(photo.transpose(TURNS[turn]))
        assert cosine(mine, turned) > 0.999
        small = photo.resize((32, 32), Image.Resampling.BOX)
        exact = view.apply(signed(small)[None])[0]
        assert np.abs(exact.astype(int) - signed(small.transpose(TURNS[turn]))).max() <= 1


def test_rows_of_zeros_remain_zero_and_no_rows_remain_none():
    zeros = np.zeros((3, 255), np.int8)
    for view in views(mirrored=True, rotated=True):
        assert not view.apply(zeros).any()
        assert view.apply(zeros[:0]).shape == (0, 255)
        assert view.apply(zeros).dtype == np.int8


def test_views_leave_what_they_are_given_alone(photos):
    made = np.stack([signed(photo) for photo in photos])
    before = made.copy()
    for view in views(mirrored=True, rotated=True):
        view.apply(made)
    assert np.array_equal(made, before)
