"""Image signatures: 255 integers whose cosine is the similarity of two images, 32 of colour, and the perceptual hash.

The 255 integers describe only grey, so red and blue objects may look the same; the 32 integers of colour separate them.
From a signature follow those of other views of the image: mirrored, rotated, or both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

SIDE = 32  # pixels of the grey image that is hashed
HASHED = 8  # frequencies kept along each axis
LUMA = (0.299, 0.587, 0.114)  # of red, green and blue: ITU-R BT.601


def _waves(kept: int) -> NDArray[np.float64]:
    k, i = np.arange(kept)[:, None], np.arange(SIDE)
    return np.cos(np.pi * k * (2 * i + 1) / (2 * SIDE))


_LUMA = np.array(LUMA)
_HASH_DCT = 2.0 * _waves(HASHED)  # (8, 32)


def perceptual_hash(image: NDArray[np.uint8]) -> int:
    """Return the 64-bit DCT hash of a 32 x 32 image; similar images differ in few bits.

    The grey image (0.299 R + 0.587 G + 0.114 B) goes through the unnormalised two-dimensional DCT-II; each of its 64
    lowest frequencies, including DC, gives one bit: 1 if the coefficient is above their median. Bits are in row order,
    the lowest frequency most significant. Coefficients are rounded to 0.001 first, so that hashes are equal on all
    machines and an image of one colour hashes to 2**63. Raises ValueError unless ``image`` is RGB of shape (32, 32, 3).

    >>> hex(perceptual_hash(np.full((32, 32, 3), 200, dtype=np.uint8)))
    '0x8000000000000000'
    """
    if image.shape != (SIDE, SIDE, 3):
        raise ValueError(f"image must have shape (32, 32, 3), got {image.shape}")
    low = np.round(_HASH_DCT @ luma(image) @ _HASH_DCT.T, 3).ravel()  # (64,)
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


Look = Callable[[NDArray[np.int8]], NDArray[np.int8]]
KEPT = 16  # frequencies kept along each axis
WIDTH = KEPT * KEPT - 1  # numbers of a signature: the constant part is left out
WHITENING = 0.75  # frequencies f are weighted by f ** WHITENING, since photographs have less of the higher ones
CELLS = 4  # cells per axis whose mean colour is stored
CHROMA_WIDTH = 2 * CELLS * CELLS
STORED_WIDTH = WIDTH + CHROMA_WIDTH
KIND = f"dct-{KEPT} f^{WHITENING:g} chroma-{CELLS}"  # only signatures of the same kind are comparable
LARGEST = 127  # magnitude of a signature's largest number
STEPS = 256  # places of an edge of a part of an image, along a side
MARGIN = 90  # largest distance of an edge from the border, in steps
MOST_APART = 20.0  # levels of colour in any cell; resizing and JPEG of quality 15 stay below 7, and 12 in small images
LEAST_APART, APART = 5.0, 1 / 3  # for close copies: in levels, and relative to the largest chroma of either image
GREY = 4.0  # levels: an image with less colour in every cell is grey
LEAST_STRUCTURE = 1.0  # grey levels, standard deviation; an image with less has no signature

AS_IT_IS = "as it is"

# The eight symmetries of the square; turns are clockwise. Index i is EXIF orientation i + 1.
ORIENTATIONS: dict[str, int] = {
    AS_IT_IS: 0,
    "mirrored": 1,
    "rotated 180": 2,
    "upside down": 3,
    "transposed": 4,
    "rotated 90": 5,
    "transversed": 6,
    "rotated 270": 7,
}
_UNDONE_BY = {"rotated 90": "rotated 270", "rotated 270": "rotated 90"}  # all other views are their own inverse
_SWAPS_AXES = (4, 5, 6, 7)
_FLIPS_COLUMNS = (1, 2, 5, 6)  # after the swap
_FLIPS_ROWS = (2, 3, 6, 7)


def _reorder(index: int) -> NDArray[np.intp]:
    """Return the index in the original of each number of a reoriented signature, shape (255,)."""
    block = np.arange(KEPT * KEPT).reshape(KEPT, KEPT)
    return (block.T if index in _SWAPS_AXES else block).ravel()[1:] - 1


def _signs(index: int) -> NDArray[np.int8]:
    """Return the sign of each number of a reoriented signature, shape (255,)."""
    alternating = np.where(np.arange(KEPT) % 2, -1, 1)
    rows = alternating if index in _FLIPS_ROWS else np.ones_like(alternating)
    columns = alternating if index in _FLIPS_COLUMNS else np.ones_like(alternating)
    return np.outer(rows, columns).ravel()[1:].astype(np.int8)


_DCT = _waves(KEPT) * np.sqrt(2 / SIDE)  # (16, 32), orthonormal
_DCT[0] /= np.sqrt(2)
WEIGHTS = np.hypot(*np.mgrid[:KEPT, :KEPT]).ravel()[1:] ** WHITENING  # (255,)
_ORDER = [_reorder(index) for index in range(8)]
_SIGN = [_signs(index) for index in range(8)]


def signature(image: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Return the signature of a 32 x 32 image; the cosine of two is near 1 if they show the same.

    The grey image (0.299 R + 0.587 G + 0.114 B) goes through the orthonormal two-dimensional DCT-II. Its 16 x 16
    lowest frequencies but the constant one, row after row (vertical frequency u, horizontal v), are multiplied by
    f ** 0.75 with f = sqrt(u^2 + v^2), scaled so that the largest magnitude is 127, and rounded. Brightness and
    contrast are removed. Coefficients are rounded to 0.001 first, so that signatures are equal on all machines.

    A flat image gives zeros, which have no cosine: its grey, in the kept frequencies, has a standard deviation below 1
    of 255 levels, as images of one colour and patterns too fine for these frequencies.

    Returns:
        int8, shape (255,), each from -127 to 127.

    Raises:
        ValueError: unless ``image`` has shape (32, 32, 3).

    >>> step = np.zeros((32, 32, 3), dtype=np.uint8)
    >>> step[:, 16:] = 255
    >>> signature(step)[:4]  # horizontal frequencies 1, 2, 3, 4
    array([-127,    0,   97,    0], dtype=int8)
    """
    if image.shape != (SIDE, SIDE, 3):
        raise ValueError(f"image must have shape (32, 32, 3), got {image.shape}")
    low = np.round(_DCT @ luma(image) @ _DCT.T, 3).ravel()[1:]  # (255,)
    if low @ low < (LEAST_STRUCTURE * SIDE) ** 2:  # Parseval: the sum of squares is 32 x 32 variances
        return np.zeros(WIDTH, dtype=np.int8)
    weighted = low * WEIGHTS
    return np.rint(weighted * (LARGEST / np.abs(weighted).max())).astype(np.int8)


