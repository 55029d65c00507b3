"""Files of several images: the largest one of an icon, and the frame that represents an animation.

An animation is represented by its first frame, or if that is flat, by the frame with most contrast.
"""

import io

import numpy as np
from PIL import BmpImagePlugin, IcoImagePlugin, ImageFile, PngImagePlugin

from scoring.images.geometry import Pixels

FLAT = 4.0  # grey levels, standard deviation: an image with less is flat, as the first of a fade from black
MOST_PICTURES = 64  # maximal number of frames examined
MOST_PIXELS = 64_000_000  # maximal number of their pixels together
_SHOWN = ("gif", "png", "webp", "tiff", "avif")  # formats of several images of one subject; others name a main one
MOST_ICON_PIXELS = 4_000_000  # Pillow decodes an icon when it opens it; the directory of one states 256 x 256 at most
_PNG = b"\x89PNG\r\n\x1a\n"
_SIDE = 128  # pixels per side that are sampled, at most


def is_looked_through(name: str, n_frames: int | None) -> bool:
    """Return whether another frame may represent a file of this format; ``n_frames`` is None for many."""
    return name in _SHOWN and n_frames != 1


def contrast(pixels: Pixels) -> float:
    """Return the standard deviation of grey, in levels of 0 to 255, from at most about 128 x 128 pixels."""
    height, width = pixels.shape[:2]
    some = pixels[:: -(-height // _SIDE), :: -(-width // _SIDE)].astype(np.float32)
    return float((some @ np.array([0.299, 0.587, 0.114], np.float32)).std())


def seek_same_size(picture: ImageFile.ImageFile, number: int, size: tuple[int, int]) -> bool:
    """Seek to a frame of an opened file; return whether it exists with this size (width, height).

    A frame of another size is a thumbnail, a mask or another document.
    """
    try:
        picture.seek(number)
    except EOFError:
        return False
    return picture.size == size


def n_looked_at(width: int, height: int) -> int:
    """Return how many frames of this size are examined, including the first; at least 1."""
    return max(1, min(MOST_PICTURES, MOST_PIXELS // (width * height)))


def icon_size(data: bytes) -> tuple[int, int]:
    """Return (width, height) of the largest image in the directory, the one that Pillow would decode.

    Raises what Pillow raises on broken headers, and IndexError if there is no image.
    """
    stream = io.BytesIO(data)
    largest = IcoImagePlugin.IcoFile(stream).entry[0]
    stream.seek(largest.offset)
    is_png = stream.read(len(_PNG)) == _PNG
    stream.seek(largest.offset)
    if is_png:
        return PngImagePlugin.PngImageFile(stream, "").size
    width, height = BmpImagePlugin.DibImageFile(stream, "").size
    return width, height // 2  # the mask is below the image


def count_icons(picture: ImageFile.ImageFile) -> int:
    """Return the number of images in an opened icon."""
    return len(picture.ico.entry) if isinstance(picture, IcoImagePlugin.IcoImageFile) else 1
