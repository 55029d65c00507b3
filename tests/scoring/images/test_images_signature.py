"""The signature of an image: its definition, its eight orientations, and what it survives."""

from io import BytesIO
from math import hypot
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pictures import encoded
from PIL import Image, ImageOps
from scipy.fft import dctn

from scoring.images import Preprocessing, decode
from scoring.images.signature import ORIENTATIONS, chroma, reorient, reorient_chroma, same_colours, signature

PHOTOS = sorted((Path(__file__).parents[3] / "examples" / "photos").glob("*.jpg"))
P64 = Preprocessing()
SIGNATURES = arrays(np.int8, (3, 255), elements=st.integers(-127, 127))
ORIENTATION = st.integers(0, 7)
# What Pillow does to an image, named by what annotators call it.
TURNED = {
    "as it is": lambda picture: picture.copy(),
    "mirrored": ImageOps.mirror,
    "rotated 180": lambda picture: picture.rotate(180),
    "upside down": ImageOps.flip,
    "transposed": lambda picture: picture.transpose(Image.Transpose.TRANSPOSE),
    "rotated 90": lambda picture: picture.rotate(-90, expand=True),  # Pillow turns against the clock
    "transversed": lambda picture: picture.transpose(Image.Transpose.TRANSVERSE),
    "rotated 270": lambda picture: picture.rotate(90, expand=True),
}


def naive_signature(picture):
    grey = [[0.299 * r + 0.587 * g + 0.114 * b for r, g, b in row] for row in picture.astype(float)]
    block = dctn(np.array(grey), norm="ortho")[:16, :16]
    whitened = [block[u, v] * hypot(u, v) ** 0.75 for u in range(16) for v in range(16) if (u, v) != (0, 0)]
    top = max(abs(value) for value in whitened)
    return np.array([round(value * 127 / top) for value in whitened])


def noise(seed):
    return np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)


def small(path):
    return np.asarray(Image.open(path).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR))


def cosine(a, b):
    a, b = a.astype(float), b.astype(float)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("seed", range(10))
def test_signature_equals_the_slow_definition_on_noise(seed):
    assert np.abs(signature(noise(seed)) - naive_signature(noise(seed))).max() <= 1


@pytest.mark.parametrize("path", PHOTOS, ids=lambda path: path.stem)
def test_signature_equals_the_slow_definition_on_photographs(path):
    ours, reference = signature(small(path)), naive_signature(small(path))
    assert np.abs(ours - reference).max() <= 1
    assert (ours == reference).mean() > 0.95  # rounding the coefficients to 0.001 may move a number at an edge
    assert ours.dtype == np.int8
    assert ours.shape == (255,)
    assert np.abs(ours.astype(int)).max() == 127


@pytest.mark.parametrize("name", ORIENTATIONS)
@pytest.mark.parametrize("path", PHOTOS[:6], ids=lambda path: path.stem)
def test_reorient_gives_the_signature_of_the_turned_photograph(path, name):
    picture = Image.fromarray(small(path))
    turned = signature(np.asarray(TURNED[name](picture)))
    ours = reorient(signature(np.asarray(picture))[None], ORIENTATIONS[name])[0]
    assert np.abs(ours.astype(int) - turned).max() <= 1
    assert cosine(ours, turned) >= 0.999


@pytest.mark.parametrize("name", ORIENTATIONS)
def test_reorient_gives_the_signature_of_turned_noise(name):
    for seed in range(5):
        turned = signature(np.asarray(TURNED[name](Image.fromarray(noise(seed)))))
        ours = reorient(signature(noise(seed))[None], ORIENTATIONS[name])[0]
        assert np.abs(ours.astype(int) - turned).max() <= 1


@pytest.mark.parametrize("name", ["mirrored", "rotated 90", "transversed"])
def test_reorient_holds_for_the_file_of_a_photograph_that_is_not_square(name):
    picture = Image.open(next(path for path in PHOTOS if path.stem == "chelsea")).convert("RGB")
    assert picture.width != picture.height
    stored = decode(encoded(picture), P64).signature[None]
    turned = decode(encoded(TURNED[name](picture)), P64).signature
    assert cosine(reorient(stored[:, :255], ORIENTATIONS[name])[0], turned[:255]) >= 0.999
    colours = reorient_chroma(stored[:, 255:], ORIENTATIONS[name])[0].astype(int)
    assert np.abs(colours - turned[255:]).max() <= 2


def test_orientations_are_eight_different_ones():
    assert sorted(ORIENTATIONS.values()) == list(range(8))
    turned = {reorient(signature(noise(0))[None], index).tobytes() for index in ORIENTATIONS.values()}
    assert len(turned) == 8


@given(SIGNATURES, ORIENTATION, ORIENTATION)
@settings(max_examples=60, deadline=None)
def test_two_reorientations_are_one_of_the_eight_whatever_the_signature(rows, first, second):
    probe = np.arange(255, dtype=np.uint8).astype(np.int8)[None] // 2 + 1  # separates all eight
    both = reorient(reorient(probe, first), second)
    (third,) = (index for index in range(8) if (reorient(probe, index) == both).all())
    assert (reorient(reorient(rows, first), second) == reorient(rows, third)).all()


@given(SIGNATURES, ORIENTATION)
@settings(max_examples=60, deadline=None)
def test_every_orientation_is_undone_by_one_of_the_eight_and_keeps_the_length(rows, index):
    undo = {5: 7, 7: 5}.get(index, index)
    assert (reorient(reorient(rows, index), undo) == rows).all()
    assert (reorient(rows, 0) == rows).all()
    length = np.square(rows.astype(int)).sum(axis=1)
    assert (np.square(reorient(rows, index).astype(int)).sum(axis=1) == length).all()


