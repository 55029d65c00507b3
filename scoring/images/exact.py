"""The exact pixels of an image as a digest: the same for a PNG, a BMP and a lossless WebP of one image.

| what | what is hashed |
| --- | --- |
| JPEG | libjpeg-turbo's full decode; Pillow's is the same in every pixel, so a PNG that Pillow made of it agrees |
| palette, 1-bit, grey, YCbCr, CMYK, HSV | Pillow's conversion to RGB: other inks of equal RGB agree |
| alpha | RGBA; where nothing is seen (alpha 0) the colour counts as 0; if all is opaque, RGB |
| 9 to 16-bit grey | all bits; where 8 bits hold every value exactly, those 8, as RGB |
| 16-bit colour in PNG and TIFF | Pillow reads the high bytes only, so it agrees with nothing but the same bytes |
| AVIF and HEIC of more than 8 bits | the 8 bits that their readers give |
| float grey | the float32 values, which agree with no other type |
| animation, pages | the first image and the bytes of the file: agrees with nothing but the same bytes |
| EXIF orientation | applied |
| ICC profiles, other metadata | ignored |
"""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scoring.images.colour import is_transparent, to_rgb, to_rgba
from scoring.images.geometry import orient
from scoring.images.pillow import PillowFile, named_failures

Channels = NDArray[Any]  # (H, W, channels): uint8, uint16 or float32

_BAND = 2_000_000  # pixels looked at or hashed at a time
_MIXED = ("1", "L", "P", "RGB", "RGBA", "LA", "PA")  # what Pillow makes of 16-bit colour, and of grey with alpha


def digest_by_pillow(file: PillowFile, data: bytes, *, is_alone: bool) -> str:
    """Return the digest of the pixels of an opened file; raises as ``PillowFile.load``.

    Args:
        file: opened, not loaded.
        data: the encoded image.
        is_alone: it is the only image of the file; the others may differ where the first are equal.
    """
    orientation, _ = file.orientation()
    white, is_inverted = file.grey_scale()
    bits = file.bits()
    file.load(allow_truncated=False)
    if file.name == "png":  # which may state its orientation behind the pixels
        orientation, _ = file.orientation()
    with named_failures(data, file.name):
        kind, pixels = _exact(file.image, white, is_inverted)
    if not is_alone or (bits > 8 and kind in ("RGB", "RGBA") and file.image.mode in _MIXED):
        kind = f"{kind} of {hashlib.sha256(data).hexdigest()}"
    return digest(kind, orient(pixels, orientation))


def digest(kind: str, pixels: Channels) -> str:
    """Hash an image of shape (H, W, channels) band by band, so that no copy of a turned one is needed."""
    height, width = pixels.shape[:2]
    hasher = hashlib.sha256(f"{kind} {width} {height}\n".encode())
    rows = max(1, _BAND // width)
    for top in range(0, height, rows):
        hasher.update(np.ascontiguousarray(pixels[top : top + rows]).data)
    return hasher.hexdigest()


def _exact(image: Image.Image, white: int, is_inverted: bool) -> tuple[str, Channels]:
    """Return the exact pixels of a loaded image, and their kind; shape (H, W, channels), little-endian."""
    if image.mode.startswith("I;16"):
        return _deep_grey(image, white, is_inverted)
    if image.mode == "F":
        to_rgb(image)  # refuses what has no stated meaning
        return "float", np.asarray(image).astype("<f4")[:, :, None] + np.float32(0)  # -0 becomes 0
    if not is_transparent(image):
        return "RGB", to_rgb(image)
    pixels = to_rgba(image)
    if all((band[..., 3] == 255).all() for band in _bands(pixels)):
        return "RGB", pixels[..., :3]
    for band in _bands(pixels):
        band[band[..., 3] == 0] = 0
    return "RGBA", pixels


def _deep_grey(image: Image.Image, white: int, is_inverted: bool) -> tuple[str, Channels]:
    """Return grey of up to 16 bits with a second channel where one value is transparent, or its exact 8-bit copy."""
    values = np.minimum(np.asarray(image), white).astype("<u2")[:, :, None]
    hidden = image.info.get("transparency")
    seen = values != hidden if isinstance(hidden, int) else np.ones((1, 1, 1), bool)
    if is_inverted:
        values = white - values
    values = np.where(seen, values, 0).astype("<u2") if not seen.all() else values
    if all((band.astype(np.uint32) * 255 % white == 0).all() for band in _bands(values)):
        grey = np.empty(values.shape, np.uint8)
        for band, out in zip(_bands(values), _bands(grey), strict=True):
            out[:] = band.astype(np.uint32) * 255 // white
        if seen.all():
            return "RGB", np.broadcast_to(grey, (*grey.shape[:2], 3))
        return "RGBA", np.concatenate([grey, grey, grey, np.where(seen, np.uint8(255), np.uint8(0))], axis=2)
    if seen.all():
        return f"grey to {white}", values
    return f"grey to {white} with alpha", np.concatenate([values, seen.astype("<u2")], axis=2)


def _bands(pixels: Channels) -> list[Channels]:
    rows = max(1, _BAND // pixels.shape[1])
    return [pixels[top : top + rows] for top in range(0, len(pixels), rows)]
