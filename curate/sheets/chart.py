"""Line charts with bands and legends; one or several panels stacked vertically."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from curate.sheets import style
from curate.sheets.captions import plain_line
from scoring.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 52.0  # mm of a panel, without the names of its curves
TITLE = 5.0
MOST_DOTS = 40  # points of a curve from which none is dotted


@dataclass(frozen=True)
class Curve:
    """One line of a chart.

    Attributes:
        name: for the legend.
        x: finite, ascending.
        y: values; NaN omits the point.
        low: lower end of the band at each x; empty for no band; NaN interrupts it.
        high: upper end.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Panel:
    """Curves on the same axes.

    Attributes:
        curves: at least one with a finite point.
        x: name of the horizontal axis.
        y: name of the vertical axis.
        percent: whether the vertical axis shows shares as percentages.
        across: whether the horizontal axis does too.
        zero: whether the vertical axis always includes zero.
        legend: whether to show a legend.
        dots: whether to mark points if there are few.
        height: in mm, without the legend.
        beside: reference curves, thin and grey, also in the legend.
        legend_title: title of the legend.
        square: whether both axes show the same range.
    """

    curves: Sequence[Curve]
    x: str
    y: str
    percent: bool = False
    across: bool = False
    zero: bool = False
    legend: bool = True
    dots: bool = True
    height: float = HEIGHT
    beside: Sequence[Curve] = ()
    legend_title: str = ""
    square: bool = False


@style.drawing()
def draw_chart(panels: Sequence[Panel], *, title: str = "", width: float = style.WIDTH) -> "Figure":
    """Return a chart: a title and panels stacked vertically.

    Args:
        panels: at least one.
        title: on one line; empty for none.
        width: in mm.

    Raises:
        InputError: if a panel has no point.
    """
    heights = [
        panel.height + style.legend_height(_names(panel), width, titled=bool(panel.legend_title)) for panel in panels
    ]
    figure = style.new_figure(sum(heights) + (TITLE if title else 0), width)
    style.set_title(figure, title)
    for axes, panel in zip(style.new_axes(figure, len(panels)), panels, strict=True):
        _draw_panel(axes, panel)
        if panel.legend:
            style.set_legend(axes, width, title=panel.legend_title)
    return figure


def _names(panel: Panel) -> list[str]:
    return [curve.name for curve in (*panel.curves, *panel.beside)] if panel.legend else []


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    values = [value for curve in panel.curves for value in curve.y if math.isfinite(value)]
    if not values:
        raise InputError("expected at least one point to draw, got none; label a first batch")
    axes.grid(axis="y")
    for number, curve in enumerate(panel.curves):
        _draw_curve(axes, curve, number, dots=panel.dots and len(curve.x) <= MOST_DOTS)
    for number, curve in enumerate(panel.beside):
        axes.plot(
            curve.x,
            curve.y,
            color=style.GREY,
            linewidth=0.8,
            linestyle=style.DASHES[1 + number % 2],
            label=_short(curve.name),
        )
    _scale(axes, panel, values)
    style.name_axes(axes, panel.x, panel.y)


def _draw_curve(axes: "Axes", curve: Curve, number: int, *, dots: bool) -> None:
    """Draw a line, its points, and its band; a single point gets an error bar."""
    known = [place for place, value in enumerate(curve.y) if math.isfinite(value)]
    x, y = [curve.x[place] for place in known], [curve.y[place] for place in known]
    if len(curve.low):
        ends = list(zip(curve.x, curve.low, curve.high, strict=True))
        ends = [end for end in ends if math.isfinite(end[1]) and math.isfinite(end[2])]
        if len(ends) == 1:
            axes.vlines(ends[0][0], ends[0][1], ends[0][2], color=style.colour(number), alpha=0.5, linewidth=2)
        elif ends:
            at, low, high = zip(*ends, strict=True)
            axes.fill_between(at, low, high, color=style.colour(number), alpha=0.18, linewidth=0)
    axes.plot(
        x,
        y,
        color=style.colour(number),
        linestyle=style.DASHES[number // len(style.COLOURS) % len(style.DASHES)],
        marker=style.MARKERS[number % len(style.MARKERS)] if dots else None,
        label=_short(curve.name),
    )
    axes.update_datalim([(value, 0.0) for value in curve.x], updatey=False)


def _scale(axes: "Axes", panel: Panel, values: Sequence[float]) -> None:
    axes.margins(x=0.03, y=0.06)
    if panel.zero:
        axes.set_ylim(bottom=min(0.0, *values))
    if panel.across:
        style.write_percent(axes.xaxis)
    else:
        style.write_numbers(axes.xaxis)
    if panel.percent:
        style.write_percent(axes.yaxis)
    else:
        style.write_numbers(axes.yaxis)
    if panel.square:
        ends = min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1])
        axes.set(xlim=ends, ylim=ends, aspect="equal")


def _short(name: str) -> str:
    return plain_line(name, style.LINE_LETTERS)
