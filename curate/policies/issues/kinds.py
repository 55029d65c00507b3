"""The kinds of issues, and where each begins: a table, and pure functions on columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float32]  # (N,), NaN where there is none

FAR = 3.5  # robust standard deviations: Iglewicz and Hoaglin 1993, "How to detect and handle outliers"
_SIGMA = 1.4826  # standard deviations in a median absolute deviation of normal values
COMMON = 0.5  # a kind that is harmless by itself and has more of the heap than this is what the heap is


def _itself(value: Values) -> Values:
    return value


def _aspect(width: Values, height: Values) -> Values:
    """Long side over short side, from 1 on."""
    return (np.maximum(width, height) / np.minimum(width, height)).astype(np.float32)


def _size(width: Values, height: Values) -> Values:
    """By what factor the side of a square of this area differs from the heap's median, from 1 on."""
    side = np.sqrt(width * height)
    with np.errstate(invalid="ignore"):
        known = side[~np.isnan(side)]
        ratio = side / (np.median(known) if len(known) else 1)
        return np.maximum(ratio, 1 / ratio).astype(np.float32)


@dataclass(frozen=True)
class Kind:
    """One kind of issue: a tail of one measure.

    Attributes:
        meaning: in words.
        columns: that the measure is made of.
        low: whether the low tail is the issue, or the high one.
        strict: a value beyond it is an issue in any heap.
        loose: a value short of it is one in none.
        drops: whether the rows go by default; the other kinds are no harm by themselves.
        log: whether the spread is that of the logarithm, for measures that are ratios.
        measure: columns as float32 -> the measure, shape (N,).
        what: the measure in words.
    """

    meaning: str
    columns: tuple[str, ...]
    low: bool
    strict: float
    loose: float
    drops: bool = True
    log: bool = False
    measure: Callable[..., Values] = _itself
    what: str = ""

    @property
    def name(self) -> str:
        """What is measured, in words."""
        return self.what or self.columns[0]

    def beyond(self, values: Values, cut: float) -> NDArray[np.bool_]:
        """Return where the measure lies beyond a cut; nowhere without a value."""
        limit = np.float32(cut)
        return values < limit if self.low else values > limit


_SIZES = ("width", "height")
KINDS: Mapping[str, Kind] = {  # to add a kind, add a line
    "dark": Kind("nothing in it is bright", ("quality_highlight",), True, 0.21, 0.27),
    "bright": Kind("nothing in it is dark", ("quality_shadow",), False, 0.7, 0.65),
    "overexposed": Kind(
        "white for the most part: overexposed, or a thing on white", ("quality_brightness",), False, 0.93, 0.75, False
    ),
    "low-contrast": Kind("blank, or nearly", ("quality_contrast",), True, 0.02, 0.05, log=True),
    "low-information": Kind("few shades of grey", ("quality_entropy",), True, 1.5, 2.2),
    "blurry": Kind("the finest detail is gone", ("quality_sharpness",), True, 0.2, 0.27, log=True),
    "noisy": Kind("noise of colour", ("quality_noise",), False, 4.0, 2.0),
    "blocky": Kind("JPEG's grid shows", ("quality_blocking",), False, 1.8, 1.4, log=True),
    "compressed": Kind("a JPEG of very low quality", ("quality_jpeg",), True, 10.5, 20.5),
    "bordered": Kind("bars or a frame around the picture", ("quality_border",), False, 0.25, 0.04, drops=False),
    "grey": Kind("no colour, among pictures in colour", ("quality_colourfulness",), True, 2.0, 4.0, drops=False),
    "odd-aspect": Kind(
        "much longer than wide, or wider than long", _SIZES, False, 5.0, 2.5, False, True, _aspect, "aspect"
    ),
    "odd-size": Kind("much smaller or larger than most", _SIZES, False, 10.0, 4.0, False, True, _size, "size ratio"),
}


def cut_of(kind: Kind, values: Values) -> float:
    """Return where a kind begins in this heap.

    It begins 3.5 robust standard deviations (1.4826 median absolute deviations) from the median, but never short of
    ``loose`` nor beyond ``strict``: so a clean heap has few issues however wide it spreads, and a heap that is mostly
    dark has its dark pictures found.

    Args:
        kind: which tail of what.
        values: of the scored rows, shape (N,); NaN for none.

    Returns:
        In the unit of the measure.

    >>> cut_of(KINDS["dark"], np.full(9, 0.9, np.float32))
    0.27
    """
    known = values[~np.isnan(values)].astype(np.float64)
    if not len(known):
        return kind.loose
    if kind.log:
        known = np.log(np.maximum(known, 1e-6))
    centre = float(np.median(known))
    spread = FAR * _SIGMA * float(np.median(np.abs(known - centre)))
    limit = centre - spread if kind.low else centre + spread
    limit = float(np.exp(min(limit, 700.0))) if kind.log else limit
    low, high = sorted((kind.strict, kind.loose))
    return min(max(limit, low), high)
