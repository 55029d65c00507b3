"""Corruptions that leave little or nothing to learn from; kind and strength are drawn for each image.

Every kind takes images of shape (N, 3, S, S), float32 in [0, 255], and numbers for N images, and gives the same shape
and range. What is stated in pixels is a share of the side, since the images that a view represents are of any size.
"""

import math
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from scoring.changes import gaussian_blur, luma
from trainers.draw import Draw

Damage = Callable[[Tensor, Draw], Tensor]
Choice = TypeVar("Choice")

TINY_SIDES = (6, 8, 10, 12, 14, 16, 20, 24)
ENLARGED_BY = ("nearest", "bilinear", "bicubic")
NOISE_SHARES = (0.25, 0.5, 1.0, 1.5, 2.5)  # of the side of a view: how large the image was when it got its noise
JPEG_SHARES = (0.5, 0.75, 1.0, 1.25, 1.75, 2.5)
BLOCK = 8
# the quantisation of JPEG, ITU-T T.81, tables K.1 and K.2
JPEG_LUMA = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
JPEG_CHROMA = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)


def dark(images: Tensor, draw: Draw) -> Tensor:
    """Return images with 1 to 20 % of their light, rounded to whole grey levels."""
    return (images * _of_image(draw.log_uniform(0.01, 0.2))).round()


def bright(images: Tensor, draw: Draw) -> Tensor:
    """Return over-exposed images: 3 to 20 times the light, clipped at white, under 0 to 90 % of white haze."""
    lit = (images * _of_image(draw.log_uniform(3, 20))).clamp(max=255)
    return 255 - (255 - lit) * _of_image(draw.uniform(0.1, 1.0))


def blank(images: Tensor, draw: Draw) -> Tensor:
    """Return pages without content: white, black or any colour, often with a brightness gradient and grain."""
    plain = _colours(draw)
    at = torch.linspace(-0.5, 0.5, images.shape[-1], device=images.device)
    angle, slope = draw.uniform(0, 2 * math.pi), 60 * draw.uniform().square() * draw.chance(0.6)
    light = _of_image(slope * angle.cos()) * at + _of_image(slope * angle.sin()) * at[:, None]
    grain = _of_image(8 * draw.uniform().square() * draw.chance(0.6)) * draw.normal(tuple(images.shape))
    return (plain + light + grain).clamp(0, 255)


def flat(images: Tensor, draw: Draw) -> Tensor:
    """Return images with 1 to 15 % of their contrast, around a random colour."""
    apart = images - images.mean((2, 3), keepdim=True)
    return (_colours(draw) + _of_image(draw.log_uniform(0.01, 0.15)) * apart).clamp(0, 255).round()


def blurred(images: Tensor, draw: Draw) -> Tensor:
    """Return images blurred by a Gaussian of 1.5 to 15 % of the side."""
    return gaussian_blur(images, images.shape[-1] * draw.log_uniform(0.015, 0.15))


def noisy(images: Tensor, draw: Draw) -> Tensor:
    """Return images with noise of 8 to 160 grey levels, coloured or grey; 30 % are noise alone, on grey.

    The noise is as in an image of a quarter to 2.5 times the view's size, which was then resized.
    """
    sigma, shown = _of_image(draw.log_uniform(8, 160)), _of_image(1.0 - draw.chance(0.3).float())
    is_grey = _of_image(draw.chance(0.3))
    base, side, out = 127.5 + shown * (images - 127.5), images.shape[-1], torch.empty_like(images)
    for rows, share in _each(draw, NOISE_SHARES):
        grains = max(1, round(share * side))
        grain = draw.normal((len(rows), images.shape[1], grains, grains))
        grain = sigma[rows] * torch.where(is_grey[rows], grain[:, :1], grain)
        if grains <= side:
            out[rows] = (base[rows] + _resized(grain, side, "nearest")).clamp(0, 255)
        else:
            out[rows] = _resized((_resized(base[rows], grains, "bilinear") + grain).clamp(0, 255), side, "bilinear")
    return out


def tiny(images: Tensor, draw: Draw) -> Tensor:
    """Return images reduced to a side of 6 to 24 pixels and enlarged again, by one of three filters."""
    out, side = images.clone(), images.shape[-1]
    for rows, small in _each(draw, TINY_SIDES):
        small = min(small, side)
        for among, mode in _each(draw.of(len(rows)), ENLARGED_BY):
            reduced = F.interpolate(images[rows[among]], (small, small), mode="area")
            how = {} if mode == "nearest" else {"align_corners": False}
            out[rows[among]] = F.interpolate(reduced, (side, side), mode=mode, **how)
    return out.clamp(0, 255)


def compressed(images: Tensor, draw: Draw) -> Tensor:
    """Return images after JPEG of quality 1 to 8 at half to 2.5 times the view's size, then resized to the view.

    Without the rounding of pixels and entropy coding, which lose little, and with chromas at full resolution.
    """
    quality, side, out = draw.uniform(1, 8), images.shape[-1], torch.empty_like(images)
    for rows, share in _each(draw, JPEG_SHARES):
        if len(rows):
            file = _resized(images[rows], max(1, round(share * side)), "bilinear")
            out[rows] = _resized(block_dct(file, 50 / quality[rows]), side, "bilinear")
    return out.clamp(0, 255)


