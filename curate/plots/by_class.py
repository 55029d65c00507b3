"""Quantiles of a column in each class, the class with the lowest median first."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from curate.columns import LABEL
from curate.display.captions import plain_line
from curate.display.style import (
    COLOURS,
    FAINT,
    WIDTH,
    drawing,
    name_axes,
    new_axes,
    new_figure,
    set_log,
    set_title,
    write_numbers,
)
from curate.facts.histograms import QUANTILES, is_steep, quantiles
from curate.plots.asked import Asked, Numbers
from curate.plots.columns import finite, largest, read_columns
from curate.tables.signals import default_column
from scoring.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINE = 3.7  # mm of a class
MOST_CLASSES = 20
NAME_LETTERS = 24


@dataclass
class ByClass(Numbers):
    """A column in classes.

    Attributes:
        column: of numbers.
        per: of classes.
        classes: in the order shown, the lowest median first.
        rows: of each.
        shares: of the quantiles.
        quantiles: of each class, one a share.
        median: of all rows with a value, other classes included.
        log: whether the axis is logarithmic.
    """

    column: str
    per: str
    classes: list[str]
    rows: list[int]
    shares: list[float]
    quantiles: list[list[float]]
    median: float
    log: bool


def measure(asked: Asked) -> ByClass:
    """Take the quantiles of one column in the largest classes."""
    if len(asked.column) > 1:
        raise InputError(f"by-class shows one column, got {len(asked.column)}; draw one image of each")
    column = asked.column[0] if asked.column else default_column(asked.table)
    per = asked.per or LABEL
    if asked.per is None and LABEL not in asked.table.schema.names:
        raise InputError(f"expected a column of classes, and {asked.table.path} has no {LABEL!r}; name one with --per")
    rows = read_columns(asked, (column,), per)
    notes: list[str] = []
    values = rows.numbers[column]
    there = finite(values, column, asked.table, notes)
    groups = largest(rows.names[per], there, MOST_CLASSES, per, notes)
    parts = [values[there & (groups.place == place)] for place in range(len(groups.names))]
    found = [quantiles(part) for part in parts]
    order = sorted(range(len(found)), key=lambda place: (found[place][2], groups.names[place]))
    return ByClass(
        column,
        per,
        [groups.names[place] for place in order],
        [groups.rows[place] for place in order],
        list(QUANTILES),
        [found[place] for place in order],
        float(np.median(values[there])),
        is_steep(values[there]),
        notes=notes,
    )


@drawing()
def draw(numbers: ByClass, *, title: str = "", width: float = WIDTH) -> "Figure":
    """Draw a line a class: 5 to 95 % thin, 25 to 75 % thick, the median as a dot."""
    n = len(numbers.classes)
    figure = new_figure(n * LINE + 13 + 5 * bool(title), width)
    set_title(figure, title)
    (axes,) = new_axes(figure)
    low, first, middle, third, high = np.array(numbers.quantiles).T
    at = np.arange(n)
    axes.axvline(numbers.median, color=FAINT, linewidth=1, zorder=0)
    axes.hlines(at, low, high, color=COLOURS[0], linewidth=0.8)
    axes.hlines(at, first, third, color=COLOURS[0], linewidth=3)
    axes.plot(middle, at, "o", color="white", markeredgecolor=COLOURS[0], markersize=3.2, markeredgewidth=0.9)
    letters = round(NAME_LETTERS * width / WIDTH)
    axes.set_yticks(at, [plain_line(name, letters) for name in numbers.classes])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(-0.7, n - 0.3)
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(at, [f"{rows:,}" for rows in numbers.rows])
    beside.tick_params(axis="y", length=0)
    beside.spines["right"].set_visible(False)
    axes.text(1.02, 1.0, "rows", transform=axes.transAxes, va="bottom")
    axes.text(-0.02, 1.0, plain_line(numbers.per, letters), transform=axes.transAxes, va="bottom", ha="right")
    if numbers.log:
        set_log(axes, "x", low.min(), high.max())
    else:
        write_numbers(axes.xaxis)
    name_axes(axes, numbers.column)
    return figure
