import math

import numpy as np
import pytest
import scipy.ndimage
import torch

from scoring.errors import InputError
from trainers import augment
from trainers.augment import Draw
from trainers.methods.settings import Augmentation


def draw(n, seed=0):
    return Draw(n, torch.device("cpu"), seed)


def ramp(n, side=32):
    """Images whose red says x, green y, and blue nothing, in [0, 255]."""
    at = (torch.arange(side) + 0.5) / side * 255
    return torch.stack([at.expand(side, side), at[:, None].expand(side, side), torch.full((side, side), 100.0)]).expand(
        n, 3, side, side
    )


def test_crops_show_the_stated_share_and_place():
    n = 4000
    out = augment.random_resized_crop(ramp(n), 16, (0.2, 0.5), draw(n))
    wide = (out[:, 0, 8, -1] - out[:, 0, 8, 0]).abs() / 255 * 16 / 15
    high = (out[:, 1, -1, 8] - out[:, 1, 0, 8]).abs() / 255 * 16 / 15
    share = wide * high
    assert share.min() > 0.19
    assert share.max() < 0.51
    assert share.mean().item() == pytest.approx(0.35, abs=0.01)
    ratio = wide / high
    assert ratio.min() > 0.74
    assert ratio.max() < 1.34
    mirrored = (out[:, 0, 8, 0] > out[:, 0, 8, -1]).float().mean()
    assert mirrored.item() == pytest.approx(0.5, abs=0.03)
    assert out.min() >= 0
    assert out.max() <= 255


def test_blur_matches_scipy_away_from_the_border():
    images = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0)) * 255
    sigma = torch.tensor([0.5, 1.3, 2.0])
    ours = augment.gaussian_blur(images, sigma)
    for i in range(3):
        reference = scipy.ndimage.gaussian_filter(images[i].numpy(), (0, sigma[i].item(), sigma[i].item()), truncate=8)
        assert np.abs(ours[i].numpy() - reference)[:, 14:-14, 14:-14].max() < 0.01


def test_blur_keeps_a_constant_image_at_the_border_too():
    flat = torch.full((2, 3, 9, 9), 77.0)
    assert torch.allclose(augment.gaussian_blur(flat, torch.tensor([1.0, 3.0])), flat, atol=1e-4)


