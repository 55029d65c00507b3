"""The gain curve of a choice as a picture: what all picks together bring, and what each one adds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from curate.report.captions import plain_line

WIDTH, PANEL, TOP, LEFT, RIGHT, GAP = 900, 270, 44, 86, 30, 62
INK, PALE, LINE, MARK = (40, 40, 40), (226, 226, 226), (31, 98, 168), (196, 88, 24)
SHARES = (0.5, 0.9)  # of all that the picks bring, marked in the upper panel
STEEP = 20  # largest over smallest gain from which the lower panel has a logarithmic axis


@dataclass(frozen=True)
class Axis:
    """One axis of a panel: from ``low`` to ``high``, logarithmic or not, drawn from pixel ``start`` to ``stop``."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def at(self, value: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Return the pixels of values."""
        low, high, values = self.low, self.high, np.asarray(value, np.float64)
        if self.log:
            low, high, values = math.log(low), math.log(high), np.log(np.maximum(values, self.low))
        return self.start + (values - low) / ((high - low) or 1) * (self.stop - self.start)

    def ticks(self) -> list[float]:
        """Return round values along the axis."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            steps = [10.0**power * digit for power in range(first, last + 1) for digit in (1, 3)]
            inside = [value for value in steps if self.low <= value <= self.high]
            return inside or [self.low, self.high]
        return round_values(self.low, self.high)


def round_values(low: float, high: float, most: int = 6) -> list[float]:
    """Return at most ``most`` + 1 round values in [low, high], evenly apart.

    >>> round_values(0, 100)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    span = (high - low) or 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * digit for digit in (1, 2, 5, 10) if span / (power * digit) <= most)
    first = math.ceil(low / step - 1e-9)
    return [round(step * place, 12) for place in range(first, math.floor(high / step + 1e-9) + 1)]


def gain_picture(gains: Sequence[float | None], title: str) -> Image.Image:
    """Draw the sum of the gains above, and the gain of each pick beneath.

    Args:
        gains: of the picks, in order; None or infinity where nothing measures one, which is left out.
        title: stands on top, on one line.
    """
    every = np.array([math.nan if gain is None else gain for gain in gains], np.float64)
    places = np.flatnonzero(np.isfinite(every)) + 1
    values = every[places - 1]
    sheet = Image.new("RGB", (WIDTH, TOP + 2 * (PANEL + GAP)), "white")
    draw = ImageDraw.Draw(sheet)
    draw.text((LEFT, 12), plain_line(title, 100), fill=INK, font=ImageFont.load_default(17))
    if not len(values):
        draw.text((LEFT, TOP + 20), "no pick has a gain that can be drawn", fill=INK, font=ImageFont.load_default(14))
        return sheet
    across = Axis(0, max(len(every), 1), LEFT, WIDTH - RIGHT)
    total = np.cumsum(values)
    up = Axis(min(0.0, float(total.min())), float(total.max()) or 1.0, TOP + PANEL, TOP + 14)
    _panel(draw, across, up, "total gain of the first picks")
    if (values >= 0).all() and total[-1] > 0:
        _marks(draw, across, up, places, total)
    _curve(draw, across, up, np.concatenate([[0], places]), np.concatenate([[0.0], total]))
    below = TOP + PANEL + GAP
    top, bottom = float(values.max()), float(values.min())
    log = bottom > 0 and top / bottom > STEEP
    low = bottom if log else min(0.0, bottom)
    down = Axis(low, top if top > low else low + 1, below + PANEL, below + 14, log)
    _panel(draw, across, down, "gain of each pick" + (" (logarithmic)" if log else ""))
    _curve(draw, across, down, places, values)
    draw.text((LEFT, below + PANEL + 24), "picks, in order of rank", fill=INK, font=ImageFont.load_default(14))
    return sheet


def _panel(draw: ImageDraw.ImageDraw, across: Axis, up: Axis, title: str) -> None:
    """Draw the frame, the grid and the numbers of a panel."""
    font = ImageFont.load_default(13)
    for value in up.ticks():
        y = float(up.at(value))
        draw.line((across.start, y, across.stop, y), fill=PALE)
        draw.text((across.start - 8, y), f"{value:.4g}", fill=INK, font=font, anchor="rm")
    for value in across.ticks():
        x = float(across.at(value))
        draw.line((x, up.start, x, up.start + 5), fill=INK)
        draw.text((x, up.start + 7), f"{value:,.0f}", fill=INK, font=font, anchor="mt")
    draw.line((across.start, up.stop, across.start, up.start, across.stop, up.start), fill=INK)
    draw.text((across.start, up.stop - 8), title, fill=INK, font=font, anchor="ls")  # the curve may begin at the top


def _curve(
    draw: ImageDraw.ImageDraw, across: Axis, up: Axis, places: NDArray[np.int64], values: NDArray[np.float64]
) -> None:
    points = list(zip(across.at(places.astype(np.float64)).tolist(), up.at(values).tolist(), strict=True))
    if len(points) > 1:
        draw.line(points, fill=LINE, width=2)
    if len(points) <= 40:
        for x, y in points:
            draw.ellipse((x - 3, y - 3, x + 3, y + 3), fill=LINE)


def _marks(
    draw: ImageDraw.ImageDraw, across: Axis, up: Axis, places: NDArray[np.int64], total: NDArray[np.float64]
) -> None:
    """Mark where the first picks bring a share of all that the picks bring.

    A total that grows lies to the right above a mark and to the left below it, so words to the right stand below, and
    words to the left above.
    """
    font, words = ImageFont.load_default(13), []
    for share in SHARES:
        at = int(np.searchsorted(total, share * total[-1]))
        x, y = float(across.at(float(places[at]))), float(up.at(float(total[at])))
        draw.line((x, up.start, x, y), fill=MARK)
        draw.line((across.start, y, x, y), fill=MARK)
        right = x < (across.start + across.stop) / 2
        place, anchor = ((x + 8, y + 12), "lt") if right else ((x - 8, y - 6), "rb")
        words.append((place, f"{share:.0%} after {places[at]:,}", anchor))
    for place, text, anchor in words:
        left, top, end, bottom = draw.textbbox(place, text, font, anchor=anchor)
        draw.rectangle((left - 2, top - 2, end + 2, bottom + 2), fill="white")  # over a grid line or another mark
        draw.text(place, text, fill=MARK, font=font, anchor=anchor)