def block_dct(images: Tensor, coarseness: Tensor) -> Tensor:
    """Return images with DCT coefficients of 8 x 8 blocks quantised as in JPEG, in luma and two chromas.

    A side that is no multiple of 8 ends in repeated pixels.

    Args:
        images: shape (N, 3, S, S), in [0, 255].
        coarseness: factor on the tables of quanta, shape (N,), > 0; 50 over the quality, for one below 50.

    Source: ITU-T T.81, annexes A.3.3 and K.1; a quality scales the tables as in the IJG's library.
    """
    n, channels, side = images.shape[:3]
    rest = -side % BLOCK
    y = luma(images)
    planes = torch.cat([y - 128, (images[:, 2:] - y) / 1.772, (images[:, :1] - y) / 1.402], 1)  # Y, Cb, Cr
    planes = F.pad(planes, (0, rest, 0, rest), mode="replicate")
    blocks = planes.unfold(2, BLOCK, BLOCK).unfold(3, BLOCK, BLOCK)  # (N, 3, B, B, 8, 8)
    waves = _cosines(BLOCK, images.device)  # rows are frequencies
    tables = torch.tensor((JPEG_LUMA, JPEG_CHROMA, JPEG_CHROMA), dtype=torch.float32, device=images.device)
    quanta = (coarseness.view(-1, 1, 1, 1) * tables).clamp(1, 255).view(n, channels, 1, 1, BLOCK, BLOCK)
    coarse = ((waves @ blocks @ waves.T) / quanta).round() * quanta
    full_side = side + rest
    back = (waves.T @ coarse @ waves).permute(0, 1, 2, 4, 3, 5).reshape(n, channels, full_side, full_side)
    y, blue, red = (back[:, at : at + 1, :side, :side] for at in range(3))
    red, blue, y = 1.402 * red, 1.772 * blue, y + 128
    green = y - (0.299 * red + 0.114 * blue) / 0.587  # so that the luma is y
    return torch.cat([y + red, green, y + blue], 1).clamp(0, 255)


def covered(images: Tensor, draw: Draw) -> Tensor:
    """Return images with a box of one colour, half of the time mid-grey, over 10 to 85 % of the area."""
    side = images.shape[-1]
    half = draw.uniform(0.1, 0.85).sqrt() / 2
    at = (torch.arange(side, device=images.device) + 0.5) / side
    x, y = (draw.uniform() * (1 - 2 * half) + half for _ in "xy")
    inside = ((at - y[:, None]).abs() < half[:, None])[:, :, None] & ((at - x[:, None]).abs() < half[:, None])[:, None]
    colour = torch.where(_of_image(draw.chance(0.5)), 127.5, _colours(draw))
    return torch.where(inside[:, None], colour, images)


DAMAGE: dict[str, Damage] = {  # to add a kind, add a line
    "dark": dark,
    "bright": bright,
    "blank": blank,
    "flat": flat,
    "blur": blurred,
    "noise": noisy,
    "tiny": tiny,
    "compression": compressed,
    "box": covered,
}


def damaged(images: Tensor, draw: Draw) -> Tensor:
    """Return each image with a random corruption, all kinds being equally likely.

    Args:
        images: shape (N, 3, S, S), float in [0, 255]; N may be 0.
        draw: numbers for N images.

    Returns:
        Shape (N, 3, S, S), float32 in [0, 255].
    """
    out = images.float().clone()
    for rows, kind in _each(draw, tuple(DAMAGE)):
        if len(rows):
            out[rows] = DAMAGE[kind](out[rows], draw.of(len(rows)))
    return out


def _each(draw: Draw, choices: tuple[Choice, ...]) -> list[tuple[Tensor, Choice]]:
    """Return the rows that drew each of some choices."""
    drawn = (draw.uniform() * len(choices)).long()
    return [((drawn == at).nonzero().squeeze(1), choice) for at, choice in enumerate(choices)]


def _resized(images: Tensor, side: int, mode: str) -> Tensor:
    if images.shape[-1] == side or not len(images):
        return images.new_empty(0, images.shape[1], side, side) if not len(images) else images
    if mode == "nearest":
        return F.interpolate(images, (side, side), mode=mode)
    return F.interpolate(images, (side, side), mode=mode, align_corners=False, antialias=True)


def _of_image(values: Tensor) -> Tensor:
    """Return one value per image, shape (N,), reshaped for (N, C, H, W)."""
    return values.view(-1, 1, 1, 1)


def _colours(draw: Draw) -> Tensor:
    """Return one colour per image, (N, 3, 1, 1): white in 30 %, black in 20 %, grey in 10 %, any in the rest."""
    drawn, any_colour = draw.uniform(), torch.stack([draw.uniform(0, 255) for _ in "rgb"], 1)
    grey = any_colour[:, :1].expand_as(any_colour)
    colour = torch.where((drawn < 0.6)[:, None], grey, any_colour)
    colour = torch.where((drawn < 0.5)[:, None], draw.uniform(0, 12)[:, None], colour)
    colour = torch.where((drawn < 0.3)[:, None], 255 - draw.uniform(0, 12)[:, None], colour)
    return colour.view(-1, 3, 1, 1)


def _cosines(n: int, device: torch.device) -> Tensor:
    """Return the orthonormal DCT-II matrix, shape (n, n), rows are frequencies."""
    at = torch.arange(n, device=device, dtype=torch.float32)
    waves = torch.cos(math.pi / n * (at + 0.5) * at[:, None]) * math.sqrt(2 / n)
    waves[0] = math.sqrt(1 / n)
    return waves
