"""Every pixel mode to 8-bit RGB, by one stated rule each.

| what | rule |
| --- | --- |
| palette, 1-bit, grey, YCbCr, CMYK, YCCK | Pillow's conversion (Adobe's inverted CMYK is righted on reading) |
| alpha, in any form | composited on white |
| 16-bit grey | v x 255 / 65535, rounded; 9 to 15 bits by their own white; TIFF's white-is-zero inverted |
| 16-bit colour | the high byte (Pillow reads it so) |
| float grey | v x 255, rounded, where all values lie in [0, 1]; anything else is `unsupported` |
| 32-bit or signed integers, LAB | `unsupported`: the file does not say what is white, or nothing here converts it |
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scoring.images.geometry import Pixels
from scoring.images.outcome import DecodeError

_BAND = 2_000_000  # pixels converted at a time, so that a large picture needs no second copy of itself
_WHITE = (255, 255, 255)
_PLAIN = {"RGB", "RGBX", "L", "1", "P", "CMYK", "YCbCr", "HSV"}
_ALPHA = {"RGBA", "RGBa", "LA", "La", "PA"}


def to_rgb(picture: Image.Image, *, white: int = 65535, is_inverted: bool = False) -> Pixels:
    """Return a loaded picture as 8-bit RGB, shape (H, W, 3).

    Args:
        picture: any mode.
        white: of 16-bit grey, the value that is white, 511 to 65535.
        is_inverted: of 16-bit grey, 0 is white.

    Raises:
        DecodeError: the mode has no rule (``unsupported``).
    """
    return _in_bands(picture, _rule(picture, white, is_inverted), 3)


def to_rgba(picture: Image.Image) -> NDArray[np.uint8]:
    """Return a loaded picture for which ``is_transparent`` as 8-bit RGBA, not premultiplied, shape (H, W, 4)."""
    return _in_bands(picture, lambda band: np.asarray(_straight(band)), 4)


def is_transparent(picture: Image.Image) -> bool:
    """Return whether a picture of 8-bit channels has alpha in any form, be it all opaque."""
    return picture.mode in _ALPHA or (picture.mode in _PLAIN and picture.has_transparency_data)


def _in_bands(
    picture: Image.Image, convert: Callable[[Image.Image], NDArray[np.uint8]], channels: int
) -> NDArray[np.uint8]:
    width, height = picture.size
    rows = max(1, _BAND // width)
    out = np.empty((height, width, channels), dtype=np.uint8)
    for top in range(0, height, rows):
        bottom = min(height, top + rows)
        whole = rows >= height
        band = picture if whole else picture.crop((0, top, width, bottom))
        out[top:bottom] = convert(band)
    return out


def _rule(picture: Image.Image, white: int, is_inverted: bool) -> Callable[[Image.Image], NDArray[np.uint8]]:
    if picture.mode.startswith("I;16"):
        return lambda band: _sixteen_bit(band, white, is_inverted)
    if picture.mode == "F":
        return lambda band: _unit_float(band)
    if is_transparent(picture):
        return _on_white
    if picture.mode in _PLAIN:
        return lambda band: np.asarray(band.convert("RGB"))
    raise DecodeError("unsupported", f"pixels of mode {picture.mode} have no stated meaning as RGB")


def _straight(band: Image.Image) -> Image.Image:
    return (band.convert("LA") if band.mode == "La" else band).convert("RGBA")


def _on_white(band: Image.Image) -> NDArray[np.uint8]:
    seen = _straight(band)
    canvas = Image.new("RGB", band.size, _WHITE)
    canvas.paste(seen, (0, 0), seen)
    return np.asarray(canvas)


def _sixteen_bit(band: Image.Image, white: int, is_inverted: bool) -> NDArray[np.uint8]:
    values = np.minimum(np.asarray(band).astype(np.uint32), white)
    grey = ((values * 255 + white // 2) // white).astype(np.uint8)
    if is_inverted:
        grey = 255 - grey
    hidden = band.info.get("transparency")
    if isinstance(hidden, int):
        grey[values == hidden] = 255
    return grey[:, :, None]


def _unit_float(band: Image.Image) -> NDArray[np.uint8]:
    values = np.asarray(band)
    low, high = float(values.min()), float(values.max())
    if not (low >= 0.0 and high <= 1.0):  # NaN fails both
        raise DecodeError("unsupported", f"expected float pixels in [0, 1], got values in [{low:g}, {high:g}]")
    return np.rint(values * np.float32(255)).astype(np.uint8)[:, :, None]
