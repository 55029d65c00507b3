"""Damage that leaves little or nothing to learn from: of which kind and how much, each image of a batch draws.

Every kind takes images of shape (N, 3, S, S), float32 in [0, 255], and numbers for N images, and gives the same shape
and range. What is stated in pixels is a share of the side, since the pictures that a view stands for are of any size.
"""

import math
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from scoring.changes import gaussian_blur, luma
from trainers.draw import Draw, random_resized_crop

Damage = Callable[[Tensor, Draw], Tensor]
Choice = TypeVar("Choice")

TINY_SIDES = (6, 8, 10, 12, 14, 16, 20, 24)
ENLARGED_BY = ("nearest", "bilinear", "bicubic")
BLOCK_SIDES = (2, 4, 8, 16)
NOISE_GRAINS = (1, 2, 4)  # pixels; small pictures are enlarged with their noise
# the luma quantisation of JPEG, ITU-T T.81, table K.1
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


def dark(images: Tensor, draw: Draw) -> Tensor:
    """Return 1 to 20 % of the light, in whole levels as a file has them."""
    return (images * _of_image(draw.log_uniform(0.01, 0.2))).round()


def bright(images: Tensor, draw: Draw) -> Tensor:
    """Return over-exposed images: 3 to 20 times the light, cut off at white, and 0 to 90 % of a white veil."""
    lit = (images * _of_image(draw.log_uniform(3, 20))).clamp(max=255)
    return 255 - (255 - lit) * _of_image(draw.uniform(0.1, 1.0))


def blank(images: Tensor, draw: Draw) -> Tensor:
    """Return pages without a picture: white, black or of any colour, often with a slope of the light and grain."""
    plain = _colours(draw)
    at = torch.linspace(-0.5, 0.5, images.shape[-1], device=images.device)
    angle, slope = draw.uniform(0, 2 * math.pi), 60 * draw.uniform().square() * draw.chance(0.6)
    light = _of_image(slope * angle.cos()) * at + _of_image(slope * angle.sin()) * at[:, None]
    grain = _of_image(8 * draw.uniform().square() * draw.chance(0.6)) * draw.normal(tuple(images.shape))
    return (plain + light + grain).clamp(0, 255)


def flat(images: Tensor, draw: Draw) -> Tensor:
    """Return 1 to 15 % of the contrast, around any colour."""
    apart = images - images.mean((2, 3), keepdim=True)
    return (_colours(draw) + _of_image(draw.log_uniform(0.01, 0.15)) * apart).clamp(0, 255).round()


def blurred(images: Tensor, draw: Draw) -> Tensor:
    """Return images blurred by a Gaussian of 1.5 to 15 % of the side."""
    return gaussian_blur(images, images.shape[-1] * draw.log_uniform(0.015, 0.15))


