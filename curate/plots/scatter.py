"""Two columns against one another, with their rank correlation; coloured by group."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from curate.display.style import (
    BEHIND,
    WIDTH,
    drawing,
    legend_height,
    name_axes,
    new_axes,
    new_figure,
    set_legend,
    set_log,
    set_title,
    write_numbers,
)
from curate.facts.histograms import is_steep
from curate.plots.asked import Asked, Numbers
from curate.plots.columns import MOST_POINTS, finite, largest, read_columns, sampled
from curate.plots.points import Points, draw_points, point_names
from scoring.errors import InputError
from scoring.metrics import RankOrder, weighted_spearman

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 68.0  # mm
MOST_GROUPS = 6


@dataclass
class Scatter(Numbers):
    """Two columns against one another.

    Attributes:
        x_name: the column across.
        y_name: the column upwards.
        rows: with a finite value of both.
        spearman: rank correlation of all of them; NaN where one is constant.
        log: of either axis, whether it is logarithmic.
        points: what is drawn.
    """

    x_name: str
    y_name: str
    rows: int
    spearman: float
    log: tuple[bool, bool]
    points: Points


def measure(asked: Asked) -> Scatter:
    """Read both columns, and sample what is drawn."""
    if asked.x is None or asked.y is None:
        raise InputError("a scatter needs two columns of numbers; name them with --x and --y")
    rows = read_columns(asked, (asked.x, asked.y), asked.per)
    notes: list[str] = []
    x, y = rows.numbers[asked.x], rows.numbers[asked.y]
    there = finite(x, asked.x, asked.table, notes)
    if asked.y != asked.x:
        there = there & finite(y, asked.y, asked.table, notes)
    if not there.any():
        raise InputError(f"expected a row with both {asked.x!r} and {asked.y!r} in {asked.table.path}, got none")
    at = sampled(rows, there, asked.sample or MOST_POINTS, asked.seed, notes)
    points = Points(at.tolist(), x[at].tolist(), y[at].tolist())
    if asked.per:
        groups = largest(rows.names[asked.per], there, MOST_GROUPS, asked.per, notes)
        points.groups, points.group = groups.names, groups.place[at].tolist()
    ranked = RankOrder(x[there]), RankOrder(y[there])
    rho = weighted_spearman(*ranked, np.ones(int(there.sum()), np.int64))
    log = is_steep(x[there]), is_steep(y[there])
    return Scatter(asked.x, asked.y, int(there.sum()), rho, log, points, notes=notes)


@drawing()
def draw(numbers: Scatter, *, title: str = "", width: float = WIDTH) -> "Figure":
    """Draw the points, and the rank correlation in the corner above."""
    points = numbers.points
    figure = new_figure(HEIGHT + legend_height(point_names(points), width) + 5 * bool(title), width)
    set_title(figure, title)
    (axes,) = new_axes(figure)
    axes.grid()
    draw_points(axes, points)
    set_legend(axes, width)
    sides: tuple[tuple[Literal["x", "y"], list[float]], ...] = (("x", points.x), ("y", points.y))
    for (name, values), log in zip(sides, numbers.log, strict=True):
        if log:
            set_log(axes, name, min(values), max(values))
        else:
            write_numbers(axes.xaxis if name == "x" else axes.yaxis)
    name_axes(axes, numbers.x_name, numbers.y_name)
    if np.isfinite(numbers.spearman):
        said = f"Spearman {numbers.spearman:.2f}, {numbers.rows:,} rows".replace("-", "\N{MINUS SIGN}")
        axes.text(0.99, 0.99, said, transform=axes.transAxes, ha="right", va="top", bbox=BEHIND)
    return figure
