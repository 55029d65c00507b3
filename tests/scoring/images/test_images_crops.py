"""Parts of images, separated from signatures alone, against images that are really cropped, bordered, or others."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from scoring.images.cropfit import LEAST, as_they_are, refine
from scoring.images.crops import FRAMES, HELD, LIKELY, LOW, axis_maps, coarse_fits, framed
from scoring.images.signature import KEPT, STEPS, WEIGHTS, signature

PHOTOS = sorted((Path(__file__).parents[3] / "examples" / "photos").glob("*.jpg"))
SAME = 0.985


def signed(image):
    return signature(np.asarray(image.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)))


def box(image, edges):
    """The part of an image between edges: top, bottom, left, right, in shares of its sides."""
    top, bottom, left, right = edges
    width, height = image.size
    return image.crop((round(left * width), round(top * height), round(right * width), round(bottom * height)))


@pytest.fixture(scope="module")
def photos():
    assert len(PHOTOS) >= 8
    return [Image.open(path).convert("RGB") for path in PHOTOS]


@pytest.fixture(scope="module")
def wholes(photos):
    return np.stack([signed(photo) for photo in photos])


def slow_part(vector, edges, kept):
    """The low frequencies of a part of one signature's image, from the series itself, point by point."""
    waves = np.concatenate([[0], vector / WEIGHTS]).reshape(KEPT, KEPT)
    points = 32
    within = (np.arange(points) + 0.5) / points
    scale = np.where(np.arange(KEPT) > 0, np.sqrt(2), 1)
    y, x = edges[0] + (edges[1] - edges[0]) * within, edges[2] + (edges[3] - edges[2]) * within
    rows, columns = (np.cos(np.pi * np.outer(at, np.arange(KEPT))) * scale for at in (y, x))
    picture = rows @ waves @ columns.T
    back = np.cos(np.pi * np.outer(np.arange(kept), within)) * scale[:kept, None]
    low = back @ picture @ back.T
    f = np.hypot(*np.mgrid[:kept, :kept])
    return (low * f**0.75).ravel()[1:]


def lowest(signatures):
    """The lowest frequencies of signatures without the constant one, as float64."""
    full = np.concatenate([np.zeros((len(signatures), 1)), signatures], 1).reshape(-1, KEPT, KEPT)
    return full[:, :LOW, :LOW].reshape(len(signatures), -1)[:, 1:]


def cosine(a, b):
    return a @ b / np.sqrt((a @ a) * (b @ b))


def test_frames_are_parts_of_70_percent_or_more_and_the_whole_comes_first():
    assert FRAMES[0].tolist() == [0, 1, 0, 1]
    sides = FRAMES[:, 1::2] - FRAMES[:, 0::2]
    assert FRAMES.min() >= 0
    assert FRAMES.max() <= 1
    assert sides.min() == pytest.approx(0.7)
    assert len({tuple(frame) for frame in FRAMES.tolist()}) == len(FRAMES)
    for side in (0.93, 0.78, 0.7):  # one in the centre, for borders
        centre = (1 - side) / 2, (1 + side) / 2, (1 - side) / 2, (1 + side) / 2
        assert np.abs(FRAMES - centre).max(1).min() < 1e-9


def test_a_framed_vector_is_the_series_between_the_frames_edges(wholes):
    made = framed(wholes).astype(float)
    shown = np.zeros((KEPT, KEPT), bool)
    shown[:HELD, :HELD] = True
    for row, frame in product(range(3), range(0, len(FRAMES), 17)):
        lower = wholes[row] * shown.ravel()[1:]
        assert cosine(made[row, frame], slow_part(lower, FRAMES[frame], LOW)) > 0.9999


def test_how_maps_change_is_the_difference_of_maps():
    ends = np.array([[0.1, 0.9], [0.0, 0.7]])
    step = 1e-4
    maps = axis_maps(ends, 12).astype(float)
    for at, move in ((1, [step, 0]), (2, [0, step])):
        up, down = (axis_maps(ends + sign * np.array(move), 12).astype(float)[:, 0] for sign in (1, -1))
        assert np.abs((up - down) / (2 * step) - maps[:, at]).max() < 0.02 * np.abs(maps[:, at]).max()