@given(SIGNATURES, ORIENTATION)
@settings(max_examples=30, deadline=None)
def test_turning_both_images_leaves_their_product(rows, index):
    turned = reorient(rows, index).astype(int)
    assert (turned @ turned.T == rows.astype(int) @ rows.astype(int).T).all()


def test_four_quarter_turns_and_two_mirrors_are_nothing():
    rows = np.stack([signature(noise(seed)) for seed in range(3)])
    turned = rows
    for _ in range(4):
        turned = reorient(turned, ORIENTATIONS["rotated 90"])
    assert (turned == rows).all()
    assert (reorient(reorient(rows, ORIENTATIONS["mirrored"]), ORIENTATIONS["mirrored"]) == rows).all()


def test_reorient_changes_neither_its_argument_nor_an_empty_one():
    rows = signature(noise(1))[None]
    before = rows.copy()
    reorient(rows, 0)[:] = 0
    assert (rows == before).all()
    assert reorient(rows[:0], 6).shape == (0, 255)


@pytest.mark.parametrize("value", [0, 1, 128, 255])
def test_one_colour_has_no_signature(value):
    assert not signature(np.full((32, 32, 3), value, dtype=np.uint8)).any()


def test_an_image_without_structure_has_no_signature_and_one_with_a_little_has():
    step = np.zeros((32, 32, 3), dtype=np.uint8)
    step[:, 16:] = 1  # standard deviation 0.5
    assert not signature(step).any()
    step[:, 16:] = 3  # 1.5
    assert np.abs(signature(step)).max() == 127


def test_a_pattern_too_fine_to_be_kept_is_no_structure():
    wave = np.cos(np.pi * 31 * (2 * np.arange(32) + 1) / 64)  # the highest frequency of 32 pixels
    fine = np.repeat((128 + 120 * np.outer(wave, wave)).astype(np.uint8)[:, :, None], 3, axis=2)
    assert fine.std() > 50
    assert not signature(fine).any()


def test_brightness_and_contrast_change_little():
    picture = small(PHOTOS[0])
    paler = (picture * 0.5 + 60).astype(np.uint8)
    assert cosine(signature(picture), signature(paler)) > 0.999


def test_signature_is_the_same_every_time_and_for_any_layout_in_memory():
    picture = noise(4)
    assert (signature(picture) == signature(picture.copy())).all()
    assert (signature(picture) == signature(np.asfortranarray(picture))).all()


@pytest.mark.parametrize("path", PHOTOS, ids=lambda path: path.stem)
def test_copies_are_alike_and_other_photographs_are_not(path):
    picture = Image.open(path).convert("RGB")
    original = decode(path.read_bytes(), P64).signature
    half = picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.BICUBIC)
    assert cosine(original, decode(encoded(half, "jpeg", quality=60), P64).signature) > 0.97
    others = [decode(other.read_bytes(), P64).signature for other in PHOTOS if other != path]
    assert max(cosine(original, other) for other in others) < 0.6


def test_wrong_shapes_and_orientations_are_the_callers_bug():
    with pytest.raises(ValueError, match=r"got \(8, 8, 3\)"):
        signature(np.zeros((8, 8, 3), dtype=np.uint8))
    with pytest.raises(ValueError, match=r"got int8 \(255,\)"):
        reorient(signature(noise(0)), 1)
    with pytest.raises(ValueError, match=r"got float64 \(2, 255\)"):
        reorient(np.zeros((2, 255)), 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got 8"):
        reorient(np.zeros((2, 255), np.int8), 8)


def test_chroma_is_the_colour_of_the_cells_as_pillow_has_it():
    for seed in range(5):
        soft = Image.fromarray(noise(seed)).resize((4, 4)).resize((32, 32), Image.Resampling.NEAREST)
        by_pillow = np.asarray(soft.resize((4, 4), Image.Resampling.BOX).convert("YCbCr")).astype(int)[..., 1:] - 128
        assert np.abs(chroma(np.asarray(soft)).reshape(4, 4, 2) - by_pillow).max() <= 1


@pytest.mark.parametrize("name", ORIENTATIONS)
def test_the_chroma_of_a_turned_image_is_the_turned_chroma(name):
    turned = np.asarray(TURNED[name](Image.fromarray(noise(7))))
    assert (reorient_chroma(chroma(noise(7))[None], ORIENTATIONS[name])[0] == chroma(turned)).all()


def test_colours_agree_after_compression_and_with_a_grey_copy_but_not_with_another_colour():
    apple, lime = np.zeros((32, 32, 3), np.uint8), np.zeros((32, 32, 3), np.uint8)
    apple[8:24, 8:24], lime[8:24, 8:24] = (200, 30, 30), (60, 200, 30)
    grey = np.repeat(np.asarray(Image.fromarray(apple).convert("L"))[..., None], 3, 2)
    file = BytesIO()
    Image.fromarray(apple).resize((128, 128)).save(file, "jpeg", quality=30)
    compressed = decode(file.getvalue(), P64).signature[None, 255:]
    colours = [*(chroma(each)[None] for each in (apple, lime, grey)), compressed]
    assert [same_colours(colours[0], other).item() for other in colours] == [True, False, True, True]
    assert not same_colours(colours[2], colours[0]).item()  # a grey image has no copies in colour
