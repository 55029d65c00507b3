"""A funnel: for every step how many rows are kept, how many go, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from curate.sheets.captions import plain_line
from curate.sheets.style import (
    COLOURS,
    INK,
    WIDTH,
    drawing,
    new_axes,
    new_figure,
    set_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEP, LINE, ROOM = 7.0, 3.6, 4.0  # mm: a bar with its name, a reason beneath it, and around all
BAR = 3.2
MOST_REASONS = 4  # named beneath a bar; the rest is one sum
NAME_LETTERS, REASON_LETTERS = 30, 52


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
    lost: Mapping[str, int] = field(default_factory=dict)


def reasons(lost: Mapping[str, int], most: int = MOST_REASONS) -> list[tuple[str, int]]:
    """Return the reasons by rows, the most first, those beyond a few as one."""
    rows = sorted(((why, n) for why, n in lost.items() if n), key=lambda item: -item[1])
    rest = sum(n for _, n in rows[most:])
    return [*rows[:most], *([(f"{len(rows) - most} other reasons", rest)] if rest else [])]


@drawing()
def funnel_chart(bars: Sequence[Bar], title: str = "") -> "Figure":
    """Return a chart with one bar a step, as long as its rows, and the reasons beneath.

    Args:
        bars: in order; none gives the title alone.
        title: on one line; empty for none.
    """
    named = [reasons(bar.lost) for bar in bars]
    height = sum(STEP + LINE * len(rows) + ROOM / 2 for rows in named)
    figure = new_figure(height + ROOM + 6 * bool(title), WIDTH)
    set_title(figure, title)
    (axes,) = new_axes(figure)
    axes.set_axis_off()
    most = max((max(bar.rows_in, bar.rows_out) for bar in bars), default=0) or 1
    axes.set_xlim(0, most)
    axes.set_ylim(max(height, 1), 0)  # in mm, downwards
    axes.margins(0)
    top = 0.0
    for bar, rows in zip(bars, named, strict=True):
        _draw_bar(axes, bar, rows, most, top)
        top += STEP + LINE * len(rows) + ROOM / 2
    return figure


def _draw_bar(axes: "Axes", bar: Bar, rows: Sequence[tuple[str, int]], most: int, top: float) -> None:
    share = f"{bar.rows_out:,} of {bar.rows_in:,}" if bar.rows_out != bar.rows_in else f"{bar.rows_out:,}"
    axes.text(0, top + 2.2, plain_line(bar.name, NAME_LETTERS), va="center", fontweight="bold")
    axes.text(most, top + 2.2, share, va="center", ha="right")
    middle = top + STEP - BAR / 2
    start = 0.0
    for number, rows_of in enumerate([bar.rows_out, *(n for _, n in rows)]):
        axes.barh(middle, rows_of, height=BAR, left=start, color=_colour(number), edgecolor="white", linewidth=0.3)
        start += rows_of
    for number, (why, n) in enumerate(rows):
        at = top + STEP + LINE * (number + 0.5) + 0.6
        axes.plot(most * 0.012, at, marker="s", markersize=4, color=_colour(number + 1), clip_on=False)
        axes.text(most * 0.035, at, f"{n:,}  {plain_line(why, REASON_LETTERS)}", va="center", color=INK, fontsize=6.5)


def _colour(number: int) -> str:
    """The colour of what is kept (0), and of the reasons; the first is not among these."""
    return COLOURS[0] if not number else COLOURS[1 + (number - 1) % (len(COLOURS) - 1)]