@pytest.mark.parametrize("side", [0.95, 0.9, 0.85, 0.8, 0.75, 0.7])
def test_a_crop_anywhere_and_its_place_are_found(photos, wholes, side):
    generator = np.random.default_rng(round(100 * side))
    corners = generator.uniform(0, 1 - side, (len(photos), 2))
    edges = np.stack([corners[:, 0], corners[:, 0] + side, corners[:, 1], corners[:, 1] + side], 1)
    parts = np.stack([signed(box(photo, edge)) for photo, edge in zip(photos, edges, strict=True)])
    every = np.arange(len(photos))
    near, _ = coarse_fits(wholes, every, parts, every)
    fit = refine(wholes, parts)
    is_near = (near >= LIKELY) & (fit.cosine >= SAME)
    before = as_they_are(wholes, parts)
    assert is_near.sum() >= (0.75 if side > 0.8 else 0.6) * len(photos)  # grass and brick are finer than a signature
    assert (fit.cosine[is_near] > before[is_near]).all()
    assert np.median(np.abs(fit.edges[is_near] / STEPS - edges[is_near])) < 0.01


@pytest.mark.parametrize("colour", ["white", "black"])
def test_of_a_bordered_copy_the_original_is_a_part(photos, wholes, colour):
    bordered = np.stack(
        [signed(ImageOps.expand(photo, round(0.05 * min(photo.size)), fill=colour)) for photo in photos]
    )
    fit = refine(bordered, wholes)
    assert np.median(fit.cosine) > 0.965
    assert np.median(as_they_are(bordered, wholes)) < 0.9
    top, bottom, left, right = np.median(fit.edges, axis=0) / STEPS
    assert max(abs(top + bottom - 1), abs(left + right - 1)) < 0.01
    assert 0.02 < top < 0.06


def test_other_photographs_are_not_parts_of_one_another(wholes):
    container, part = (at.ravel() for at in np.indices((len(wholes), len(wholes))))
    apart = container != part
    fit = refine(wholes[container[apart]], wholes[part[apart]])
    assert fit.cosine.max() < 0.9
    near, _ = coarse_fits(wholes, container.ravel(), wholes, part.ravel())
    assert np.array_equal(near >= LIKELY, ~apart.ravel())


def test_refining_is_as_good_as_trying_every_frame_of_a_fine_grid(photos, wholes):
    places = np.arange(0, 0.21, 0.02)
    for at, edges in ((0, (0.03, 0.91, 0.11, 0.97)), (3, (0.13, 1.0, 0.05, 0.93))):
        part = signed(box(photos[at], edges))
        low = np.concatenate([[0], part.astype(float)]).reshape(KEPT, KEPT)
        best = -1.0
        for top, bottom, left, right in product(places, places, places, places):
            sides = 1 - top - bottom, 1 - left - right
            if min(sides) < LEAST:
                continue
            held = np.outer(np.arange(12) < 12 * sides[0], np.arange(12) < 12 * sides[1])
            if max(abs(top - edges[0]), abs(1 - bottom - edges[1]), abs(left - edges[2])) > 0.03:
                continue  # elsewhere is worse; the fourth edge is tried everywhere
            seen = np.concatenate([[0], slow_part(wholes[at], (top, 1 - bottom, left, 1 - right), 12)]).reshape(12, 12)
            best = max(best, cosine((seen * held).ravel(), (low[:12, :12] * held).ravel()))
        assert refine(wholes[[at]], part[None]).cosine[0] >= best - 0.002


def test_the_cosine_is_measured_in_the_frame_returned(photos, wholes):
    parts = np.stack([signed(box(photo, (0.04, 0.93, 0.02, 0.9))) for photo in photos])
    fit = refine(wholes, parts)
    for container, part, measured, edges in zip(wholes, parts, fit.cosine, fit.edges, strict=True):
        top, bottom, left, right = edges / STEPS
        held = np.outer(np.arange(12) < 12 * (bottom - top), np.arange(12) < 12 * (right - left))
        seen = np.concatenate([[0], slow_part(container, edges / STEPS, 12)]).reshape(12, 12)
        low = np.concatenate([[0], part.astype(float)]).reshape(KEPT, KEPT)[:12, :12]
        assert measured == pytest.approx(cosine((seen * held).ravel(), (low * held).ravel()), abs=1e-5)


