"""A funnel as a picture: for every step how many rows stay, how many go, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from curate.report.axes import SCALE, WIDTH
from curate.report.captions import plain_line
from curate.report.chart import COLOURS, GREY, INK, PAPER

LEFT, RIGHT, TOP = 150, 130, 56  # pixels around the bars
BAR, LINE, GAP = 26, 18, 14  # of a bar, of a reason beneath it, and between two bars
MOST_REASONS = 4  # named beneath a bar; the rest is one sum


@dataclass(frozen=True)
class Bar:
    """One step of a funnel.

    Attributes:
        name: of the step.
        rows_in: rows that came in.
        rows_out: rows that went on.
        lost: why -> rows that did not.
    """

    name: str
    rows_in: int
    rows_out: int
    lost: Mapping[str, int]


def funnel_picture(bars: Sequence[Bar], title: str) -> Image.Image:
    """Return a picture, 960 pixels wide, RGB: one bar a step, as long as its rows, with the reasons beneath.

    Args:
        bars: in order; none gives the title alone.
        title: on one line.
    """
    reasons = [_reasons(bar.lost) for bar in bars]
    height = TOP + sum(BAR + LINE * len(rows) + GAP for rows in reasons) + GAP
    whole = Image.new("RGB", (WIDTH * SCALE, height * SCALE), PAPER)
    draw = ImageDraw.Draw(whole)
    draw.text((GAP * SCALE, GAP * SCALE), plain_line(title, 90), INK, _font(19))
    most = max((max(bar.rows_in, bar.rows_out) for bar in bars), default=0) or 1
    top = TOP
    for bar, rows in zip(bars, reasons, strict=True):
        _draw(draw, bar, rows, most, top)
        top += BAR + LINE * len(rows) + GAP
    return whole.resize((whole.width // SCALE, whole.height // SCALE), Image.Resampling.LANCZOS)


def _reasons(lost: Mapping[str, int]) -> list[tuple[str, int]]:
    """The reasons by rows, the most first, those beyond a few as one."""
    rows = sorted(lost.items(), key=lambda item: -item[1])
    rest = sum(n for _, n in rows[MOST_REASONS:])
    return [*rows[:MOST_REASONS], *([(f"{len(rows) - MOST_REASONS} other reasons", rest)] if rest else [])]


def _draw(draw: ImageDraw.ImageDraw, bar: Bar, reasons: Sequence[tuple[str, int]], most: int, top: int) -> None:
    across = (WIDTH - LEFT - RIGHT) / most
    middle = top + BAR / 2
    draw.text(((LEFT - 10) * SCALE, middle * SCALE), plain_line(bar.name, 16), INK, _font(14), anchor="rm")
    _box(draw, LEFT, LEFT + bar.rows_out * across, top, COLOURS[0])
    start = LEFT + bar.rows_out * across
    for number, (_, rows) in enumerate(reasons):
        _box(draw, start, start + rows * across, top, _colour(number))
        start += rows * across
    share = f"{bar.rows_out:,} of {bar.rows_in:,}" if bar.rows_out != bar.rows_in else f"{bar.rows_out:,}"
    draw.text(((WIDTH - GAP) * SCALE, middle * SCALE), share, INK, _font(13), anchor="rm")
    for number, (why, rows) in enumerate(reasons):
        at = top + BAR + LINE * (number + 0.5)
        draw.rectangle((LEFT * SCALE, (at - 5) * SCALE, (LEFT + 10) * SCALE, (at + 5) * SCALE), _colour(number))
        draw.text(((LEFT + 18) * SCALE, at * SCALE), f"{rows:,}  {plain_line(why, 90)}", INK, _font(12), anchor="lm")


def _colour(number: int) -> tuple[int, int, int]:
    """The colour of a reason; the bar's own is not among them."""
    return COLOURS[1 + number % (len(COLOURS) - 1)]


def _box(draw: ImageDraw.ImageDraw, left: float, right: float, top: float, colour: tuple[int, int, int]) -> None:
    if right > left:
        ends = (left * SCALE, top * SCALE, max(right, left + 1) * SCALE, (top + BAR) * SCALE)
        draw.rectangle(ends, colour, GREY)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size * SCALE)
