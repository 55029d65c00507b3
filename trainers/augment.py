"""Random augmentation of a batch on its device; every image is augmented independently.

Every corruption takes images of shape (N, 3, S, S), float32 in [0, 255], and random numbers for N images, and returns
the same shape and range. Lengths are shares of the side, since the original images are of any size.
"""

import math
from collections.abc import Callable
from copy import copy
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from scoring.changes import gaussian_blur, jitter_colors, luma, to_gray
from trainers.methods.settings import Augmentation


class Draw:
    """Random numbers for one batch, determined by a seed.

    Args:
        n: number of images in the whole batch.
        device: where the numbers are drawn.
        seed: of the generator.
        part: images of the batch that this process holds; they get the same numbers as in a single process.
        n_views: number of views per image that are drawn at once; view-major order (the first view of all images
            first).
    """

    def __init__(self, n: int, device: torch.device, seed: int, part: slice = slice(None), *, n_views: int = 1) -> None:
        self.n, self.device, self.part, self.n_views = n, device, part, n_views
        self.generator = torch.Generator(device=device).manual_seed(seed)

    def of(self, n: int) -> "Draw":
        """Return the draw for n images, which continues the same random stream."""
        other = copy(self)
        other.n, other.part, other.n_views = n, slice(None), 1
        return other

    def of_views(self, n_views: int) -> "Draw":
        """Return the draw for this many views of each image, which continues the same random stream."""
        other = copy(self)
        other.n_views = n_views
        return other

    def uniform(self, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return uniform numbers in [low, high), one for each view of each image, shape (V * N,)."""
        drawn = torch.rand(self.n_views, self.n, device=self.device, generator=self.generator)[:, self.part]
        return low + (high - low) * drawn.flatten()

    def log_uniform(self, low: float, high: float) -> Tensor:
        """Return log-uniform numbers in [low, high), shape (V * N,); both bounds are above 0."""
        return self.uniform(math.log(low), math.log(high)).exp()

    def bernoulli(self, p: float) -> Tensor:
        """Return booleans that are true with probability p, shape (V * N,)."""
        return self.uniform() < p

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Return standard normal numbers of a shape whose first dimension is V * N of this process's images."""
        if self.part == slice(None):
            return torch.randn(shape, device=self.device, generator=self.generator)
        drawn = torch.randn((self.n_views, self.n, *shape[1:]), device=self.device, generator=self.generator)
        return drawn[:, self.part].flatten(0, 1)


def random_resized_crop(images: Tensor, size: int, scale: tuple[float, float], draw: Draw) -> Tensor:
    """Return random crops, each flipped with probability 0.5, shape (V * N, C, size, size).

    Args:
        images: shape (N, C, H, W), float.
        size: side of the result in pixels; not smaller than the expected crop, since sampling is bilinear.
        scale: bounds of the crop's share of the area; its aspect ratio is between 3/4 and 4/3.
        draw: random numbers for V views of N images.
    """
    share = draw.uniform(*scale).sqrt()
    ratio = torch.exp(draw.uniform(-math.log(4 / 3), math.log(4 / 3))).sqrt()
    wide, high = (share * ratio).clamp(max=1), (share / ratio).clamp(max=1)
    mirrored = 1.0 - 2.0 * draw.bernoulli(0.5).float()
    theta = torch.zeros(len(share), 2, 3, device=images.device)
    theta[:, 0, 0], theta[:, 1, 1] = wide * mirrored, high
    theta[:, 0, 2], theta[:, 1, 2] = draw.uniform(-1, 1) * (1 - wide), draw.uniform(-1, 1) * (1 - high)
    grid = F.affine_grid(theta, [len(theta), images.shape[1], size, size], align_corners=False)
    if len(theta) == len(images):
        return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    # views of an image are sampled as one tall image, since only their grid differs
    tall = grid.unflatten(0, (-1, len(images))).transpose(0, 1).flatten(1, 2)  # (N, V * size, size, 2)
    views = F.grid_sample(images, tall, padding_mode="reflection", align_corners=False)
    return views.unflatten(2, (-1, size)).permute(2, 0, 1, 3, 4).flatten(0, 1)


def color_jitter(
    images: Tensor, draw: Draw, strength: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
) -> Tensor:
    """Return images with random brightness, contrast, saturation and hue, float32 in [0, 255], shape (N, 3, H, W).

    ``strength`` is the largest change of each: brightness, contrast and saturation as a factor around 1, hue in turns.
    """

    def drawn(amount: float) -> Tensor:
        return draw.uniform(1 - amount, 1 + amount)

    brightness, contrast, saturation = (drawn(amount) for amount in strength[:3])
    return jitter_colors(
        images, brightness, contrast, saturation, draw.uniform(-strength[3], strength[3]) * 2 * math.pi
    )


def add_noise(images: Tensor, draw: Draw, most: float = 50.0) -> Tensor:
    """Return images with Gaussian noise, whose standard deviation is drawn from [0, most) grey levels."""
    sigma = draw.uniform(0, most).view(-1, 1, 1, 1)
    return (images + sigma * draw.normal(tuple(images.shape))).clamp(0, 255)


def add_box(images: Tensor, draw: Draw, area: tuple[float, float] = (0.05, 0.4)) -> Tensor:
    """Return images with a mid-grey box; ``area`` bounds its share of the image."""
    side = images.shape[-1]
    half = draw.uniform(*area).sqrt() / 2
    x, y = draw.uniform() * (1 - 2 * half) + half, draw.uniform() * (1 - 2 * half) + half
    grid = (torch.arange(side, device=images.device) + 0.5) / side
    in_x = (grid[None, :] - x[:, None]).abs() < half[:, None]  # (N, W)
    in_y = (grid[None, :] - y[:, None]).abs() < half[:, None]
    return torch.where((in_y[:, :, None] & in_x[:, None, :]).unsqueeze(1), 127.5, images)


Damage = Callable[[Tensor, Draw], Tensor]
Choice = TypeVar("Choice")

TINY_SIDES = (6, 8, 10, 12, 14, 16, 20, 24)
ENLARGED_BY = ("nearest", "bilinear", "bicubic")
NOISE_SHARES = (0.25, 0.5, 1.0, 1.5, 2.5)  # original size relative to the view's side when the noise was added
JPEG_SHARES = (0.5, 0.75, 1.0, 1.25, 1.75, 2.5)
BLOCK = 8
# quantisation tables of JPEG, ITU-T T.81, K.1 and K.2
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
    """Return images whose brightness is multiplied by 0.01 to 0.2, rounded to whole grey levels."""
    return (images * _of_image(draw.log_uniform(0.01, 0.2))).round()


def bright(images: Tensor, draw: Draw) -> Tensor:
    """Return over-exposed images: brightness times 3 to 20, clipped at white, under 0 to 90 % of white haze."""
    lit = (images * _of_image(draw.log_uniform(3, 20))).clamp(max=255)
    return 255 - (255 - lit) * _of_image(draw.uniform(0.1, 1.0))


def blank(images: Tensor, draw: Draw) -> Tensor:
    """Return images without content: white, black or any colour, often with a brightness gradient and grain."""
    plain = _colours(draw)
    grid = torch.linspace(-0.5, 0.5, images.shape[-1], device=images.device)
    angle, slope = draw.uniform(0, 2 * math.pi), 60 * draw.uniform().square() * draw.bernoulli(0.6)
    light = _of_image(slope * angle.cos()) * grid + _of_image(slope * angle.sin()) * grid[:, None]
    grain = _of_image(8 * draw.uniform().square() * draw.bernoulli(0.6)) * draw.normal(tuple(images.shape))
    return (plain + light + grain).clamp(0, 255)


def flat(images: Tensor, draw: Draw) -> Tensor:
    """Return images whose contrast is reduced to 1 to 15 %, around a random colour."""
    apart = images - images.mean((2, 3), keepdim=True)
    return (_colours(draw) + _of_image(draw.log_uniform(0.01, 0.15)) * apart).clamp(0, 255).round()


def blurred(images: Tensor, draw: Draw) -> Tensor:
    """Return images blurred by a Gaussian whose standard deviation is 1.5 to 15 % of the side."""
    return gaussian_blur(images, images.shape[-1] * draw.log_uniform(0.015, 0.15))


def noisy(images: Tensor, draw: Draw) -> Tensor:
    """Return images with coloured or grey noise of 8 to 160 grey levels; 30 % are noise alone, on grey.

    The noise has the grain of an image of 0.25 to 2.5 times the view's size that was resized to the view.
    """
    sigma, shown = _of_image(draw.log_uniform(8, 160)), _of_image(1.0 - draw.bernoulli(0.3).float())
    is_grey = _of_image(draw.bernoulli(0.3))
    base, side, out = 127.5 + shown * (images - 127.5), images.shape[-1], torch.empty_like(images)
    for rows, share in _random_kinds(draw, NOISE_SHARES):
        grains = max(1, round(share * side))
        grain = draw.normal((len(rows), images.shape[1], grains, grains))
        grain = sigma[rows] * torch.where(is_grey[rows], grain[:, :1], grain)
        if grains <= side:
            out[rows] = (base[rows] + _resized(grain, side, "nearest")).clamp(0, 255)
        else:
            out[rows] = _resized((_resized(base[rows], grains, "bilinear") + grain).clamp(0, 255), side, "bilinear")
    return out


def tiny(images: Tensor, draw: Draw) -> Tensor:
    """Return images reduced to a side of 6 to 24 pixels and enlarged again by a random one of three filters."""
    out, side = images.clone(), images.shape[-1]
    for rows, small in _random_kinds(draw, TINY_SIDES):
        small = min(small, side)
        for among, mode in _random_kinds(draw.of(len(rows)), ENLARGED_BY):
            reduced = F.interpolate(images[rows[among]], (small, small), mode="area")
            how = {} if mode == "nearest" else {"align_corners": False}
            out[rows[among]] = F.interpolate(reduced, (side, side), mode=mode, **how)
    return out.clamp(0, 255)


def compressed(images: Tensor, draw: Draw) -> Tensor:
    """Return images after JPEG of quality 1 to 8 at 0.5 to 2.5 times the view's size, resized to the view.

    Omits the rounding of pixels and entropy coding, which lose little, and chroma subsampling.
    """
    quality, side, out = draw.uniform(1, 8), images.shape[-1], torch.empty_like(images)
    for rows, share in _random_kinds(draw, JPEG_SHARES):
        if len(rows):
            file = _resized(images[rows], max(1, round(share * side)), "bilinear")
            out[rows] = _resized(block_dct(file, 50 / quality[rows]), side, "bilinear")
    return out.clamp(0, 255)


def block_dct(images: Tensor, coarseness: Tensor) -> Tensor:
    """Return images whose 8 x 8 DCT coefficients are quantised as in JPEG, in luma and two chroma channels.

    A side that is not a multiple of 8 is padded with repeated pixels.

    Args:
        images: shape (N, 3, S, S), in [0, 255].
        coarseness: factor on the quantisation tables, shape (N,), > 0; 50 / quality for a quality below 50.

    Source: ITU-T T.81, annexes A.3.3 and K.1; the quality scales the tables as in the IJG's library.
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
    y, blue, red = (back[:, channel : channel + 1, :side, :side] for channel in range(3))
    red, blue, y = 1.402 * red, 1.772 * blue, y + 128
    green = y - (0.299 * red + 0.114 * blue) / 0.587  # so that luma is y
    return torch.cat([y + red, green, y + blue], 1).clamp(0, 255)


def covered(images: Tensor, draw: Draw) -> Tensor:
    """Return images with a box of one colour, mid-grey with probability 0.5, over 10 to 85 % of the area."""
    side = images.shape[-1]
    half = draw.uniform(0.1, 0.85).sqrt() / 2
    grid = (torch.arange(side, device=images.device) + 0.5) / side
    x, y = (draw.uniform() * (1 - 2 * half) + half for _ in "xy")
    in_y, in_x = ((grid - centre[:, None]).abs() < half[:, None] for centre in (y, x))
    inside = in_y[:, :, None] & in_x[:, None]
    colour = torch.where(_of_image(draw.bernoulli(0.5)), 127.5, _colours(draw))
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
    """Return images (N, 3, H, W) in [0, 255] with one random corruption each, all kinds equally likely."""
    out = images.float().clone()
    for rows, kind in _random_kinds(draw, tuple(DAMAGE)):
        if len(rows):
            out[rows] = DAMAGE[kind](out[rows], draw.of(len(rows)))
    return out


def _random_kinds(draw: Draw, choices: tuple[Choice, ...]) -> list[tuple[Tensor, Choice]]:
    """Return each choice with the rows that drew it; every row draws one choice uniformly."""
    drawn = (draw.uniform() * len(choices)).long()
    return [((drawn == index).nonzero().squeeze(1), choice) for index, choice in enumerate(choices)]


def _resized(images: Tensor, side: int, mode: str) -> Tensor:
    if images.shape[-1] == side or not len(images):
        return images.new_empty(0, images.shape[1], side, side) if not len(images) else images
    if mode == "nearest":
        return F.interpolate(images, (side, side), mode=mode)
    return F.interpolate(images, (side, side), mode=mode, align_corners=False, antialias=True)


def _of_image(values: Tensor) -> Tensor:
    """Return values of shape (N,) reshaped to (N, 1, 1, 1), to broadcast over images."""
    return values.view(-1, 1, 1, 1)


def _colours(draw: Draw) -> Tensor:
    """Return a random colour per image, (N, 3, 1, 1): 30 % white, 20 % black, 10 % grey, else any colour."""
    drawn, any_colour = draw.uniform(), torch.stack([draw.uniform(0, 255) for _ in "rgb"], 1)
    grey = any_colour[:, :1].expand_as(any_colour)
    colour = torch.where((drawn < 0.6)[:, None], grey, any_colour)
    colour = torch.where((drawn < 0.5)[:, None], draw.uniform(0, 12)[:, None], colour)
    colour = torch.where((drawn < 0.3)[:, None], 255 - draw.uniform(0, 12)[:, None], colour)
    return colour.view(-1, 3, 1, 1)


def _cosines(n: int, device: torch.device) -> Tensor:
    """Return the orthonormal DCT-II matrix, shape (n, n); rows are frequencies."""
    index = torch.arange(n, device=device, dtype=torch.float32)
    waves = torch.cos(math.pi / n * (index + 0.5) * index[:, None]) * math.sqrt(2 / n)
    waves[0] = math.sqrt(1 / n)
    return waves


def view(images: Tensor, size: int, scale: tuple[float, float], recipe: Augmentation, draw: Draw) -> Tensor:
    """Return random views of each image, shape (V * N, 3, size, size), float32 in [0, 255], view-major order.

    Args:
        images: shape (N, 3, H, W), uint8, or float in [0, 255].
        size: side of a view in pixels.
        scale: bounds of the crop's share of the area.
        recipe: probabilities and strengths of the augmentations.
        draw: random numbers for V views of N images.

    Source: Chen & He 2021 (SimSiam), appendix A; Nakamura et al. 2023, appendix B.
    """
    return changed(random_resized_crop(images.float(), size, scale, draw), recipe, draw)


def changed(crops: Tensor, recipe: Augmentation, draw: Draw) -> Tensor:
    """Return augmented crops, float32, shape (V * N, 3, size, size): the steps of ``view`` after cropping."""
    out, size = crops, crops.shape[-1]

    def sometimes(p: float, change: Tensor, keep: Tensor) -> Tensor:
        return torch.where(draw.bernoulli(p).view(-1, 1, 1, 1), change, keep)

    if recipe.jitter:
        much = recipe.jitter_strength
        out = sometimes(recipe.jitter, color_jitter(out, draw, (much, much, much, much / 4)), out)
    if recipe.gray:
        out = sometimes(recipe.gray, to_gray(out), out)
    if recipe.blur:
        low, high = recipe.blur_sigma
        out = sometimes(recipe.blur, gaussian_blur(out, draw.uniform(low, high) * size / 224), out)
    if recipe.solarize:
        out = sometimes(recipe.solarize, torch.where(out >= 128, 255 - out, out), out)
    if recipe.vertical_flip:
        out = sometimes(recipe.vertical_flip, out.flip(2), out)
    if recipe.corrupt:
        out = sometimes(recipe.corrupt, add_noise(out, draw), out)
        out = sometimes(recipe.corrupt, add_box(out, draw), out)
    if recipe.damage:
        hit = draw.bernoulli(recipe.damage).nonzero().squeeze(1)
        out[hit] = damaged(out[hit], draw.of(len(hit)))
    return out
