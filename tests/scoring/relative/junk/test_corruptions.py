import hashlib

import numpy as np
import pytest

from scoring.images.preprocessing import Preprocessing
from scoring.relative.junk.copies import CORRUPTIONS, KINDS, corrupt, corrupted_copies, side_needed

DIGESTS = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(40)]


def scene(height=96, width=128, seed=0):
    """A smooth colourful image with some detail."""
    draw = np.random.default_rng(seed)
    down, across = np.mgrid[:height, :width] / min(height, width)
    waves = sum(np.sin(2 * np.pi * draw.uniform(0.5, 6) * (across * a + down * b)) for a, b in draw.normal(size=(6, 2)))
    channels = np.stack([np.roll(waves, 9 * at, axis=at % 2) for at in range(3)], -1)
    return (127.5 + 127.5 * channels / np.abs(channels).max()).astype(np.uint8)


def grey(pixels):
    return pixels.astype(float) @ [0.299, 0.587, 0.114]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(96, 128), (33, 17), (4, 5), (200, 40)])
def test_a_copy_has_the_size_of_its_image_and_is_the_same_again(kind, shape):
    image = scene(*shape)
    copy = corrupt(image, kind, DIGESTS[0])
    assert copy.shape == image.shape
    assert copy.dtype == np.uint8
    assert (copy == corrupt(image, kind, DIGESTS[0])).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_copy_differs_from_its_image_and_copies_from_one_another(kind):
    image = scene()
    copies = [corrupt(image, kind, digest) for digest in DIGESTS]
    assert all(np.abs(copy.astype(float) - image).mean() > 1 for copy in copies)
    assert len({copy.tobytes() for copy in copies}) > 15


def test_severities_are_those_that_are_stated():
    image = scene()
    contrast = grey(image).std()
    for digest in DIGESTS:
        assert grey(corrupt(image, "dark", digest)).mean() <= 0.08 * grey(image).mean() + 1
        assert grey(corrupt(image, "bright", digest)).min() >= 255 * 0.85 - 1
        assert grey(corrupt(image, "flat", digest)).std() <= 0.08 * contrast + 1
        covered = corrupt(image, "covered", digest)
        _, count = np.unique(covered.reshape(-1, 3), axis=0, return_counts=True)
        assert 0.7 <= count.max() / (96 * 128) <= 0.97
        small = corrupt(image, "enlarged", digest).astype(float)
        assert np.abs(np.diff(small, axis=1)).mean() < np.abs(np.diff(image.astype(float), axis=1)).mean()


def test_scrambled_pixels_match_the_image():
    image = scene()
    for digest in DIGESTS[:8]:
        copy = corrupt(image, "scrambled", digest)
        assert sorted(map(tuple, copy.reshape(-1, 3))) == sorted(map(tuple, image.reshape(-1, 3)))


def test_the_same_parameters_hold_at_every_size():
    large, small = scene(256, 256), scene(128, 128)
    for digest in DIGESTS[:10]:
        for kind in ("dark", "flat", "covered", "placeholder", "pattern"):
            a, b = (corrupt(image, kind, digest) for image in (large, small))
            assert grey(a).mean() == pytest.approx(grey(b).mean(), abs=4), kind


def test_copies_are_what_the_model_reads_with_their_quality():
    image = scene(200, 300)
    copies = corrupted_copies(image, DIGESTS[0], KINDS, Preprocessing(size=224, resize=256), with_quality=True)
    assert [copy.kind for copy in copies] == list(CORRUPTIONS)
    assert all(copy.pixels.shape == (224, 224, 3) for copy in copies)
    by_kind = {copy.kind: copy.quality for copy in copies}
    assert by_kind["blank"].contrast < 0.1 < by_kind["noise"].contrast
    assert by_kind["dark"].highlight < 0.1
    assert all(quality.jpeg is None for quality in by_kind.values())
    without = corrupted_copies(image, DIGESTS[0], ["dark"], Preprocessing(size=64, resize=64), with_quality=False)
    assert without[0].quality is None
    assert without[0].pixels.shape == (64, 64, 3)
    assert side_needed(Preprocessing(size=64, resize=64)) == 128
    assert side_needed(Preprocessing(size=224, resize=256)) == 256
