"""Which frame of an animation stands for the file: the first, or if that is flat, the one with most contrast."""

import numpy as np
from PIL import ImageFile

from scoring.images.geometry import Pixels

LEAST_CONTRAST = 4.0  # grey levels, standard deviation: an image with less is flat, as the first of a fade from black
MOST_PICTURES = 64  # that are looked at
MOST_PIXELS = 64_000_000  # of them together
_SHOWN = ("gif", "png", "webp", "tiff", "avif")  # formats of several images of one subject; others name a main one
_SIDE = 128  # pixels of a side that are looked at, at most


def is_looked_through(name: str, n_frames: int | None) -> bool:
    """Return whether another frame of the file may stand for it; ``n_frames`` is None for many."""
    return name in _SHOWN and n_frames != 1


def contrast(pixels: Pixels) -> float:
    """Return the standard deviation of the grey of an image, in levels, from at most about 128 x 128 pixels."""
    height, width = pixels.shape[:2]
    some = pixels[:: -(-height // _SIDE), :: -(-width // _SIDE)].astype(np.float32)
    return float((some @ np.array([0.299, 0.587, 0.114], np.float32)).std())


def seek_same_size(picture: ImageFile.ImageFile, number: int, size: tuple[int, int]) -> bool:
    """Seek to a frame of an opened file; return whether it exists with this size (width, height).

    A page of another size is a thumbnail, a mask or another document.
    """
    try:
        picture.seek(number)
    except EOFError:
        return False
    return picture.size == size


def n_looked_at(width: int, height: int) -> int:
    """Return how many frames of this size are examined, including the first; at least 1."""
    return max(1, min(MOST_PICTURES, MOST_PIXELS // (width * height)))