def noisy(images: Tensor, draw: Draw) -> Tensor:
    """Return images in noise of 8 to 160 grey levels, of grains of 1 to 4 pixels, in colour or grey.

    In a third of them the picture fades too, up to noise alone.
    """
    channels, side = images.shape[1:3]
    grain = torch.zeros_like(images)
    for rows, size in _each(draw, NOISE_GRAINS):
        cells = draw.normal((len(rows), channels, -(-side // size), -(-side // size)))
        grain[rows] = F.interpolate(cells, scale_factor=float(size), mode="nearest")[..., :side, :side]
    grain = torch.where(_of_image(draw.chance(0.3)), grain[:, :1], grain)
    shown = _of_image(1 - draw.uniform() * draw.chance(1 / 3))
    return (127.5 + shown * (images - 127.5) + _of_image(draw.log_uniform(8, 160)) * grain).clamp(0, 255)


def tiny(images: Tensor, draw: Draw) -> Tensor:
    """Return images that were reduced to a side of 6 to 24 pixels and enlarged again, in one of three ways."""
    out, side = images.clone(), images.shape[-1]
    for rows, small in _each(draw, TINY_SIDES):
        small = min(small, side)
        for among, mode in _each(draw.of(len(rows)), ENLARGED_BY):
            reduced = F.interpolate(images[rows[among]], (small, small), mode="area")
            how = {} if mode == "nearest" else {"align_corners": False}
            out[rows[among]] = F.interpolate(reduced, (side, side), mode=mode, **how)
    return out.clamp(0, 255)


def compressed(images: Tensor, draw: Draw) -> Tensor:
    """Return images after JPEG of quality 1 to 8, without its chroma tables, rounding and entropy coding.

    Blocks are 2, 4, 8 or 16 pixels wide and keep the lowest frequencies of JPEG's eight: what the blocks of a picture
    become that is 4 times, twice, as large as the view or half as large. A side that is no multiple ends in mirrored
    pixels.

    Source: ITU-T T.81, annex A.3.3 and K.1; how a quality scales the table is that of the IJG's library.
    """
    quality = draw.uniform(1, 8)
    out = images.clone()
    for rows, block in _each(draw, BLOCK_SIDES):
        if len(rows):
            out[rows] = block_dct(images[rows], 50 / quality[rows], block)
    return out


def block_dct(images: Tensor, coarseness: Tensor, block: int) -> Tensor:
    """Return images whose blocks keep whole multiples of a quantum at every frequency, in luma and two chromas.

    Args:
        images: shape (N, 3, S, S), in [0, 255].
        coarseness: factor on JPEG's table of quanta, shape (N,), > 0; 50 over the quality, for one below 50.
        block: side of a block in pixels. The quanta are those of a block of 8 with the same light: for b pixels they
            scale by b / 8.
    """
    side = images.shape[-1]
    rest = -side % block
    y = luma(images)
    planes = torch.cat([y - 128, images[:, :1] - y, images[:, 2:] - y], 1)  # luma, red and blue differences
    planes = F.pad(planes, (0, rest, 0, rest), mode="reflect" if rest < side else "replicate")
    n, channels, whole = planes.shape[:3]
    waves = _cosines(block, images.device)  # (block, block), rows are frequencies
    blocks = planes.unfold(2, block, block).unfold(3, block, block)  # (N, 3, B, B, block, block)
    found = waves @ blocks @ waves.T
    kept = min(block, 8)
    table = torch.tensor(JPEG_LUMA, dtype=torch.float32, device=images.device)[:kept, :kept]
    quanta = ((coarseness.view(-1, 1, 1) * table).clamp(1, 255) * (block / 8)).view(n, 1, 1, 1, kept, kept)
    coarse = torch.zeros_like(found)
    coarse[..., :kept, :kept] = (found[..., :kept, :kept] / quanta).round() * quanta
    back = (waves.T @ coarse @ waves).permute(0, 1, 2, 4, 3, 5).reshape(n, channels, whole, whole)[..., :side, :side]
    y, red, blue = (back[:, at : at + 1] for at in range(3))
    y = y + 128
    # the luma of (y + red, g, y + blue) is y, which gives g
    green = y - (0.299 * red + 0.114 * blue) / 0.587
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


def cropped(images: Tensor, draw: Draw) -> Tensor:
    """Return 3 to 30 % of the area, at full size again."""
    return random_resized_crop(images, images.shape[-1], (0.03, 0.3), draw)


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
    "crop": cropped,
}


def damaged(images: Tensor, draw: Draw) -> Tensor:
    """Return each image with damage of one kind, all kinds being as likely.

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


def _of_image(values: Tensor) -> Tensor:
    """Return one value an image, shape (N,), so that it meets (N, C, H, W)."""
    return values.view(-1, 1, 1, 1)


def _colours(draw: Draw) -> Tensor:
    """Return a colour an image, (N, 3, 1, 1): white in 30 %, black in 20 %, grey in 10 %, any in the rest."""
    drawn, any_colour = draw.uniform(), torch.stack([draw.uniform(0, 255) for _ in "rgb"], 1)
    grey = any_colour[:, :1].expand_as(any_colour)
    colour = torch.where((drawn < 0.6)[:, None], grey, any_colour)
    colour = torch.where((drawn < 0.5)[:, None], draw.uniform(0, 12)[:, None], colour)
    colour = torch.where((drawn < 0.3)[:, None], 255 - draw.uniform(0, 12)[:, None], colour)
    return colour.view(-1, 3, 1, 1)


def _cosines(n: int, device: torch.device) -> Tensor:
    """Return the orthonormal DCT-II of n points, shape (n, n): rows are frequencies."""
    at = torch.arange(n, device=device, dtype=torch.float32)
    waves = torch.cos(math.pi / n * (at + 0.5) * at[:, None]) * math.sqrt(2 / n)
    waves[0] = math.sqrt(1 / n)
    return waves
