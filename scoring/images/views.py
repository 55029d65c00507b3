"""Other views of an image, computed from its signature: mirrored, rotated, or both."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from scoring.images.signature import ORIENTATIONS, reorient

AS_IT_IS = "as it is"
_UNDONE_BY = {"rotated 90": "rotated 270", "rotated 270": "rotated 90"}  # all other views are their own inverse

Look = Callable[[NDArray[np.int8]], NDArray[np.int8]]


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