def test_the_coarse_fit_is_the_largest_cosine_of_a_frame(photos, wholes):
    parts = np.stack([signed(box(photo, (0.1, 0.95, 0.05, 0.9))) for photo in photos])
    frames, small = framed(wholes).astype(float), lowest(parts)
    cosines = np.einsum("wfd,pd->wpf", frames, small)
    cosines /= np.linalg.norm(frames, axis=2)[:, None] * np.linalg.norm(small, axis=1)[:, None]
    pairs = np.random.default_rng(0).integers(0, len(photos), (2, 400))  # more than one block for a whole
    cosine, frame = coarse_fits(wholes, pairs[0], parts, pairs[1])
    assert np.allclose(cosine, cosines.max(2)[tuple(pairs)], atol=1e-5)
    assert np.allclose(cosines[(*pairs, frame)], cosine, atol=2e-5)
    least = np.median(cosine)
    again, framed_again = coarse_fits(wholes, pairs[0], parts, pairs[1], least_cosine=least)
    assert np.array_equal(again, cosine)
    assert np.array_equal(framed_again, np.where(cosine >= least, frame, 0))


def test_pairs_do_not_depend_on_one_another(monkeypatch, photos, wholes):
    parts = np.stack([signed(box(photo, (0.0, 0.9, 0.0, 0.9))) for photo in photos])
    together = refine(wholes, parts)
    monkeypatch.setattr("scoring.images.cropfit.AT_ONCE", 3)
    apart = refine(wholes, parts)
    assert np.abs(together.cosine - apart.cosine).max() < 1e-6
    assert np.array_equal(together.edges, apart.edges)
    near = coarse_fits(wholes, np.arange(len(photos)), parts, np.arange(len(photos)))
    monkeypatch.setattr("scoring.images.crops.WHOLES", 3)
    again = coarse_fits(wholes, np.arange(len(photos)), parts, np.arange(len(photos)))
    assert np.allclose(near[0], again[0], atol=1e-6)
    assert near[1].tolist() == again[1].tolist()


def test_what_promises_nothing_is_left_and_the_rest_is_the_same(photos, wholes):
    parts = np.stack([signed(box(photo, (0.05, 0.95, 0.0, 0.9))) for photo in photos])
    parts = np.concatenate([parts, np.roll(parts, 1, axis=0)])
    both = np.concatenate([wholes, wholes])
    plain, spared = refine(both, parts), refine(both, parts, least_cosine=0.945)
    assert (spared.cosine == -1).sum() >= len(photos) - 2
    reached = plain.cosine >= SAME
    assert np.array_equal(plain.cosine[reached], spared.cosine[reached])


def test_an_image_with_itself_is_the_whole_of_it(wholes):
    fit = refine(wholes, wholes)
    assert fit.cosine.min() > 0.9999
    assert np.abs(fit.edges - [0, STEPS, 0, STEPS]).max() <= 1
    assert np.allclose(as_they_are(wholes, wholes), 1)


def test_zeros_are_a_part_of_nothing_and_nothing_is_a_part_of_them(wholes):
    zeros = np.zeros((2, 255), np.int8)
    for container, part in ((zeros, wholes[:2]), (wholes[:2], zeros), (zeros, zeros)):
        assert coarse_fits(container, np.arange(2), part, np.arange(2))[0].tolist() == [0, 0]
        assert refine(container, part).cosine.tolist() == [-1, -1]
        assert as_they_are(container, part).tolist() == [0, 0]
    assert not framed(zeros).any()
    nothing = zeros[:0]
    none = np.zeros(0, np.int64)
    assert not len(coarse_fits(nothing, none, wholes, none)[0])
    assert refine(nothing, nothing).edges.shape == (0, 4)


@pytest.mark.parametrize("wrong", [np.zeros((2, 254), np.int8), np.zeros((2, 255)), np.zeros(255, np.int8)])
def test_other_shapes_and_types_are_refused(wrong):
    for call in (framed, lambda these: refine(these, these)):
        with pytest.raises(ValueError, match="signatures must be int8"):
            call(wrong)
    good = np.zeros((2, 255), np.int8)
    with pytest.raises(ValueError, match="images as parts"):
        refine(good, good[:1])
