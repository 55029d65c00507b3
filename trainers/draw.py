"""Random changes of a batch, computed on its device; every image is changed independently."""

import math
from copy import copy

import torch
import torch.nn.functional as F
from torch import Tensor

from scoring.changes import jitter_colors


class Draw:
    """Random numbers for one batch, from an explicit seed.

    Args:
        n: images of the batch.
        device: where the numbers are drawn.
        seed: which numbers.
        part: of the batch that is here; its images get the numbers that they would have in the whole batch.
        n_views: views of each image that are drawn at once, the first view of all images first.
    """

    def __init__(self, n: int, device: torch.device, seed: int, part: slice = slice(None), *, n_views: int = 1) -> None:
        self.n, self.device, self.part, self.n_views = n, device, part, n_views
        self.generator = torch.Generator(device=device).manual_seed(seed)

    def of(self, n: int) -> "Draw":
        """Return the draw for n images, continuing the same random stream."""
        other = copy(self)
        other.n, other.part, other.n_views = n, slice(None), 1
        return other

    def of_views(self, n_views: int) -> "Draw":
        """Return the draw for this many views of each image, continuing the same random stream."""
        other = copy(self)
        other.n_views = n_views
        return other

    def uniform(self, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return a number in [low, high) for each view of each image, shape (V * N,)."""
        drawn = torch.rand(self.n_views, self.n, device=self.device, generator=self.generator)[:, self.part]
        return low + (high - low) * drawn.flatten()

    def log_uniform(self, low: float, high: float) -> Tensor:
        """Return log-uniform numbers in [low, high); both bounds are above 0."""
        return self.uniform(math.log(low), math.log(high)).exp()

    def chance(self, p: float) -> Tensor:
        """Return booleans, each true with probability p."""
        return self.uniform() < p

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Return standard normal numbers of a shape whose first dimension is the views of this process's images."""
        if self.part == slice(None):
            return torch.randn(shape, device=self.device, generator=self.generator)
        drawn = torch.randn((self.n_views, self.n, *shape[1:]), device=self.device, generator=self.generator)
        return drawn[:, self.part].flatten(0, 1)


def random_resized_crop(images: Tensor, size: int, scale: tuple[float, float], draw: Draw) -> Tensor:
    """Return random crops of each image, flipped half of the time, shape (V * N, C, size, size).

    Args:
        images: shape (N, C, H, W), float.
        size: side of the result; no smaller than the crop is expected to be, for sampling is bilinear.
        scale: bounds of the share of the area that is shown; the aspect ratio is between 3/4 and 4/3.
        draw: random numbers for V views of N images.
    """
    share = draw.uniform(*scale).sqrt()
    ratio = torch.exp(draw.uniform(-math.log(4 / 3), math.log(4 / 3))).sqrt()
    wide, high = (share * ratio).clamp(max=1), (share / ratio).clamp(max=1)
    mirrored = 1.0 - 2.0 * draw.chance(0.5).float()
    theta = torch.zeros(len(share), 2, 3, device=images.device)
    theta[:, 0, 0], theta[:, 1, 1] = wide * mirrored, high
    theta[:, 0, 2], theta[:, 1, 2] = draw.uniform(-1, 1) * (1 - wide), draw.uniform(-1, 1) * (1 - high)
    grid = F.affine_grid(theta, [len(theta), images.shape[1], size, size], align_corners=False)
    if len(theta) == len(images):
        return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    # the views of an image are sampled as one tall one, since each has its own place in the grid alone
    tall = grid.unflatten(0, (-1, len(images))).transpose(0, 1).flatten(1, 2)  # (N, V * size, size, 2)
    views = F.grid_sample(images, tall, padding_mode="reflection", align_corners=False)
    return views.unflatten(2, (-1, size)).permute(2, 0, 1, 3, 4).flatten(0, 1)


def color_jitter(
    images: Tensor, draw: Draw, strength: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
) -> Tensor:
    """Return images with random brightness, contrast, saturation and hue; values in [0, 255].

    Args:
        images: shape (N, 3, H, W), float32.
        draw: random numbers.
        strength: how far each goes: the first three around a factor of 1, the hue in turns of the circle.
    """

    def drawn(amount: float) -> Tensor:
        return draw.uniform(1 - amount, 1 + amount)

    brightness, contrast, saturation = (drawn(amount) for amount in strength[:3])
    return jitter_colors(
        images, brightness, contrast, saturation, draw.uniform(-strength[3], strength[3]) * 2 * math.pi
    )


def add_noise(images: Tensor, draw: Draw, most: float = 50.0) -> Tensor:
    """Return images with Gaussian noise whose standard deviation is drawn from [0, most), in grey levels."""
    sigma = draw.uniform(0, most).view(-1, 1, 1, 1)
    return (images + sigma * draw.normal(tuple(images.shape))).clamp(0, 255)


def add_box(images: Tensor, draw: Draw, area: tuple[float, float] = (0.05, 0.4)) -> Tensor:
    """Return images with a mid-grey box over a share of the area."""
    side = images.shape[-1]
    half = draw.uniform(*area).sqrt() / 2
    x, y = draw.uniform() * (1 - 2 * half) + half, draw.uniform() * (1 - 2 * half) + half
    at = (torch.arange(side, device=images.device) + 0.5) / side
    in_x = (at[None, :] - x[:, None]).abs() < half[:, None]  # (N, W)
    in_y = (at[None, :] - y[:, None]).abs() < half[:, None]
    return torch.where((in_y[:, :, None] & in_x[:, None, :]).unsqueeze(1), 127.5, images)
