"""Views computed from a signature, against the signature of the picture that is really mirrored, turned or cropped."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scoring.images.signature import ORIENTATIONS, signature
from scoring.images.views import AS_IT_IS, FRAMES, reframe, views

PHOTOS = sorted((Path(__file__).parents[2] / "examples" / "photos").glob("*.jpg"))
LEAST_MEDIAN = {0.95: 0.96, 0.9: 0.925, 0.85: 0.9, 0.8: 0.85}  # of the photographs, by the side of the crop
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


def cropped(image, frame):
    width, height = image.size
    left, top = frame.left * width, frame.top * height
    box = left, top, left + frame.side * width, top + frame.side * height
    return image.resize((32, 32), Image.Resampling.BOX, box=box)


@pytest.fixture(scope="module")
def photos():
    assert len(PHOTOS) >= 8
    return [Image.open(path).convert("RGB") for path in PHOTOS]


def test_the_first_view_is_the_picture_as_it_is(photos):
    for asked in ({}, {"mirrored": True}, {"cropped": True}, {"mirrored": True, "rotated": True, "cropped": True}):
        first = views(**asked)[0]
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
def test_views_are_those_asked_for(asked, names):
    assert [view.name for view in views(**asked)] == names
    assert all(view.both_ways for view in views(**asked))


def test_crops_are_twelve_more_of_each_and_found_from_the_whole_picture_alone():
    looks = views(mirrored=True, cropped=True)
    assert len(looks) == 2 * len(FRAMES) == 26
    assert len({view.name for view in looks}) == 26
    assert [view.both_ways for view in looks] == [True] * 2 + [False] * 24
    assert "mirrored, cropped to 85% in the centre" in {view.name for view in looks}
    for frame in FRAMES:
        assert min(frame.top, frame.left) >= 0
        assert max(frame.top, frame.left) + frame.side <= 1 + 1e-9


@pytest.mark.parametrize("turn", sorted(TURNS))
def test_a_turned_view_is_the_signature_of_the_turned_picture(photos, turn):
    (view,) = [view for view in views(mirrored=True, rotated=True) if view.name == turn]
    made = view.apply(np.stack([signed(photo) for photo in photos]))
    for mine, photo in zip(made, photos, strict=True):
        turned = signed(photo.transpose(TURNS[turn]))
        assert cosine(mine, turned) > 0.999
        small = photo.resize((32, 32), Image.Resampling.BOX)
        exact = view.apply(signed(small)[None])[0]
        assert np.abs(exact.astype(int) - signed(small.transpose(TURNS[turn]))).max() <= 1


@pytest.mark.parametrize("frame", FRAMES[1:], ids=lambda frame: frame.name)
def test_a_cropped_view_is_near_the_signature_of_the_cropped_picture(photos, frame):
    made = reframe(np.stack([signed(photo) for photo in photos]), frame)
    found = [cosine(mine, signed(cropped(photo, frame))) for mine, photo in zip(made, photos, strict=True)]
    before = [cosine(signed(photo), signed(cropped(photo, frame))) for photo in photos]
    assert np.median(found) > LEAST_MEDIAN[frame.side]
    assert (np.array(found) > np.array(before)).all()


def test_a_mirrored_crop_is_seen(photos):
    looks = {view.name: view for view in views(mirrored=True, cropped=True)}
    frame = FRAMES[2]
    made = looks[f"mirrored, {frame.name}"].apply(np.stack([signed(photo) for photo in photos]))
    real = [signed(cropped(photo.transpose(TURNS["mirrored"]), frame)) for photo in photos]
    assert np.median([cosine(a, b) for a, b in zip(made, real, strict=True)]) > LEAST_MEDIAN[frame.side]


def test_the_whole_frame_changes_nothing(photos):
    made = np.stack([signed(photo) for photo in photos])
    again = reframe(made, FRAMES[0])
    assert np.abs(again.astype(int) - made).max() <= 1


def test_a_low_wave_cropped_is_the_wave_that_a_sheet_of_paper_says():
    ramp = np.rint(np.linspace(0, 255, 32)).astype(np.uint8)
    picture = np.repeat(np.tile(ramp, (32, 1))[..., None], 3, axis=2)
    half = reframe(signature(picture)[None], FRAMES[4])[0]
    assert cosine(half, signature(picture)) > 0.999  # a part of a ramp is a ramp


def test_rows_of_zeros_stay_zero_and_none_is_none():
    zeros = np.zeros((3, 255), np.int8)
    for view in views(mirrored=True, rotated=True, cropped=True):
        assert not view.apply(zeros).any()
        assert view.apply(zeros[:0]).shape == (0, 255)
        assert view.apply(zeros).dtype == np.int8


def test_rows_do_not_depend_on_one_another(photos, monkeypatch):
    made = np.stack([signed(photo) for photo in photos])
    for frame in FRAMES[1:3]:
        together = reframe(made, frame)
        assert np.array_equal(together, np.concatenate([reframe(row[None], frame) for row in made]))
        monkeypatch.setattr("scoring.images.views.BLOCK", 3)
        assert np.array_equal(together, reframe(made, frame))
        monkeypatch.undo()


def test_views_leave_what_they_are_given_alone(photos):
    made = np.stack([signed(photo) for photo in photos])
    before = made.copy()
    for view in views(mirrored=True, rotated=True, cropped=True):
        view.apply(made)
    assert np.array_equal(made, before)
