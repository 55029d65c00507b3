"""Conversion of every pixel mode to 8-bit RGB, by one stated rule each.

| what | rule |
| --- | --- |
| palette, 1-bit, grey, YCbCr, CMYK, YCCK | Pillow's conversion (Adobe's inverted CMYK is righted on reading) |
| alpha, in any form | composited on white; on black where what is drawn would be lost on white: see ``background`` |
| 16-bit grey | v x 255 / white, rounded; white is 65535, or as the caller states (``deep.py``) |
| 9 to 15-bit grey | v x 255 / its own white; TIFF's white-is-zero inverted |
| 16-bit colour | the high byte; where the caller states a white, as 16-bit grey |
| float grey | v x 255, rounded, where all values are in [0, 1]; anything else is `unsupported` |
| 32-bit or signed integers, LAB | `unsupported`: the file does not say what is white, or nothing here converts it |
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scoring.images.deep import WHITE, bands, is_deep_grey, to_eight_bits
from scoring.images.geometry import Pixels
from scoring.images.outcome import DecodeError

LEAST_CONTRAST = 0.1  # minimal contrast with the background, root mean square as a share of white
_HALF = 128  # alpha from which a pixel counts as drawn
_EVERY = 8  # every such row is tested for whether an image is dark enough on white
_PLAIN = {"RGB", "RGBX", "L", "1", "P", "CMYK", "YCbCr", "HSV"}
_ALPHA = {"RGBA", "RGBa", "LA", "La", "PA"}


def to_rgb(image: Image.Image, *, white: int = WHITE, is_inverted: bool = False) -> Pixels:
    """Return a loaded image as 8-bit RGB, shape (H, W, 3).

    Args:
        image: any mode.
        white: the value of white in deep grey, 255 to 65535.
        is_inverted: 0 is white in deep grey.

    Raises:
        DecodeError: the mode has no rule (``unsupported``).
    """
    if image.mode in _ALPHA or (image.mode in _PLAIN and image.has_transparency_data):  # even if fully opaque
        return _composited(image)
    return _in_bands(image, _conversion_of(image, white, is_inverted))


def background(histogram: NDArray[np.int64]) -> int:
    """Return the grey on which a transparent drawing is composited: 255, or 0 if it would be invisible on white.

    Invisible: the drawn pixels differ from white by less than 10 % of white, root mean square over pixels and channels.
    Pale product photographs with shadows or edges are not.

    Args:
        histogram: counts of the levels of the drawn pixels over all channels, shape (256,).

    >>> background(np.eye(256, dtype=int)[255]), background(np.eye(256, dtype=int)[200])
    (0, 255)
    """
    n = int(histogram.sum())
    lack = histogram @ ((255 - np.arange(256)) / 255) ** 2
    return 0 if n and lack < n * LEAST_CONTRAST**2 else 255


def _in_bands(image: Image.Image, convert: Callable[[Image.Image], NDArray[np.uint8]]) -> NDArray[np.uint8]:
    out = np.empty((image.height, image.width, 3), dtype=np.uint8)
    for rows, band in _bands(image):
        out[rows] = convert(band)
    return out


def _bands(image: Image.Image) -> Iterator[tuple[slice, Image.Image]]:
    for top, bottom in bands(image):
        is_single = bottom - top == image.height
        yield slice(top, bottom), image if is_single else image.crop((0, top, image.width, bottom))


def _conversion_of(image: Image.Image, white: int, is_inverted: bool) -> Callable[[Image.Image], NDArray[np.uint8]]:
    if is_deep_grey(image):
        hidden = image.info.get("transparency")
        if not isinstance(hidden, int):
            return lambda band: _deep_grey(band, white, is_inverted)[:, :, None]
        return _transparent_grey(image, hidden, white, is_inverted)
    if image.mode == "F":
        return lambda band: _unit_float(band)
    if image.mode in _PLAIN:
        return lambda band: np.asarray(band.convert("RGB"))
    raise DecodeError("unsupported", f"pixels of mode {image.mode} have no stated meaning as RGB; convert it first")


def _straight(band: Image.Image) -> Image.Image:
    return (band.convert("LA") if band.mode == "La" else band).convert("RGBA")


def _composited(image: Image.Image) -> Pixels:
    """Return an image with alpha composited on white, or on black if it would hardly be visible on white."""
    on_white = _in_bands(image, lambda band: _composited_on(band, 255))
    if 255 - on_white[::_EVERY].mean() >= LEAST_CONTRAST * 255:  # then the drawn pixels have enough contrast too
        return on_white
    return on_white if background(_drawn(image)) else _in_bands(image, lambda band: _composited_on(band, 0))


def _composited_on(band: Image.Image, behind: int) -> NDArray[np.uint8]:
    seen = _straight(band)
    canvas = Image.new("RGB", band.size, (behind,) * 3)
    canvas.paste(seen, (0, 0), seen)
    return np.asarray(canvas)


def _drawn(image: Image.Image) -> NDArray[np.int64]:
    """Return the histogram (256,) over the channels of pixels that are at least half opaque, or of all visible ones.

    Zeros if nothing is visible, or nothing is transparent.
    """
    solid, faint = np.zeros(256, np.int64), np.zeros(256, np.int64)
    is_opaque = True
    for _, band in _bands(image):
        seen = _straight(band)
        alpha = seen.getchannel("A")
        is_opaque &= alpha.getextrema()[0] == 255
        for total, least in ((solid, _HALF), (faint, 1)):
            mask = alpha.point([255 * (level >= least) for level in range(256)])
            total += np.reshape(seen.histogram(mask), (4, 256))[:3].sum(0)
    if is_opaque:
        return np.zeros(256, np.int64)
    return solid if solid.any() else faint


def _deep_grey(band: Image.Image, white: int, is_inverted: bool) -> NDArray[np.uint8]:
    grey = to_eight_bits(np.asarray(band), white)
    return 255 - grey if is_inverted else grey


def _transparent_grey(
    image: Image.Image, hidden: int, white: int, is_inverted: bool
) -> Callable[[Image.Image], NDArray[np.uint8]]:
    """Return the function that converts deep grey whose value ``hidden`` is transparent."""
    levels = np.zeros(256, np.int64)
    for _, band in _bands(image):
        drawn = np.asarray(band) != hidden
        levels += np.bincount(_deep_grey(band, white, is_inverted)[drawn], minlength=256)
    behind = background(levels)

    def convert(band: Image.Image) -> NDArray[np.uint8]:
        grey = _deep_grey(band, white, is_inverted)
        grey[np.asarray(band) == hidden] = behind
        return grey[:, :, None]

    return convert


def _unit_float(band: Image.Image) -> NDArray[np.uint8]:
    values = np.asarray(band)
    low, high = float(values.min()), float(values.max())
    if not (low >= 0.0 and high <= 1.0):  # NaN fails both
        raise DecodeError("unsupported", f"expected float pixels in [0, 1], got values in [{low:g}, {high:g}]")
    return np.rint(values * np.float32(255)).astype(np.uint8)[:, :, None]
