"""Pixels of 9 to 16 bits per channel: their white level, and the colour bits that Pillow drops.

Cameras and scanners store 10, 12 or 14 bits in files of 16 without recording the depth; with the white level of 16 bits
such images are nearly black. The caller states the white level, which ``curate score`` finds for a whole dataset.
"""

import sys
from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile

from scoring.images.outcome import DecodeError
from scoring.images.sniff import sniff

WHITE = 65535  # of 16 bits
LEAST_WHITE = 255  # 8 bits of data in a file of 16
WHITES = tuple((1 << bits) - 1 for bits in (8, 10, 12, 14, 16))  # white levels of common sensor depths
_BAND = 2_000_000  # pixels at a time
_OTHER_END = {";16B": ";16L", ";16L": ";16B", ";16N": ";16B" if sys.byteorder == "little" else ";16L"}
_GREY_ALPHA = "LA;16B"  # of PNG: 4 bytes a pixel, as many as RGBA has


def white_for(highest: int) -> int:
    """Return the white level of the smallest sensor depth that can hold a value.

    >>> white_for(4080), white_for(4096), white_for(200)
    (4095, 16383, 255)
    """
    return next(white for white in WHITES if highest <= white)


def may_be_deep(data: bytes) -> bool:
    """Return whether an encoded image may have 16 bits per channel: a PNG that declares it, any TIFF or PGM."""
    name = sniff(data)
    if name == "png":
        return data[24:25] == b"\x10"  # the depth in IHDR, which comes first
    return name == "tiff" or (name == "pnm" and data[1:2] in b"25")


def to_eight_bits(values: NDArray[np.uint16], white: int) -> NDArray[np.uint8]:
    """Return v x 255 / white, rounded and clipped at white.

    >>> to_eight_bits(np.array([0, 2047, 4095, 5000], np.uint16), 4095)
    array([  0, 127, 255, 255], dtype=uint8)
    """
    return _table(white)[values]


@cache
def _table(white: int) -> NDArray[np.uint8]:
    levels = np.minimum(np.arange(WHITE + 1, dtype=np.uint32), white)
    table: NDArray[np.uint8] = ((levels * 255 + white // 2) // white).astype(np.uint8)
    return table


def is_deep_grey(picture: Image.Image) -> bool:
    """Return whether Pillow keeps all bits of a grey image."""
    return picture.mode.startswith("I;16")


def highest_grey(picture: Image.Image) -> int:
    """Return the largest value of a loaded deep grey image."""
    return int(np.asarray(picture).max())


def highest_colour(picture: Image.Image) -> int:
    """Return an upper bound on the largest value of 16-bit colour, from the high bytes, without alpha."""
    bands = [picture.getchannel(band) for band in picture.getbands() if band != "A"]
    return max(int(np.asarray(band).max()) for band in bands) << 8 | 255


def low_bytes(picture: ImageFile.ImageFile) -> None:
    """Make an unloaded image of 16-bit colour return the low byte of each channel instead of the high one.

    Pillow's decoder of the opposite byte order reads the other byte of each pair. Grey with alpha, which has no such
    decoder, is read as four channels: high and low byte of grey, then of alpha. Raises DecodeError (``unsupported``) if
    Pillow cannot read the low bytes of this layout.
    """
    tiles = []
    for tile in picture.tile:
        mode, *rest = tile.args if isinstance(tile.args, tuple) else (tile.args,)
        end = str(mode)[-4:]
        if mode == _GREY_ALPHA:
            other = "RGBA"
        elif end in _OTHER_END:
            other = str(mode).removesuffix(end) + _OTHER_END[end]
        else:
            raise DecodeError("unsupported", f"16-bit colour stored as {mode} is read by its high bytes, without white")
        tiles.append(tile._replace(args=(other, *rest) if isinstance(tile.args, tuple) else other))
    picture.tile = tiles


def is_grey_with_alpha(picture: ImageFile.ImageFile) -> bool:
    """Return whether an unloaded image is 16-bit grey with alpha."""
    return any(tile.args == _GREY_ALPHA for tile in picture.tile)


def scaled_colour(
    high: Image.Image, low: Image.Image, white: int, *, grey_alpha: bool = False
) -> tuple[Image.Image, int]:
    """Return 16-bit colour as 8 bits with white level ``white``, and its largest value; alpha is kept.

    Args:
        high: loaded, the high byte of each channel.
        low: loaded after ``low_bytes``.
        white: the value that becomes 255.
        grey_alpha: the image is grey with alpha, and ``low`` has both bytes of both channels.
    """
    channels = np.empty((high.height, high.width, len(high.getbands())), np.uint8)
    alpha = high.getbands().index("A") if "A" in high.getbands() else None
    highest = 0
    for top, bottom in bands(high):
        values = _values(high, low, (0, top, high.width, bottom), grey_alpha=grey_alpha)
        if alpha is not None:
            channels[top:bottom, :, alpha] = values[..., alpha] >> 8
        colours = [at for at in range(values.shape[2]) if at != alpha]
        channels[top:bottom, :, colours] = to_eight_bits(values[..., colours], white)
        highest = max(highest, int(values[..., colours].max()))
    return Image.fromarray(channels, high.mode), highest


def _values(
    high: Image.Image, low: Image.Image, box: tuple[int, int, int, int], *, grey_alpha: bool
) -> NDArray[np.uint16]:
    """Return the 16-bit values of a band of rows, shape (H, W, channels)."""
    above, below = np.asarray(high.crop(box)).astype(np.uint16), np.asarray(low.crop(box)).astype(np.uint16)
    if grey_alpha:
        grey, alpha = (below[..., at] << np.uint16(8) | below[..., at + 1] for at in (0, 2))
        return np.stack([grey, grey, grey, alpha], axis=2)
    both: NDArray[np.uint16] = above << np.uint16(8) | below
    return both


def bands(picture: Image.Image) -> Iterator[tuple[int, int]]:
    """Yield the first row and the end of each band of an image, converted at a time to save memory."""
    rows = max(1, _BAND // picture.width)
    for top in range(0, picture.height, rows):
        yield top, min(picture.height, top + rows)
