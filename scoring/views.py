"""Views of an image that a reviewer would call the same image, decided by its bytes alone."""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from scoring.intervals import BRIGHTNESS, SIDE

MIRRORED = 0.5  # share of views
N_DRAWS = 5  # numbers that decide a view


def draws(contents: Sequence[str], view: int) -> NDArray[np.float64]:
    """Return what decides a view of each of N images, shape (N, 5), in [0, 1): the same wherever and whenever.

    Args:
        contents: SHA-256 of the encoded bytes of each image, hexadecimal.
        view: number of the view, from 0.
    """
    found = [hashlib.blake2b(f"{one}:{view}".encode(), digest_size=8 * N_DRAWS).digest() for one in contents]
    numbers = np.frombuffer(b"".join(found), "<u8").reshape(len(contents), N_DRAWS)
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53


def views_of(pixels: Tensor, drawn: NDArray[np.float64]) -> Tensor:
    """Return a view of each image: a window of it at its full size, perhaps mirrored, a little brighter or darker.

    Args:
        pixels: uint8, shape (N, 3, S, S).
        drawn: from ``draws``, shape (N, 5): mirrored or not, side of the window, its place across and down, light.

    Returns:
        uint8, shape (N, 3, S, S), channels last: images as they would be decoded.
    """
    where, size = pixels.device, pixels.shape[-1]
    mirrored, side, across, down, light = torch.from_numpy(drawn.T.copy()).to(where)
    share = SIDE + (1 - SIDE) * side
    line = (torch.arange(size, device=where) * 2 + 1) / size - 1  # middles of pixels, where an image is -1 to 1
    along = torch.where(mirrored < MIRRORED, -share, share)[:, None] * line + ((1 - share) * (2 * across - 1))[:, None]
    below = share[:, None] * line + ((1 - share) * (2 * down - 1))[:, None]
    grid = torch.empty(len(pixels), size, size, 2, device=where)
    grid[..., 0], grid[..., 1] = along[:, None], below[:, :, None]
    with torch.autocast(where.type, enabled=False):
        seen = F.grid_sample(
            pixels.contiguous().float(), grid, mode="bicubic", padding_mode="border", align_corners=False
        )
        factor = (1 + BRIGHTNESS * (2 * light - 1)).float().view(-1, 1, 1, 1)
        lit = seen.mul_(factor).round_().clamp_(0, 255).to(torch.uint8)
    return lit.contiguous(memory_format=torch.channels_last)
