"""Sizes, the antialiased resize, orientation and the centre crop."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # (H, W, 3) RGB

MAX_ASPECT = 8  # an image longer than this times its short side is cut to its middle before it is resized


@dataclass(frozen=True)
class Raster:
    """Decoded pixels before resize and orientation.

    Attributes:
        pixels: uint8 RGB, (H, W, 3); smaller than ``height`` x ``width`` if the decoder reduced the image.
        width: of the image as stored, at full size.
        height: the same.
        orientation: EXIF orientation still to be applied, 1 to 8.
        highest: largest value of an image with 16 bits per channel, or an upper bound; else None.
    """

    pixels: Pixels
    width: int
    height: int
    orientation: int = 1
    highest: int | None = None


def resized_size(width: int, height: int, short_side: int) -> tuple[int, int]:
    """Return (width, height) with the short side set to ``short_side``; the long side is rounded down.

    >>> resized_size(500, 375, 224)
    (298, 224)
    """
    if width <= height:
        return short_side, max(short_side, short_side * height // width)
    return max(short_side, short_side * width // height), short_side


def dct_scale(width: int, height: int, short_side: int) -> int:
    """Return the factor by which a JPEG may be reduced while decoding: 8, 4, 2 or 1.

    The largest factor that divides both sides (else the encoder's padding would enter the last column) and leaves
    enough pixels for the resized image to agree with a full decode to 50 dB: 4 times the target, or 3.3 times for
    factors up to 4 of images of 2000 pixels or more, which have less detail per pixel. The factor is 1 below 512 pixels
    (little gain, and hard edges miss the 50 dB), and for images that ``cut_middle`` cuts.

    >>> dct_scale(4000, 3000, 224), dct_scale(500, 375, 224), dct_scale(640, 480, 64)
    (4, 1, 1)
    """
    short = min(width, height)
    if short < 512 or max(width, height) > MAX_ASPECT * short:
        return 1
    for scale in (8, 4, 2):
        least = 3.3 if short >= 2000 and scale <= 4 else 4.0
        if width % scale == 0 and height % scale == 0 and short >= least * scale * short_side:
            return scale
    return 1


def cut_middle(raster: Raster) -> Raster:
    """Return the middle of an image more than 8 times as long as wide; any other unchanged.

    The square cropped later is the same up to a fraction of a pixel, and the resized long side is bounded by 8 times
    the short side.
    """
    width, height = raster.width, raster.height
    limit = MAX_ASPECT * min(width, height)
    if max(width, height) <= limit:
        return raster
    start = (max(width, height) - limit) // 2
    if width > height:
        return Raster(raster.pixels[:, start : start + limit], limit, height, raster.orientation)
    return Raster(raster.pixels[start : start + limit], width, limit, raster.orientation)


def resize(pixels: Pixels, width: int, height: int, interpolation: str) -> Pixels:
    """Return the image at ``width`` x ``height`` pixels, antialiased.

    torch's filter for uint8 in channels-last order equals Pillow's to within 1 level, is about four times as fast, and
    always runs on one thread.
    """
    if pixels.shape[:2] == (height, width):
        return pixels
    import torch  # not at the top: decoder processes do not need torch
    from torch.nn.functional import interpolate

    batch = torch.from_numpy(np.ascontiguousarray(pixels))[None].permute(0, 3, 1, 2)  # (1, 3, H, W), channels last
    resized = interpolate(batch, size=(height, width), mode=interpolation, antialias=True)
    out: Pixels = resized[0].permute(1, 2, 0).numpy()
    return out


def orient(pixels: Pixels, orientation: int) -> Pixels:
    """Return the image as displayed under EXIF orientation 1 to 8 (a view; the EXIF standard's table)."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels


def displayed_size(width: int, height: int, orientation: int) -> tuple[int, int]:
    """Return (width, height) as displayed."""
    return (height, width) if orientation in (5, 6, 7, 8) else (width, height)


def centre_crop(pixels: Pixels, size: int) -> Pixels:
    """Return the central ``size`` x ``size`` pixels (a view); odd margins are rounded half to even."""
    height, width = pixels.shape[:2]
    top, left = round((height - size) / 2), round((width - size) / 2)
    return pixels[top : top + size, left : left + size]
