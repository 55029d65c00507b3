"""Curves with bands as a picture: axes, lines, marks, a legend; one panel or several, drawn with Pillow alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from curate.report.axes import BOTTOM, LEFT, RIGHT, SCALE, TOP, WIDTH, Frame, ticks
from curate.report.captions import plain_line
from scoring.errors import InputError

HEIGHT = 600  # of a panel
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
MARK = COLOURS[1]
LEGEND = 26  # letters of a name in the legend
MOST_DOTS = 40  # points of a curve without a legend from which none is dotted
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True)
class Curve:
    """One line of a chart.

    Attributes:
        name: for the legend.
        x: finite, ascending.
        y: of each; NaN leaves the point out, though not its place on the axis.
        low: lower end of the band at each x; empty for no band. A NaN ends the band there.
        high: upper end.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Mark:
    """A point of a curve with a word, led to both axes."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Panel:
    """Curves over the same axes.

    Attributes:
        curves: at least one with a finite point.
        x: name of the horizontal axis.
        y: name of the vertical axis.
        percent: whether values in [0, 1] are written as percentages.
        log: whether the vertical axis is logarithmic; then all values are above zero.
        zero: whether the vertical axis has zero on it in any case.
        marks: points that are named.
        legend: whether the curves are named.
        height: in pixels, with names and numbers.
    """

    curves: Sequence[Curve]
    x: str
    y: str
    percent: bool = False
    log: bool = False
    zero: bool = False
    marks: Sequence[Mark] = ()
    legend: bool = True
    height: int = HEIGHT


def draw_chart(panels: Sequence[Panel], *, title: str) -> Image.Image:
    """Return a chart, 960 pixels wide, RGB: the title, and the panels one under the other.

    Raises:
        InputError: if a panel has no point.
    """
    whole = Image.new("RGB", (WIDTH * SCALE, sum(panel.height for panel in panels) * SCALE), PAPER)
    draw = ImageDraw.Draw(whole, "RGBA")
    top = 0
    for panel in panels:
        _draw_panel(draw, panel, top)
        top += panel.height
    draw.text((LEFT * SCALE, 14 * SCALE), plain_line(title, 100), INK, _font(19))
    return whole.resize((whole.width // SCALE, whole.height // SCALE), Image.Resampling.LANCZOS)


def _draw_panel(draw: ImageDraw.ImageDraw, panel: Panel, top: int) -> None:
    if not any(math.isfinite(value) for curve in panel.curves for value in curve.y):
        raise InputError("expected at least one point to draw, got none; label a first batch")
    xs = [value for curve in panel.curves for value in curve.x]
    ys = [value for curve in panel.curves for value in (*curve.y, *curve.low, *curve.high) if math.isfinite(value)]
    ys += [0.0] if panel.zero else []
    frame = Frame.around(xs, ys, top=top + TOP, bottom=top + panel.height - BOTTOM, log=panel.log)
    _axes(draw, frame, panel.percent)
    for number, curve in enumerate(panel.curves):
        _band(draw, frame, curve, COLOURS[number % len(COLOURS)])
    _lead(draw, frame, panel.marks)
    for number, curve in enumerate(panel.curves):
        dots = panel.legend or len(curve.x) <= MOST_DOTS
        _line(draw, frame, curve, COLOURS[number % len(COLOURS)], dots=dots)
    _name_marks(draw, frame, panel.marks)
    if panel.legend:
        _legend(draw, frame, [curve.name for curve in panel.curves])
    centre = (LEFT + WIDTH - RIGHT) / 2 * SCALE
    draw.text((centre, (top + panel.height - 14) * SCALE), plain_line(panel.x, 80), INK, _font(14), anchor="ms")
    draw.text((LEFT * SCALE, (top + TOP - 10) * SCALE), plain_line(panel.y, 80), INK, _font(14), anchor="ls")


def _font(size: int) -> Font:
    return ImageFont.load_default(size * SCALE)


def _axes(draw: ImageDraw.ImageDraw, frame: Frame, percent: bool) -> None:
    left, right, top, bottom = LEFT * SCALE, (WIDTH - RIGHT) * SCALE, frame.top * SCALE, frame.bottom * SCALE
    for value in frame.y_ticks():
        _, at = frame.pixel(frame.x0, value)
        draw.line((left, at, right, at), GREY, SCALE)
        text = f"{value * 100:.6g} %" if percent else f"{value:.6g}"
        draw.text((left - 8 * SCALE, at), text, INK, _font(13), anchor="rm")
    for value in ticks(frame.x0, frame.x1, 9):
        at, _ = frame.pixel(value, 1)
        draw.line((at, bottom, at, bottom + 6 * SCALE), INK, SCALE)
        draw.text((at, bottom + 10 * SCALE), f"{value:,.6g}", INK, _font(13), anchor="mt")
    draw.line((left, top, left, bottom, right, bottom), INK, SCALE)


def _band(draw: ImageDraw.ImageDraw, frame: Frame, curve: Curve, colour: tuple[int, int, int]) -> None:
    if not len(curve.low):
        return
    ends = [
        (frame.pixel(a, low), frame.pixel(a, high))
        for a, low, high in zip(curve.x, curve.low, curve.high, strict=True)
        if math.isfinite(low) and math.isfinite(high)
    ]
    if len(ends) == 1:
        draw.line((*ends[0][0], *ends[0][1]), (*colour, 110), 3 * SCALE)
    elif ends:
        draw.polygon([low for low, _ in ends] + [high for _, high in reversed(ends)], (*colour, 46))


def _line(draw: ImageDraw.ImageDraw, frame: Frame, curve: Curve, colour: tuple[int, int, int], *, dots: bool) -> None:
    points = [frame.pixel(a, b) for a, b in zip(curve.x, curve.y, strict=True) if math.isfinite(b)]
    if len(points) > 1:
        draw.line(points, colour, 2 * SCALE, joint="curve")
    r = 3.5 * SCALE
    for a, b in points if dots else []:
        draw.ellipse((a - r, b - r, a + r, b + r), colour)


def _lead(draw: ImageDraw.ImageDraw, frame: Frame, marks: Sequence[Mark]) -> None:
    """Draw lines from marked points to both axes."""
    for mark in marks:
        x, y = frame.pixel(mark.x, mark.y)
        draw.line((x, frame.bottom * SCALE, x, y, LEFT * SCALE, y), MARK, SCALE)


def _name_marks(draw: ImageDraw.ImageDraw, frame: Frame, marks: Sequence[Mark]) -> None:
    """Write the words of marks where a curve that rises leaves room: at the left above, or at the right below."""
    font = _font(13)
    for mark in marks:
        x, y = frame.pixel(mark.x, mark.y)
        right = x < (LEFT + WIDTH - RIGHT) / 2 * SCALE
        place, anchor = ((x + 8 * SCALE, y + 12 * SCALE), "lt") if right else ((x - 8 * SCALE, y - 6 * SCALE), "rb")
        left, top, end, bottom = draw.textbbox(place, mark.text, font, anchor=anchor)
        draw.rectangle((left - 4, top - 4, end + 4, bottom + 4), PAPER)  # over a grid line or another mark
        draw.text(place, mark.text, MARK, font, anchor=anchor)


def _legend(draw: ImageDraw.ImageDraw, frame: Frame, names: Sequence[str]) -> None:
    """Write the names where curves that rise leave room: at the lower right."""
    font = _font(13)
    shown = [plain_line(name, LEGEND) for name in names]
    width = max(draw.textlength(name, font) for name in shown) + 44 * SCALE
    line = 20 * SCALE
    right, bottom = (WIDTH - RIGHT - 8) * SCALE, (frame.bottom - 8) * SCALE
    top = bottom - line * len(names) - 10 * SCALE
    draw.rectangle((right - width, top, right, bottom), (255, 255, 255, 220), GREY, SCALE)
    for number, name in enumerate(shown):
        at = top + 5 * SCALE + line * (number + 0.5)
        colour = COLOURS[number % len(COLOURS)]
        draw.line((right - width + 8 * SCALE, at, right - width + 28 * SCALE, at), colour, 3 * SCALE)
        draw.text((right - width + 36 * SCALE, at), name, INK, font, anchor="lm")
