"""Curves with bands as a picture: axes, lines, a legend; drawn with Pillow alone."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from curate.report.captions import plain_line
from scoring.atomic import AtomicFile
from scoring.errors import InputError

WIDTH, HEIGHT = 960, 600
LEFT, RIGHT, TOP, BOTTOM = 78, 24, 64, 66
SCALE = 2  # drawn larger, then made smaller: smooth lines
COLOURS = (
    (31, 119, 180),
    (214, 99, 20),
    (44, 140, 60),
    (180, 40, 50),
    (125, 90, 180),
    (120, 80, 60),
    (210, 90, 170),
    (90, 90, 90),
    (150, 150, 30),
    (20, 160, 175),
)
INK, GREY, PAPER = (30, 30, 30), (222, 222, 222), (255, 255, 255)
LEGEND = 26  # letters of a name in the legend
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True)
class Curve:
    """One line of a chart.

    Attributes:
        name: for the legend.
        x: finite, ascending.
        y: of each; NaN leaves the point out.
        low: lower end of the band at each x; empty for no band. A NaN ends the band there.
        high: upper end.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Return round numbers from low to high, at most ``most`` of them.

    >>> ticks(0, 100), ticks(0.62, 0.81)
    ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [0.65, 0.7, 0.75, 0.8])
    """
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(step * i, 12) for i in range(first, last + 1)]


def draw_chart(curves: Sequence[Curve], *, title: str, x: str, y: str, percent: bool = False) -> Image.Image:
    """Return a chart of curves, 960 x 600 pixels, RGB.

    Args:
        curves: at least one with a finite point.
        title: above it.
        x: name of the horizontal axis.
        y: name of the vertical axis.
        percent: whether values in [0, 1] are written as percentages.

    Raises:
        InputError: if no curve has a point.
    """
    frame = _Frame.around(curves)
    whole = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), PAPER)
    draw = ImageDraw.Draw(whole, "RGBA")
    _axes(draw, frame, percent)
    for number, curve in enumerate(curves):
        _band(draw, frame, curve, COLOURS[number % len(COLOURS)])
    for number, curve in enumerate(curves):
        _line(draw, frame, curve, COLOURS[number % len(COLOURS)])
    _legend(draw, [curve.name for curve in curves])
    draw.text((LEFT * SCALE, 14 * SCALE), plain_line(title, 100), INK, _font(19))
    centre = (LEFT + WIDTH - RIGHT) / 2 * SCALE
    draw.text((centre, (HEIGHT - 14) * SCALE), plain_line(x, 80), INK, _font(14), anchor="ms")
    draw.text((LEFT * SCALE, (TOP - 10) * SCALE), plain_line(y, 80), INK, _font(14), anchor="ls")
    return whole.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)


def write_chart(path: Path, picture: Image.Image, *, overwrite: bool = False) -> None:
    """Write a chart as PNG, whole or not at all.

    Raises:
        InputError: for a name that does not end in ``.png``, or a place that refuses.
    """
    check_picture(path)
    data = io.BytesIO()
    picture.save(data, "PNG")
    with AtomicFile(path, overwrite=overwrite) as file:
        file.write(data.getvalue())


def check_picture(path: Path) -> None:
    """Refuse a name that is no PNG's.

    Raises:
        InputError: naming it.
    """
    if path.suffix.lower() != ".png":
        raise InputError(f"the picture is a PNG file: expected a name like curve.png, got {path}")


@dataclass(frozen=True)
class _Frame:
    """What part of the plane is shown."""

    x0: float
    x1: float
    y0: float
    y1: float

    @classmethod
    def around(cls, curves: Sequence[Curve]) -> "_Frame":
        points = [(a, b) for curve in curves for a, b in zip(curve.x, curve.y, strict=True) if math.isfinite(b)]
        if not points:
            raise InputError("expected at least one point to draw, got none; label a first batch")
        xs = [a for a, _ in points]
        ys = [b for _, b in points]
        ys += [b for curve in curves for b in (*curve.low, *curve.high) if math.isfinite(b)]
        x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
        room = (y1 - y0) * 0.06 or 0.05
        wide = (x1 - x0) * 0.03 or max(1.0, abs(x0) * 0.1)
        return cls(x0 - wide, x1 + wide, y0 - room, y1 + room)

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x0) / (self.x1 - self.x0)
        up = (y - self.y0) / (self.y1 - self.y0)
        return (
            (LEFT + across * (WIDTH - LEFT - RIGHT)) * SCALE,
            (HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)) * SCALE,
        )


def _font(size: int) -> Font:
    return ImageFont.load_default(size * SCALE)


def _axes(draw: ImageDraw.ImageDraw, frame: _Frame, percent: bool) -> None:
    left, right, top, bottom = LEFT * SCALE, (WIDTH - RIGHT) * SCALE, TOP * SCALE, (HEIGHT - BOTTOM) * SCALE
    for value in ticks(frame.y0, frame.y1):
        _, at = frame.at(frame.x0, value)
        draw.line((left, at, right, at), GREY, SCALE)
        text = f"{value * 100:.6g} %" if percent else f"{value:.6g}"
        draw.text((left - 8 * SCALE, at), text, INK, _font(13), anchor="rm")
    for value in ticks(frame.x0, frame.x1, 9):
        at, _ = frame.at(value, frame.y0)
        draw.line((at, bottom, at, bottom + 6 * SCALE), INK, SCALE)
        draw.text((at, bottom + 10 * SCALE), f"{value:,.6g}", INK, _font(13), anchor="mt")
    draw.line((left, top, left, bottom, right, bottom), INK, SCALE)


def _band(draw: ImageDraw.ImageDraw, frame: _Frame, curve: Curve, colour: tuple[int, int, int]) -> None:
    if not len(curve.low):
        return
    ends = [
        (frame.at(a, low), frame.at(a, high))
        for a, low, high in zip(curve.x, curve.low, curve.high, strict=True)
        if math.isfinite(low) and math.isfinite(high)
    ]
    if len(ends) == 1:
        draw.line((*ends[0][0], *ends[0][1]), (*colour, 110), 3 * SCALE)
    elif ends:
        draw.polygon([low for low, _ in ends] + [high for _, high in reversed(ends)], (*colour, 46))


def _line(draw: ImageDraw.ImageDraw, frame: _Frame, curve: Curve, colour: tuple[int, int, int]) -> None:
    points = [frame.at(a, b) for a, b in zip(curve.x, curve.y, strict=True) if math.isfinite(b)]
    if len(points) > 1:
        draw.line(points, colour, 2 * SCALE, joint="curve")
    r = 3.5 * SCALE
    for a, b in points:
        draw.ellipse((a - r, b - r, a + r, b + r), colour)


def _legend(draw: ImageDraw.ImageDraw, names: Sequence[str]) -> None:
    """Write the names where curves that rise leave room: at the lower right."""
    font = _font(13)
    shown = [plain_line(name, LEGEND) for name in names]
    width = max(draw.textlength(name, font) for name in shown) + 44 * SCALE
    line = 20 * SCALE
    right, bottom = (WIDTH - RIGHT - 8) * SCALE, (HEIGHT - BOTTOM - 8) * SCALE
    top = bottom - line * len(names) - 10 * SCALE
    draw.rectangle((right - width, top, right, bottom), (255, 255, 255, 220), GREY, SCALE)
    for number, name in enumerate(shown):
        at = top + 5 * SCALE + line * (number + 0.5)
        colour = COLOURS[number % len(COLOURS)]
        draw.line((right - width + 8 * SCALE, at, right - width + 28 * SCALE, at), colour, 3 * SCALE)
        draw.text((right - width + 36 * SCALE, at), name, INK, font, anchor="lm")
