"""Image changes for training views and corrupted copies: grey, blur and colour jitter.

All take RGB images in batches, shape (N, 3, H, W), float32 in [0, 255], on any device.
"""

from functools import lru_cache

import torch
from torch import Tensor

from scoring.images.signature import LUMA

# RGB -> YIQ: a hue shift is a rotation of the last two
_YIQ = (LUMA, (0.596, -0.274, -0.322), (0.211, -0.523, 0.312))


@lru_cache(maxsize=32)
def _luma_weights(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the weights of the channels, shape (1, 3, 1, 1); cached, since a copy to a GPU waits for all its work."""
    with torch.inference_mode(False):
        return torch.tensor(LUMA, dtype=dtype, device=device).view(1, 3, 1, 1)


@lru_cache(maxsize=32)
def _yiq(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the matrix to YIQ and its inverse, shape (3, 3) each; cached like the weights."""
    with torch.inference_mode(False):
        matrix = torch.tensor(_YIQ, dtype=dtype)
        return matrix.to(device), torch.linalg.inv(matrix).to(device)


def luma(images: Tensor) -> Tensor:
    """Return the luma (ITU-R BT.601), shape (N, 1, H, W)."""
    return (images * _luma_weights(images.dtype, images.device)).sum(1, keepdim=True)


def to_gray(images: Tensor) -> Tensor:
    """Return the luma in all three channels; they share memory."""
    return luma(images).expand_as(images)


def jitter_colors(
    images: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor | None = None
) -> Tensor:
    """Return images with brightness, contrast, saturation and hue changed, in this order; values in [0, 255].

    The hue turns in the YIQ plane, which is linear, instead of HSV.

    Args:
        images: shape (N, 3, H, W), float32.
        brightness: factor of each image, shape (N,), >= 0; 1 changes nothing.
        contrast: the same, around the mean luma of the image.
        saturation: the same, around the luma of the pixel.
        hue: angle of each image in radians, shape (N,), or None for none.
    """
    brightness, contrast, saturation = (factor.view(-1, 1, 1, 1) for factor in (brightness, contrast, saturation))
    images = (images * brightness).clamp(0, 255)
    mean = luma(images).mean((2, 3), keepdim=True)
    images = (mean + (images - mean) * contrast).clamp(0, 255)
    gray = luma(images)
    images = gray + (images - gray) * saturation
    return (images if hue is None else _turn_hue(images, hue)).clamp(0, 255)


def _turn_hue(images: Tensor, angle: Tensor) -> Tensor:
    to_yiq, from_yiq = _yiq(images.dtype, images.device)
    turn = torch.zeros(len(images), 3, 3, device=images.device)
    turn[:, 0, 0] = 1
    turn[:, 1, 1] = turn[:, 2, 2] = angle.cos()
    turn[:, 1, 2], turn[:, 2, 1] = -angle.sin(), angle.sin()
    matrix = from_yiq @ turn @ to_yiq  # (N, 3, 3)
    return torch.einsum("nij,njhw->nihw", matrix, images)


def gaussian_blur(images: Tensor, sigma: Tensor) -> Tensor:
    """Return images (N, C, H, W) blurred by Gaussians of ``sigma`` pixels, > 0, (N,) or (1,), normalised at the border.

    A blur is one matrix product per side: a convolution with a kernel per image is slow on every device.
    """

    def kernel(side: int) -> Tensor:
        at = torch.arange(side, device=images.device, dtype=torch.float32)
        weight = torch.exp(-0.5 * ((at[:, None] - at[None, :]) / sigma.view(-1, 1, 1)).square())
        return (weight / weight.sum(2, keepdim=True)).unsqueeze(1)  # (N, 1, side, side)

    height, width = images.shape[2:]
    return kernel(height) @ images @ kernel(width).transpose(2, 3)
