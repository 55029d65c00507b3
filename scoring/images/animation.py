"""Choice of the frame that represents an animation: the first, or if it is flat, the frame with most contrast."""

import numpy as np
from PIL import ImageFile

from scoring.images.geometry import Pixels

LEAST_CONTRAST = 4.0  # grey levels, standard deviation: an image with less is flat, as the first of a fade from black
MOST_PICTURES = 64  # maximal number of frames examined
MOST_PIXELS = 64_000_000  # maximal number of their pixels together
_SHOWN = ("gif", "png", "webp", "tiff", "avif")  # formats of several images of one subject; others name a main one
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