def chroma(image: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Return the mean colour of the 4 x 4 cells of a 32 x 32 image, shape (32,).

    Of an RGB image (32, 32, 3), for each cell in row order, the colour differences Cb and Cr of ITU-R BT.601 as int8,
    -127 to 127.

    >>> chroma(np.full((32, 32, 3), (255, 0, 0), np.uint8))[:4]
    array([-43, 127, -43, 127], dtype=int8)
    """
    side = SIDE // CELLS
    means = image.reshape(CELLS, side, CELLS, side, 3).mean((1, 3))
    grey = means @ LUMA
    apart = np.stack([(means[..., 2] - grey) / 1.772, (means[..., 0] - grey) / 1.402], -1)
    return np.rint(np.round(apart, 3)).clip(-127, 127).astype(np.int8).ravel()


def same_colours(first: NDArray[np.int8], second: NDArray[np.int8], *, closely: bool = False) -> NDArray[np.bool_]:
    """Return which pairs agree in colour, shape (P,); a grey second image agrees with any, since it may be a grey copy.

    Args:
        first: of ``chroma``, shape (P, 32).
        second: chroma of the images that would be dropped, shape (P, 32).
        closely: as closely as copies of another size or JPEG quality; images with little colour must be closer then.
    """
    colours = [each.astype(np.float32) for each in (first, second)]
    apart, *most = (np.sqrt(each.max(1)) for each in map(_squares, (colours[0] - colours[1], *colours)))
    limit = np.clip(APART * np.maximum(*most), LEAST_APART, MOST_APART) if closely else MOST_APART
    return (apart <= limit) | (most[1] < GREY)


def _squares(colours: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the squared length of the colour of each cell, shape (P, 16)."""
    squares = colours * colours
    lengths: NDArray[np.float32] = squares[:, ::2] + squares[:, 1::2]
    return lengths


def reorient_chroma(values: NDArray[np.int8], orientation: int) -> NDArray[np.int8]:
    """Return the chroma of the mirrored or rotated images; shape (N, 32), as ``reorient``."""
    cells = values.reshape(-1, CELLS, CELLS, 2)
    if orientation in _SWAPS_AXES:
        cells = cells.swapaxes(1, 2)
    if orientation in _FLIPS_COLUMNS:
        cells = cells[:, :, ::-1]
    if orientation in _FLIPS_ROWS:
        cells = cells[:, ::-1]
    return cells.reshape(len(values), CHROMA_WIDTH)


def check(signatures: NDArray[np.int8]) -> None:
    """Raise ValueError for anything but an array of signatures."""
    if signatures.ndim != 2 or signatures.shape[1] != WIDTH or signatures.dtype != np.int8:
        raise ValueError(f"signatures must be int8 of shape (N, {WIDTH}), got {signatures.dtype} {signatures.shape}")


def reorient(signatures: NDArray[np.int8], orientation: int) -> NDArray[np.int8]:
    """Return the signatures of the mirrored or rotated images.

    This is exact: mirroring changes the sign of the odd horizontal frequencies, flipping upside down the sign of the
    odd vertical ones, and a quarter turn also swaps the two. It holds for images of any shape, since a signature is
    computed from the whole image squeezed to 32 x 32.

    Args:
        signatures: int8, shape (N, 255), each from -127 to 127; zeros stay zeros.
        orientation: a value of ``ORIENTATIONS``, 0 to 7.

    Raises:
        ValueError: for another shape or type, or an orientation out of range.

    >>> step = np.zeros((32, 32, 3), dtype=np.uint8)
    >>> step[:, 16:] = 255
    >>> reorient(signature(step)[None], ORIENTATIONS["mirrored"])[0, :4]
    array([127,   0, -97,   0], dtype=int8)
    """
    check(signatures)
    if not 0 <= orientation < len(ORIENTATIONS):
        raise ValueError(f"orientation must be 0 to {len(ORIENTATIONS) - 1}, got {orientation}")
    turned: NDArray[np.int8] = signatures[:, _ORDER[orientation]]
    turned *= _SIGN[orientation]
    return turned


@dataclass(frozen=True)
class SignatureView:
    """One transformed view of an image.

    Attributes:
        name: such as ``mirrored``.
        apply: signatures (N, 255) int8 -> signatures of the views, (N, 255) int8; zero rows stay zero.
        undo: the inverse of ``apply``.
        undone_by: name of the inverse view.
    """

    name: str
    apply: Look
    undo: Look
    undone_by: str


def views(*, mirrored: bool = False, rotated: bool = False) -> tuple[SignatureView, ...]:
    """Return the views for finding transformed copies, identity first, each with its inverse.

    Args:
        mirrored: include the mirror image.
        rotated: include rotations by 90, 180 and 270 degrees; with ``mirrored`` all eight symmetries of the square.
    """
    turns = [AS_IT_IS]
    if rotated:
        turns = [name for name in ORIENTATIONS if mirrored or name.startswith("rotated") or name == AS_IT_IS]
    elif mirrored:
        turns.append("mirrored")
    return tuple(_view(turn) for turn in turns)


@cache
def _view(turn: str) -> SignatureView:
    undone_by = _UNDONE_BY.get(turn, turn)
    return SignatureView(turn, _look(turn), _look(undone_by), undone_by)


def _look(turn: str) -> Look:
    return _same if turn == AS_IT_IS else partial(reorient, orientation=ORIENTATIONS[turn])


def _same(signatures: NDArray[np.int8]) -> NDArray[np.int8]:
    return signatures