def test_a_hue_shift_keeps_the_luma():
    images = 100 + 40 * torch.rand(50, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    turned = augment.color_jitter(images, draw(50), strength=(0, 0, 0, 0.1))
    luma = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    assert ((turned * luma).sum(1) - (images * luma).sum(1)).abs().max() < 0.5
    assert (turned - images).abs().mean() > 1


def test_jitter_scales_brightness_within_its_bounds():
    images = torch.full((3000, 3, 2, 2), 100.0)
    bright = augment.color_jitter(images, draw(3000), strength=(0.4, 0, 0, 0))[:, 0, 0, 0]
    assert 59.9 <= bright.min() < 61
    assert 139 < bright.max() <= 140.1


def test_a_grey_box_covers_the_stated_share():
    images = torch.zeros(2000, 3, 64, 64)
    boxed = augment.add_box(images, draw(2000), area=(0.25, 0.25))
    covered = (boxed[:, 0] == 127.5).float().mean((1, 2))
    assert covered.mean().item() == pytest.approx(0.25, abs=0.01)
    assert covered.std() < 0.02


def test_noise_has_the_stated_deviation():
    images = torch.full((400, 3, 32, 32), 127.0)
    deviation = (augment.add_noise(images, draw(400), most=20) - images).flatten(1).std(1)
    assert deviation.max() < 21
    assert deviation.mean().item() == pytest.approx(10, abs=1)


def test_views_repeat_with_the_seed_and_differ_without():
    images = (ramp(5) % 256).to(torch.uint8)
    recipe = Augmentation(corrupt=0.5)
    first = augment.view(images, 24, (0.2, 1.0), recipe, draw(5, 7))
    assert first.shape == (5, 3, 24, 24)
    assert torch.equal(first, augment.view(images, 24, (0.2, 1.0), recipe, draw(5, 7)))
    assert not torch.equal(first, augment.view(images, 24, (0.2, 1.0), recipe, draw(5, 8)))
    assert first.min() >= 0
    assert first.max() <= 255


def test_a_probability_above_one_is_refused():
    with pytest.raises(InputError, match=r"blur .*got 1\.5"):
        Augmentation(blur=1.5)


def earlier_jitter(images, draw):
    """The colour jitter as it was when it stood with the views alone."""
    yiq = images.new_tensor(((0.299, 0.587, 0.114), (0.596, -0.274, -0.322), (0.211, -0.523, 0.312)))
    weights = yiq[0].view(1, 3, 1, 1)
    out = (images * draw.uniform(0.6, 1.4).view(-1, 1, 1, 1)).clamp(0, 255)
    mean = (out * weights).sum(1, keepdim=True).mean((2, 3), keepdim=True)
    out = (mean + (out - mean) * draw.uniform(0.6, 1.4).view(-1, 1, 1, 1)).clamp(0, 255)
    gray = (out * weights).sum(1, keepdim=True)
    out = gray + (out - gray) * draw.uniform(0.6, 1.4).view(-1, 1, 1, 1)
    angle = draw.uniform(-0.1, 0.1) * 2 * math.pi
    turn = torch.zeros(len(out), 3, 3)
    turn[:, 0, 0] = 1
    turn[:, 1, 1] = turn[:, 2, 2] = angle.cos()
    turn[:, 1, 2], turn[:, 2, 1] = -angle.sin(), angle.sin()
    return torch.einsum("nij,njhw->nihw", torch.linalg.inv(yiq) @ turn @ yiq, out).clamp(0, 255)


def earlier_blur(images, sigma):
    at = torch.arange(images.shape[-1], dtype=torch.float32)
    weight = torch.exp(-0.5 * ((at[:, None] - at[None, :]) / sigma.view(-1, 1, 1)).square())
    kernel = (weight / weight.sum(2, keepdim=True)).unsqueeze(1)
    return kernel @ images @ kernel.transpose(2, 3)


@pytest.mark.parametrize("seed", range(3))
def test_views_have_the_bits_that_they_had_before_they_shared_their_changes_with_the_measures(seed):
    images = torch.randint(0, 256, (16, 3, 40, 40), generator=torch.Generator().manual_seed(seed)).float()
    numbers, recipe = draw(16, seed), Augmentation(jitter=0.8, gray=0.3, blur=0.5)
    out = augment.random_resized_crop(images, 32, (0.2, 1.0), numbers)
    for chance, change in (
        (0.8, lambda out: earlier_jitter(out, numbers)),
        (0.3, lambda out: (out * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)),
        (0.5, lambda out: earlier_blur(out, numbers.uniform(0.1, 2.0) * 32 / 224)),
    ):
        changed = change(out)
        out = torch.where(numbers.bernoulli(chance).view(-1, 1, 1, 1), changed, out)
    assert torch.equal(augment.view(images, 32, (0.2, 1.0), recipe, draw(16, seed)), out)


def test_solarize_inverts_the_bright_half_and_a_vertical_flip_turns_a_view_upside_down():
    plain = Augmentation(jitter=0, gray=0, blur=0)
    before = augment.view(ramp(3), 16, (0.2, 1.0), plain, draw(3))
    solar = augment.view(ramp(3), 16, (0.2, 1.0), Augmentation(jitter=0, gray=0, blur=0, solarize=1.0), draw(3))
    assert torch.equal(solar, torch.where(before >= 128, 255 - before, before))
    turned = augment.view(ramp(3), 16, (0.2, 1.0), Augmentation(jitter=0, gray=0, blur=0, vertical_flip=1.0), draw(3))
    assert torch.equal(turned, before.flip(2))
    assert not torch.equal(turned, before)


def test_stronger_jitter_changes_images_more():
    def change(strength):
        views = Augmentation(jitter=1.0, gray=0, blur=0, jitter_strength=strength)
        plain = augment.random_resized_crop(ramp(50), 16, (0.5, 1.0), draw(50))
        return (augment.view(ramp(50), 16, (0.5, 1.0), views, draw(50)) - plain).abs().mean().item()

    assert change(0.0) < 1e-3 < change(0.4) < change(0.8)


@pytest.mark.parametrize("part", [slice(None), slice(2, 5)])
def test_views_drawn_at_once_equal_views_of_as_many_images(part):
    recipe = Augmentation(corrupt=0.5, solarize=0.5)
    several = Draw(5, torch.device("cpu"), 7, part).of_views(3)
    as_images = Draw(15, torch.device("cpu"), 7)
    at_once = augment.view(ramp(5)[part], 8, (0.2, 1.0), recipe, several)
    one_by_one = augment.view(ramp(5).repeat(3, 1, 1, 1), 8, (0.2, 1.0), recipe, as_images)
    assert torch.allclose(at_once, one_by_one.unflatten(0, (3, 5))[:, part].flatten(0, 1), atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_views_are_drawn_without_waiting_for_the_gpu():
    images = ramp(8).contiguous().cuda()
    recipe = Augmentation(jitter=0.8, gray=0.2, blur=0.5)
    augment.view(images, 16, (0.2, 1.0), recipe, Draw(8, images.device, 0))  # makes what is kept for the device
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        augment.view(images, 16, (0.2, 1.0), recipe, Draw(8, images.device, 1))
    finally:
        torch.cuda.set_sync_debug_mode("default")
