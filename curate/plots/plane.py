"""The map: rows in two dimensions, uncertain ones large and faint."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from curate.columns import KEY, is_less_certain
from curate.display.captions import plain_line
from curate.display.style import (
    WIDTH,
    axis_letters,
    drawing,
    legend_height,
    name_axes,
    new_axes,
    new_figure,
    set_legend,
    set_title,
)
from curate.facts.dataset import read_dataset
from curate.facts.places import doubt_ranks, place_rows
from curate.plots.asked import Asked, Numbers
from curate.plots.columns import MOST_POINTS, Floats, finite, largest, read_columns, sampled
from curate.plots.points import Points, draw_points, point_names
from curate.tables.signals import default_column
from scoring.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 76.0  # mm, of a map as wide as a column
MOST_GROUPS = 6
MOST_MAPPED = 10_000  # rows that are placed by their embeddings, in a minute or so


@dataclass
class Map(Numbers):
    """Rows in two dimensions.

    Attributes:
        column: that says how certain a row is; empty without one.
        how: the places came about; empty where they are columns.
        x_name: column across; empty without one.
        y_name: column upwards; empty without one.
        points: what is drawn.
    """

    column: str
    how: str
    x_name: str
    y_name: str
    points: Points


def measure(asked: Asked) -> Map:
    """Take places from two columns, or from the embeddings by the library that `curate report` uses."""
    if (asked.x is None) != (asked.y is None):
        raise InputError("a map takes its places from two columns, and got one; give --x and --y, or neither")
    if len(asked.column) > 1:
        raise InputError(f"a map shows one column as sizes, got {len(asked.column)}; draw one image of each")
    column = asked.column[0] if asked.column else _own_score(asked)
    notes: list[str] = []
    wanted = tuple(dict.fromkeys(name for name in (asked.x, asked.y, column) if name))
    rows = read_columns(asked, wanted, asked.per)
    how = ""
    if asked.x is not None and asked.y is not None:
        x, y = rows.numbers[asked.x], rows.numbers[asked.y]
        there = finite(x, asked.x, asked.table, notes) & finite(y, asked.y, asked.table, notes)
        at = sampled(rows, there, asked.sample or MOST_POINTS, asked.seed, notes)
        if not len(at):
            raise InputError(f"expected a row with both {asked.x!r} and {asked.y!r} in {asked.table.path}, got none")
        points = Points(at.tolist(), x[at].tolist(), y[at].tolist())
    else:
        at, points, how = _placed(asked, notes)
    if column:
        values = rows.numbers[column][at]
        finite(values, column, asked.table, notes)
        points.doubt = doubt_ranks(values if is_less_certain(column) else -values).tolist()
    if asked.per:
        shown = np.zeros(len(rows), bool)
        shown[at] = True
        groups = largest(rows.names[asked.per], shown, MOST_GROUPS, asked.per, notes)
        points.groups, points.group = groups.names, groups.place[at].tolist()
    return Map(column, how, asked.x or "", asked.y or "", points, notes=notes)


def _own_score(asked: Asked) -> str:
    """The score of a table, or nothing where it has none or several."""
    try:
        return default_column(asked.table)
    except InputError:
        return ""


def _placed(asked: Asked, notes: list[str]) -> tuple[NDArray[np.int64], Points, str]:
    """Rows, their places by their embeddings, and how these came about."""
    asked.table.require([KEY])
    dataset = read_dataset(asked.table, None, seed=asked.seed)
    drawn = dataset.drawn(asked.sample or MOST_MAPPED)
    if len(drawn) < dataset.n:
        notes.append(f"{len(drawn):,} of {dataset.n:,} rows are placed, chosen by a hash of their keys")
    asked.announce(f"placing {len(drawn):,} rows by their embeddings")
    found = place_rows(dataset, drawn, None, seed=asked.seed)
    if isinstance(found, str):
        raise InputError(f"{found}; or name two columns of places with --x and --y")
    xy: Floats = found.xy.astype(np.float64)
    return found.row, Points(found.row.tolist(), xy[:, 0].tolist(), xy[:, 1].tolist()), found.words


@drawing()
def draw(numbers: Map, *, title: str = "", width: float = WIDTH) -> "Figure":
    """Draw the points without numbers along the axes, which mean nothing in a map."""
    points = numbers.points
    figure = new_figure(HEIGHT * width / WIDTH + legend_height(point_names(points), width) + 5 * bool(title), width)
    set_title(figure, title)
    (axes,) = new_axes(figure)
    draw_points(axes, points)
    axes.set(xticks=[], yticks=[])
    axes.margins(0.04)
    for spine in axes.spines.values():
        spine.set_visible(bool(numbers.x_name) and spine.spine_type in ("left", "bottom"))
    said = f"large and faint: less certain by {numbers.column}" if points.doubt else ""
    name_axes(axes, numbers.x_name, numbers.y_name)
    axes.set_xlabel("\n".join(part for part in (axes.get_xlabel(), plain_line(said, axis_letters(axes)[0])) if part))
    set_legend(axes, width)
    return figure
