"""Other views of a picture, computed from its signature alone: mirrored, turned, cropped; in any combination."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from scoring.images.phash import SIDE
from scoring.images.signature import KEPT, LARGEST, ORIENTATIONS, WEIGHTS, reorient

BLOCK = 8192  # signatures reframed at a time
SAMPLES = 64  # points along an axis at which a cropped picture is looked at
AS_IT_IS = "as it is"


@dataclass(frozen=True)
class View:
    """One way to look at a picture again.

    Attributes:
        name: in words, such as ``mirrored, cropped to 90% in the centre``.
        apply: signatures (N, 255) int8 -> signatures of the views, (N, 255) int8; zero rows stay zero.
        both_ways: whether, with the other views beside it, a pair is found from either side: so for mirrored and
            turned pictures, while a crop is found from its whole picture, and not the whole from its crop.
    """

    name: str
    apply: Callable[[NDArray[np.int8]], NDArray[np.int8]]
    both_ways: bool = True


def views(*, mirrored: bool = False, rotated: bool = False, cropped: bool = False) -> tuple[View, ...]:
    """Return the views that find copies of a kind, the picture as it is first.

    Args:
        mirrored: also left and right exchanged.
        rotated: also turned by 90, 180 and 270 degrees; with ``mirrored`` all eight symmetries of the square.
        cropped: also crops: to 95, 90, 85 and 80 % of each side in the centre, and to 90 % in the corners and at the
            edges; twelve times the work.
    """
    turns = [AS_IT_IS]
    if rotated:
        turns = [name for name in ORIENTATIONS if mirrored or name.startswith("rotated") or name == AS_IT_IS]
    elif mirrored:
        turns.append("mirrored")
    return tuple(_view(turn, frame) for frame in (FRAMES if cropped else FRAMES[:1]) for turn in turns)


@dataclass(frozen=True)
class Frame:
    """A part of a picture, in fractions of its height and width."""

    name: str
    top: float = 0.0
    left: float = 0.0
    side: float = 1.0


def _frames() -> Iterable[Frame]:
    yield Frame("")
    for side in (0.95, 0.9, 0.85, 0.8):
        yield Frame(f"cropped to {side:.0%} in the centre", (1 - side) / 2, (1 - side) / 2, side)
    for vertical, top in (("top", 0.0), ("middle", 0.05), ("bottom", 0.1)):
        for horizontal, left in (("left", 0.0), ("middle", 0.05), ("right", 0.1)):
            if (vertical, horizontal) != ("middle", "middle"):
                yield Frame(f"cropped to 90% at the {vertical} {horizontal}", top, left, 0.9)


FRAMES = tuple(_frames())


@cache
def _view(turn: str, frame: Frame) -> View:
    def apply(signatures: NDArray[np.int8]) -> NDArray[np.int8]:
        turned = reorient(signatures, ORIENTATIONS[turn]) if turn != AS_IT_IS else signatures
        return reframe(turned, frame) if frame.side < 1 else turned

    words = [word for word in (turn if turn != AS_IT_IS else "", frame.name) if word]
    return View(", ".join(words) or AS_IT_IS, apply, both_ways=frame.side == 1)


def reframe(signatures: NDArray[np.int8], frame: Frame) -> NDArray[np.int8]:
    """Return the signatures of a part of each picture.

    A signature holds a cosine series. The part's picture is that series between the frame's edges, so its own
    frequencies are a linear map of the old ones, the same along each axis; what the signature left out of the picture
    (finer than 16 waves) is missing in the part too.

    Args:
        signatures: int8, shape (N, 255).
        frame: inside the picture.

    Returns:
        int8, shape (N, 255), largest magnitude 127.
    """
    vertical = _axis(frame.top, frame.top + frame.side)
    horizontal = _axis(frame.left, frame.left + frame.side)
    out = np.zeros_like(signatures)
    for start in range(0, len(signatures), BLOCK):
        part = signatures[start : start + BLOCK]
        waves = np.zeros((len(part), KEPT * KEPT), np.float32)
        waves[:, 1:] = part / WEIGHTS
        seen = vertical @ waves.reshape(-1, KEPT, KEPT) @ horizontal.T
        again = seen.reshape(len(part), -1)[:, 1:] * WEIGHTS
        largest = np.abs(again).max(1, keepdims=True)
        out[start : start + BLOCK] = np.rint(again * (LARGEST / np.where(largest > 0, largest, 1)))
    return out


@cache
def _axis(low: float, high: float) -> NDArray[np.float32]:
    """Return the map (16, 16) from the frequencies of a whole axis to those of the part between low and high."""
    at = low + (high - low) * (np.arange(SAMPLES) + 0.5) / SAMPLES
    series = np.cos(np.pi * np.arange(KEPT) * at[:, None]) * np.sqrt(2 / SIDE)  # (samples, 16)
    series[:, 0] /= np.sqrt(2)
    waves = np.cos(np.pi * np.arange(KEPT)[:, None] * (2 * np.arange(SAMPLES) + 1) / (2 * SAMPLES))
    waves *= np.sqrt(2 * SIDE) / SAMPLES  # of the same scale as an orthonormal transform of 32 points
    waves[0] /= np.sqrt(2)
    return (waves @ series).astype(np.float32)
