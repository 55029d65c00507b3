"""Random changes of a batch, drawn on the device that holds it; every image of the batch gets its own draw."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from scoring.changes import jitter_colors


class Draw:
    """Random numbers for one batch, from one explicit seed.

    Args:
        n: images of the batch.
        device: where the numbers are drawn.
        seed: which numbers.
        part: of the batch that is here; its images get the numbers that they would have in the whole batch.
    """

    def __init__(self, n: int, device: torch.device, seed: int, part: slice = slice(None)) -> None:
        self.n, self.device, self.part = n, device, part
        self.generator = torch.Generator(device=device).manual_seed(seed)

    def of(self, n: int) -> "Draw":
        """Return the draw for n images that goes on with the same numbers."""
        other = Draw.__new__(Draw)
        other.n, other.device, other.generator, other.part = n, self.device, self.generator, slice(None)
        return other

    def uniform(self, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return N numbers in [low, high)."""
        drawn = torch.rand(self.n, device=self.device, generator=self.generator)[self.part]
        return low + (high - low) * drawn

    def log_uniform(self, low: float, high: float) -> Tensor:
        """Return N numbers in [low, high) whose logarithms are spread evenly; both bounds are above 0."""
        return self.uniform(math.log(low), math.log(high)).exp()

    def chance(self, p: float) -> Tensor:
        """Return N booleans, each true with probability p."""
        return self.uniform() < p

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Return standard normal numbers of a shape that begins with the images that are here."""
        if self.part == slice(None):
            return torch.randn(shape, device=self.device, generator=self.generator)
        return torch.randn((self.n, *shape[1:]), device=self.device, generator=self.generator)[self.part]


def random_resized_crop(images: Tensor, size: int, scale: tuple[float, float], draw: Draw) -> Tensor:
    """Return a random part of each image, mirrored half of the time, at ``size`` x ``size``.

    Args:
        images: shape (N, C, H, W), float.
        size: side of the result; no smaller than the crop is expected to be, for sampling is bilinear.
        scale: bounds of the share of the area that is shown; the aspect ratio is between 3/4 and 4/3.
        draw: random numbers.
    """
    share = draw.uniform(*scale).sqrt()
    ratio = torch.exp(draw.uniform(-math.log(4 / 3), math.log(4 / 3))).sqrt()
    wide, high = (share * ratio).clamp(max=1), (share / ratio).clamp(max=1)
    mirrored = 1.0 - 2.0 * draw.chance(0.5).float()
    theta = torch.zeros(len(images), 2, 3, device=images.device)
    theta[:, 0, 0], theta[:, 1, 1] = wide * mirrored, high
    theta[:, 0, 2], theta[:, 1, 2] = draw.uniform(-1, 1) * (1 - wide), draw.uniform(-1, 1) * (1 - high)
    grid = F.affine_grid(theta, [len(images), images.shape[1], size, size], align_corners=False)
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def color_jitter(
    images: Tensor, draw: Draw, strength: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
) -> Tensor:
    """Return images whose brightness, contrast, saturation and hue are drawn again; values in [0, 255].

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
    """Return images with Gaussian noise of a standard deviation drawn from [0, most), in grey levels."""
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
