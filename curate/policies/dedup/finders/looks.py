"""Codes of how two images match (view and part), and their texts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Ints
from scoring.images.signature import AS_IT_IS, MARGIN, STEPS, SignatureView

VIEWS = 8  # maximal number of views
PLACES = MARGIN + 1  # number of positions of an edge
NEARLY_ALL = 0.98  # share of a side below which it is a part


def look_codes(view: int, edges: Ints, *, holds: bool) -> NDArray[np.int32]:
    """Return codes of how pairs match, for ``Links.view``: int32, shape (P,), >= 8; lower numbers are plain views.

    Args:
        view: of the queried row, an index into the run's views.
        edges: edges of the part, shape (P, 4), in 256ths: top, bottom, left, right.
        holds: whether the found row contains the queried one; else it is a part of it.
    """
    inside = edges.copy()
    inside[:, 1::2] = STEPS - edges[:, 1::2]
    packed = inside @ PLACES ** np.arange(4)
    return (view + VIEWS * (1 + int(holds) + 2 * packed)).astype(np.int32)


def turned_codes(codes: NDArray[np.int8] | NDArray[np.int32], views: Sequence[SignatureView]) -> NDArray[np.int32]:
    """Return the codes of pairs with query and row exchanged, shape (P,).

    >>> from scoring.images.signature import views
    >>> code = look_codes(0, np.array([[0, 230, 26, 256]]), holds=True)
    >>> in_words(int(turned_codes(code, views())[0]), ["as it is"])
    'a part of it: 90% of the width, 90% of the height, at the top right'
    """
    packed, view = np.divmod(codes.astype(np.int32), VIEWS)
    names = [each.name for each in views]
    undone = np.array([names.index(each.undone_by) for each in views])
    packed = np.where(packed > 0, ((packed - 1) ^ 1) + 1, 0)  # the lowest bit is whether the row holds
    return np.asarray((undone[view] + VIEWS * packed).astype(np.int32))


def seen(code: int, views: Sequence[str]) -> tuple[str, bool]:
    """Return the name of the matching view, and whether one image is a part of the other."""
    packed, view = divmod(code, VIEWS)
    return views[view], bool(packed)


def in_words(code: int, views: Sequence[str]) -> str:
    """Return how a pair matches, such as ``mirrored, a part of it: 88% of the width, at the left``; may be empty.

    Args:
        code: a view, or of ``look_codes``.
        views: names of the views, by number.

    >>> in_words(0, ["as it is", "mirrored"]), in_words(1, ["as it is", "mirrored"])
    ('', 'mirrored')
    >>> in_words(int(look_codes(0, np.array([[0, 230, 26, 256]]), holds=True)[0]), ["as it is"])
    'holds it: 90% of the width, 90% of the height, at the top right'
    """
    packed, view = divmod(code, VIEWS)
    name = views[view] if views[view] != AS_IT_IS else ""
    if not packed:
        return name
    packed, holds = divmod(packed - 1, 2)
    top, bottom, left, right = packed // PLACES ** np.arange(4) % PLACES
    part = f"{'holds it' if holds else 'a part of it'}: {_frame(int(top), int(bottom), int(left), int(right))}"
    return f"{name}, {part}" if name else part


def _frame(top: int, bottom: int, left: int, right: int) -> str:
    """Return a text on a frame by the distances of its edges from the image's."""
    height, width = 1 - (top + bottom) / STEPS, 1 - (left + right) / STEPS
    sizes = [f"{side:.0%} of the {name}" for side, name in ((width, "width"), (height, "height")) if side < NEARLY_ALL]
    if not sizes:
        return "nearly all"
    vertical = _third(top, bottom, ("top", "bottom")) if height < NEARLY_ALL else ""
    horizontal = _third(left, right, ("left", "right")) if width < NEARLY_ALL else ""
    place = " ".join(word for word in (vertical, horizontal) if word)
    return f"{', '.join(sizes)}, {f'at the {place}' if place else 'in the middle'}"


def _third(before: int, after: int, names: tuple[str, str]) -> str:
    if 3 * before < before + after:
        return names[0]
    return names[1] if 3 * after < before + after else ""
