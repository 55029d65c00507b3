"""Damage, each kind against a slow restatement or what it must leave of an image."""

import io

import numpy as np
import pytest
import scipy.fft
import scipy.ndimage
import torch
from PIL import Image

from trainers import augment
from trainers.augment import Draw, view
from trainers.methods.settings import Augmentation


def draw(n, seed=0):
    return Draw(n, torch.device("cpu"), seed)


def pictures(n, side=48, seed=0):
    """Smooth random images with edges, in whole levels."""
    rough = np.random.default_rng(seed).uniform(0, 255, (n, 3, side, side))
    smooth = scipy.ndimage.gaussian_filter(rough, (0, 0, 2, 2))
    low, high = smooth.min((1, 2, 3), keepdims=True), smooth.max((1, 2, 3), keepdims=True)
    images = 255 * (smooth - low) / (high - low)
    images[:, 0, side // 3 :, side // 2 :] = 250
    return torch.from_numpy(images.round()).float()


def spread(images):
    return images.flatten(1).std(1)


@pytest.mark.parametrize("kind", list(augment.DAMAGE))
def test_every_kind_keeps_shape_and_range_repeats_with_its_seed_and_leaves_its_argument_alone(kind):
    images = pictures(24)
    before = images.clone()
    changed = augment.DAMAGE[kind](images, draw(24, 3))
    assert changed.shape == images.shape
    assert changed.dtype == torch.float32
    assert changed.isfinite().all()
    assert -0.01 <= changed.min() <= changed.max() <= 255.01
    assert torch.equal(changed, augment.DAMAGE[kind](images, draw(24, 3)))
    assert not torch.equal(changed, augment.DAMAGE[kind](images, draw(24, 4)))
    assert torch.equal(images, before)
    assert ((changed - images).abs().flatten(1).mean(1) > 0).all()


def test_dark_images_are_a_fraction_of_themselves_in_whole_levels():
    images = pictures(300)
    dark = augment.dark(images, draw(300))
    shares = (dark.sum((1, 2, 3)) / images.sum((1, 2, 3))).numpy()
    assert shares.min() > 0.005
    assert shares.max() < 0.21
    assert torch.equal(dark, dark.round())
    for image, darker, share in zip(images[:9].numpy(), dark[:9].numpy(), shares[:9], strict=True):
        assert np.abs(image * share - darker).max() < 1.6  # one factor for all pixels, half a level of rounding


def test_bright_images_keep_their_order_and_come_close_to_white():
    images = pictures(300)
    bright = augment.bright(images, draw(300))
    assert (bright >= images - 1e-3).all()
    assert (bright.flatten(1) >= 229).float().mean() > 0.6  # 255 less what the thinnest veil leaves, mostly
    for image, lit in zip(images[:9].flatten(1).numpy(), bright[:9].flatten(1).numpy(), strict=True):
        order = np.argsort(image, kind="stable")
        assert (np.diff(lit[order]) > -1e-3).all()


def test_a_blank_page_forgets_the_image_and_comes_in_white_black_and_colours():
    images = pictures(2000, side=8)
    pages = augment.blank(images, draw(2000))
    assert torch.allclose(pages, augment.blank(255 - images, draw(2000)))
    mean = pages.mean((2, 3))
    assert (mean > 240).all(1).float().mean().item() == pytest.approx(0.3, abs=0.05)
    assert (mean < 15).all(1).float().mean().item() == pytest.approx(0.2, abs=0.05)
    coloured = (mean.amax(1) - mean.amin(1) > 20).float().mean().item()
    assert coloured == pytest.approx(0.4, abs=0.08)
    assert (spread(pages - pages.mean((2, 3), keepdim=True)) < 24).all()
    assert (pages.flatten(2).std(2).amax(1) == 0).float().mean() > 0.1  # some are constant


def test_a_flat_image_is_a_colour_and_a_little_of_the_image():
    images = pictures(200)
    flat = augment.flat(images, draw(200))
    apart = images - images.mean((2, 3), keepdim=True)
    level = flat.mean((2, 3), keepdim=True)
    inside = ((level > 60) & (level < 195)).flatten(1).all(1)  # no pixel of these is cut off
    assert inside.sum() > 20
    for at in inside.nonzero().flatten().tolist():
        share = float((apart[at] * (flat[at] - level[at])).sum() / apart[at].square().sum())
        assert 0.008 < share < 0.16
        assert (flat[at] - level[at] - share * apart[at]).abs().max() < 1.1  # what rounding leaves


def test_blur_is_scipys_and_its_width_is_between_its_bounds():
    images = pictures(40, side=64)
    ours = augment.blurred(images, draw(40))
    sigma = 64 * draw(40).log_uniform(0.015, 0.15)
    assert sigma.min() > 0.9
    assert sigma.max() < 9.7
    for at in (sigma < 4).nonzero().flatten().tolist()[:6]:
        width = float(sigma[at])
        reference = scipy.ndimage.gaussian_filter(images[at].numpy(), (0, width, width), truncate=8)
        assert np.abs(ours[at].numpy() - reference)[:, 30:-30, 30:-30].max() < 0.05


def test_noise_adds_the_stated_deviation_in_cells_of_the_image():
    images = torch.full((900, 3, 16, 16), 127.5)
    noise = augment.noisy(images, draw(900)) - 127.5
    deviation = spread(noise)
    assert deviation.min() > 1.5  # noise of 8 levels on 40 pixels a side, whose means are taken
    assert deviation.max() < 130
    cells = []
    for image in noise.numpy():
        fits = [
            size
            for size in (1, 2, 4)
            if all(
                (cell == cell[:, :1, :1]).all()
                for y in range(0, 16, size)
                for x in range(0, 16, size)
                for cell in [image[:, y : y + size, x : x + size]]
            )
        ]
        cells.append(max(fits))
    for size, share in ((1, 0.6), (2, 0.2), (4, 0.2)):
        assert np.mean(np.array(cells) == size) == pytest.approx(share, abs=0.06)
    grey = ((noise[:, 0] - noise[:, 1]).abs().flatten(1).amax(1) < 1e-3).float().mean().item()
    assert grey == pytest.approx(0.3, abs=0.07)


def test_in_three_tenths_there_is_noise_alone():
    images = pictures(600, side=16)
    noisy = augment.noisy(images, draw(600))
    same = augment.noisy(255 - images, draw(600)) == noisy
    assert same.flatten(1).all(1).float().mean().item() == pytest.approx(0.3, abs=0.07)


def test_a_tiny_image_holds_no_more_than_the_mean_of_its_cells():
    images = pictures(60, side=48)
    tiny = augment.tiny(images, draw(60))
    numbers = draw(60)
    side_of = (numbers.uniform() * len(augment.TINY_SIDES)).long()
    twelve = (side_of == augment.TINY_SIDES.index(12)).nonzero().flatten()
    assert len(twelve) > 3
    n_close = 0
    for at in twelve.tolist():
        cells = images[at].reshape(3, 12, 4, 12, 4).mean((2, 4))  # 48 pixels in cells of 4
        nearest = cells.repeat_interleave(4, 1).repeat_interleave(4, 2)
        smooth = torch.from_numpy(scipy.ndimage.zoom(cells.numpy(), (1, 4, 4), order=1, mode="nearest", grid_mode=True))
        errors = [float((tiny[at] - reference).abs().max()) for reference in (nearest, smooth)]
        n_close += min(errors) < 0.01
    assert n_close >= len(twelve) // 3  # the others are enlarged by cubics


def test_compression_leaves_whole_multiples_of_the_quanta_in_every_block():
    images = 90 + 0.3 * pictures(2, side=32)  # far from black and white, where values would be cut off
    coarseness = torch.tensor([4.0, 9.0])
    red, green, blue = augment.block_dct(images, coarseness).double().numpy().transpose(1, 0, 2, 3)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    planes = {"JPEG_LUMA": luma - 128, "JPEG_CHROMA": (blue - luma) / 1.772}
    for name, plane in planes.items():
        for image, factor in zip(plane, coarseness.tolist(), strict=True):
            quanta = np.clip(np.array(getattr(augment, name), float) * factor, 1, 255)
            for y in range(0, 32, 8):
                for x in range(0, 32, 8):
                    coefficients = scipy.fft.dctn(image[y : y + 8, x : x + 8], norm="ortho")
                    assert np.abs(coefficients - np.round(coefficients / quanta) * quanta).max() < 0.01


@pytest.mark.parametrize("quality", [2, 5, 8])
def test_compression_is_what_pillows_jpeg_does(quality):
    images = pictures(6, side=60).round()  # 60 is no multiple of 8
    ours = augment.block_dct(images, torch.full((6,), 50 / quality))
    for picture, compressed in zip(images, ours, strict=True):
        original = picture.permute(1, 2, 0).byte().numpy()
        file = io.BytesIO()
        Image.fromarray(original).save(file, "JPEG", quality=quality, subsampling=0)
        reference = np.asarray(Image.open(file), np.float32)
        apart = np.abs(compressed.permute(1, 2, 0).numpy() - reference)
        assert apart.mean() < 1.5  # it rounds its tables and pixels to whole numbers
        assert np.abs(original - reference).mean() > 4 * apart.mean()


def test_compression_at_the_size_of_the_view_follows_its_blocks():
    images = pictures(60, side=32)
    out = augment.compressed(images, draw(60))
    numbers = draw(60)
    quality = numbers.uniform(1, 8)
    share = (numbers.uniform() * len(augment.JPEG_SHARES)).long()
    rows = (share == augment.JPEG_SHARES.index(1.0)).nonzero().flatten()
    assert len(rows) > 3
    assert torch.allclose(out[rows], augment.block_dct(images[rows], 50 / quality[rows]))


def test_a_box_covers_the_share_that_it_draws_with_one_colour():
    images = pictures(300, side=64)
    out = augment.covered(images, draw(300))
    changed = (out != images).any(1).float().mean((1, 2))
    assert changed.min() > 0.06
    assert changed.max() < 0.88
    assert changed.mean().item() == pytest.approx(0.475, abs=0.05)
    for image, boxed in zip(images[:20], out[:20], strict=True):
        inside = (boxed != image).any(0)
        rows, columns = inside.any(1).nonzero(), inside.any(0).nonzero()
        box = boxed[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].flatten(1)
        assert (box == box[:, :1]).all()
    grey = [(boxed[(boxed != image)] == 127.5).all().item() for image, boxed in zip(images, out, strict=True)]
    assert np.mean(grey) == pytest.approx(0.5, abs=0.1)


def test_all_kinds_are_as_likely_and_each_image_gets_one():
    images = pictures(2000, side=16)
    seen = []
    kinds = {name: (lambda x, d, at=at: torch.full_like(x, float(at))) for at, name in enumerate(augment.DAMAGE)}
    before = dict(augment.DAMAGE)
    try:
        augment.DAMAGE.update(kinds)
        seen = augment.damaged(images, draw(2000))
    finally:
        augment.DAMAGE.update(before)
    assert augment.damaged(images[:0], draw(0)).shape == (0, 3, 16, 16)
    assert (seen.flatten(1) == seen[:, :1, 0, 0]).all()
    shares = np.bincount(seen[:, 0, 0, 0].long().numpy(), minlength=len(before)) / 2000
    assert np.abs(shares - 1 / len(before)).max() < 0.03


def test_views_are_damaged_with_the_probability_that_the_recipe_names_and_are_the_same_otherwise():
    images = pictures(400, side=24)
    plain = Augmentation(scale=(0.9, 1.0), jitter=0, gray=0, blur=0)
    hurt = Augmentation(scale=(0.9, 1.0), jitter=0, gray=0, blur=0, damage=0.3)
    first = view(images, 24, plain.scale, plain, draw(400, 5))
    two = view(images, 24, hurt.scale, hurt, draw(400, 5))
    changed = (first != two).flatten(1).any(1)
    assert changed.float().mean().item() == pytest.approx(0.3, abs=0.07)
    assert (two[changed] - first[changed]).abs().flatten(1).mean(1).median() > 10
