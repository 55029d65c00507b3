"""Image corruptions of given strength, and the sharpness baseline.

Every change takes and returns RGB images, shape (N, 3, S, S), float32 in [0, 255].
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import simplejpeg
import torch
import torch.nn.functional as F
from torch import Tensor

from scoring.changes import gaussian_blur, jitter_colors, to_gray

Change = Callable[[Tensor, torch.Generator], Tensor]

BLUR_SHARE = 0.03  # sigma of the blur, as a share of the side
NOISE_LEVELS = 25.0  # standard deviation of the noise, in grey levels of 256
BOX_SHARE = 0.25  # of the area, under the grey box
JITTER = 0.4  # brightness, contrast and saturation change by up to this share


def crop(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random square crop of a tenth to a half of the area, resized to full size."""
    return _random_squares(images, 0.1, 0.5, generator)


def random_crop(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random square crop of 5 to 100 % of the area, resized to full size."""
    return _random_squares(images, 0.05, 1.0, generator)


def _random_squares(images: Tensor, low: float, high: float, generator: torch.Generator) -> Tensor:
    shares, side = low + (high - low) * torch.rand(len(images), generator=generator), images.shape[-1]
    out = torch.empty_like(images)
    for number, (image, share) in enumerate(zip(images, shares.tolist(), strict=True)):
        part = max(1, int(side * math.sqrt(share)))
        x, y = (int(torch.randint(side - part + 1, (), generator=generator)) for _ in "xy")
        out[number] = resize(image[None, :, y : y + part, x : x + part], side)[0]
    return out


def center_crops(images: Tensor, fractions: Tensor) -> Tensor:
    """Return central square crops with sides of ``fractions`` (N,) in (0, 1] of the images (N, 3, S, S), resized.

    Source: the crop test of Kirchhof et al. 2023, "URL", which draws the fraction from 0.1 to 0.75.
    """
    side = images.shape[-1]
    out = torch.empty_like(images)
    for number, fraction in enumerate(fractions.tolist()):
        part = min(side, max(1, round(side * fraction)))
        at = (side - part) // 2
        out[number] = resize(images[number : number + 1, :, at : at + part, at : at + part], side)[0]
    return out


def resize(images: Tensor, side: int) -> Tensor:
    """Return images resized to side x side (bicubic, antialiased)."""
    if images.shape[-2:] == (side, side):
        return images.float()
    return F.interpolate(images.float(), (side, side), mode="bicubic", antialias=True).clamp(0, 255)


def blur(images: Tensor, generator: torch.Generator, share: float = BLUR_SHARE) -> Tensor:
    """Return the images blurred by a Gaussian of 3 % of the side, normalised at the border."""
    return gaussian_blur(images.float(), torch.tensor([share * images.shape[-1]]))


def noise(images: Tensor, generator: torch.Generator, levels: float = NOISE_LEVELS) -> Tensor:
    """Return the images with Gaussian noise of 25 grey levels."""
    return (images + levels * torch.randn(images.shape, generator=generator)).clamp(0, 255)


def grey_box(images: Tensor, generator: torch.Generator, share: float = BOX_SHARE) -> Tensor:
    """Return the images with a mid-grey square over a quarter of the area, at a random position."""
    out = images.float().clone()
    side = int(images.shape[-1] * math.sqrt(share))
    for image in out:
        x, y = (int(torch.randint(images.shape[-1] - side + 1, (), generator=generator)) for _ in "xy")
        image[:, y : y + side, x : x + side] = 127.5
    return out


def zoom(images: Tensor, generator: torch.Generator, share: float) -> Tensor:
    """Return the central square without the outer ``share`` of the side, resized to full size."""
    return center_crops(images, torch.full((len(images),), 1 - share))


def recompress(images: Tensor, generator: torch.Generator, coarseness: float) -> Tensor:
    """Return the images after JPEG compression at quality 100 - ``coarseness`` with 4:2:0 colour."""
    pixels = images.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    how = {"quality": round(100 - coarseness), "colorsubsampling": "420", "fastdct": False}
    files = [simplejpeg.encode_jpeg(image, **how) for image in pixels]
    back = np.stack([simplejpeg.decode_jpeg(file, fastdct=False, fastupsample=False) for file in files])
    return torch.from_numpy(back).permute(0, 3, 1, 2).float()


def darken(images: Tensor, generator: torch.Generator, share: float) -> Tensor:
    """Return the images darkened by ``share``, rounded to whole grey levels."""
    return ((1 - share) * images.float()).round()


def grayscale(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return the luma (ITU-R BT.601) in all three channels."""
    return to_gray(images.float()).contiguous()


def color_jitter(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return the images with random brightness, contrast and saturation, each scaled by 0.6 to 1.4, in this order."""
    brightness, contrast, saturation = 1 + JITTER * (2 * torch.rand(3, len(images), generator=generator) - 1)
    return jitter_colors(images.float(), brightness, contrast, saturation)


WORSE: dict[str, Change] = {  # a trustworthy score calls these less certain
    "crop": crop,
    "blur": blur,
    "noise": noise,
    "grey box": grey_box,
}
AUGMENTATIONS: dict[str, Change] = {  # the rows of VI-SimSiam's Table 3, next to those above
    "colour jitter": color_jitter,
    "greyscale": grayscale,
    "random crop": random_crop,
}


@dataclass(frozen=True)
class Ladder:
    """A corruption at increasing strengths.

    Attributes:
        change: function of images, generator and strength.
        unit: of the strengths, for an axis label.
        strengths: ascending, above 0.
    """

    change: Callable[[Tensor, torch.Generator, float], Tensor]
    unit: str
    strengths: tuple[float, ...]


# The strengths are ours; the first four kinds come from Figure 6 of Kirchhof et al. 2024, "Pretrained Visual
# Uncertainties".
LADDERS: dict[str, Ladder] = {
    "zoom": Ladder(zoom, "side cut away", (0.2, 0.4, 0.6, 0.75, 0.9)),
    "blur": Ladder(blur, "sigma / side", (0.005, 0.01, 0.02, 0.04, 0.08)),
    "noise": Ladder(noise, "grey levels", (6.0, 12.0, 25.0, 50.0, 100.0)),
    "grey box": Ladder(grey_box, "area covered", (0.1, 0.25, 0.4, 0.6, 0.8)),
    "recompression": Ladder(recompress, "100 - JPEG quality", (50.0, 75.0, 85.0, 92.0, 97.0)),
    "darkness": Ladder(darken, "light taken away", (0.3, 0.5, 0.7, 0.85, 0.95)),
}


def laplacian_variance(images: Tensor) -> Tensor:
    """Return the variance of the Laplacian of images (N, 3, H, W), H, W >= 3, in [0, 255]; higher is sharper.

    Shape (N,), float32, in squared grey levels.
    """
    gray = images.float().mean(1, keepdim=True)
    kernel = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]]).view(1, 1, 3, 3)
    return F.conv2d(gray, kernel).flatten(1).var(1)
