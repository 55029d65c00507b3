"""The perceptual hash: 64 bits, stable under recompression and resizing."""

import numpy as np
from numpy.typing import NDArray

SIDE = 32  # pixels of the grey image that is hashed
_KEPT = 8  # frequencies kept along each axis
LUMA = (0.299, 0.587, 0.114)  # of red, green and blue: ITU-R BT.601


def _dct_matrix(n: int, kept: int) -> NDArray[np.float64]:
    k = np.arange(kept)[:, None]
    i = np.arange(n)[None, :]
    return 2.0 * np.cos(np.pi * k * (2 * i + 1) / (2 * n))


_LUMA = np.array(LUMA)
_DCT = _dct_matrix(SIDE, _KEPT)  # (8, 32)


def perceptual_hash(image: NDArray[np.uint8]) -> int:
    """Return the 64-bit DCT hash of a 32 x 32 image; similar images differ in few bits.

    The grey image (0.299 R + 0.587 G + 0.114 B) goes through the unnormalised two-dimensional DCT-II; of its
    64 lowest frequencies, DC among them, each gives one bit: 1 where the coefficient is above their median. Rows of
    the block follow one another, the lowest frequency is the most significant bit. Coefficients are rounded to 0.001
    first, so that rounding noise of another machine decides nothing and an image of one colour hashes to 2**63.

    Args:
        image: uint8 RGB, shape (32, 32, 3).

    Returns:
        the hash, in [0, 2**64).

    Raises:
        ValueError: if the shape is another.

    >>> hex(perceptual_hash(np.full((32, 32, 3), 200, dtype=np.uint8)))
    '0x8000000000000000'
    """
    if image.shape != (SIDE, SIDE, 3):
        raise ValueError(f"image must have shape (32, 32, 3), got {image.shape}")
    low = np.round(_DCT @ luma(image) @ _DCT.T, 3).ravel()  # (64,)
    in_order = np.sort(low)
    bits = low > (in_order[31] + in_order[32]) / 2  # the median, without what np.median checks
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def luma(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the grey of an RGB image of shape (H, W, 3): 0.299 R + 0.587 G + 0.114 B, shape (H, W)."""
    flat: NDArray[np.float64] = image.reshape(-1, 3).astype(np.float64) @ _LUMA
    return flat.reshape(image.shape[:2])


def hamming(a: int, b: int) -> int:
    """Return the number of bits in which two hashes differ: 0 for equal, about 32 for unrelated images.

    >>> hamming(0b1100, 0b1010)
    2
    """
    return (a ^ b).bit_count()
