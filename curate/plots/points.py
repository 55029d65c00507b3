"""Many points in a plane: by group, or by how certain they are."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from curate.display.captions import plain_line
from curate.display.style import COLOURS, GREY, LINE_LETTERS, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_SHAPES = 2000  # points from which they are pixels, in vector files too
LEVELS = 12  # steps of size and faintness: points of a step share one shape in a vector file
OTHERS = "others"


@dataclass
class Points:
    """M points.

    Attributes:
        row: of the table, counted from 0, shape (M,).
        x: shape (M,).
        y: shape (M,).
        group: place in ``groups`` of each, -1 for others; empty if absent.
        groups: names.
        doubt: of each, 0 the most certain, 1 the least; empty where nothing says.
    """

    row: list[int]
    x: list[float]
    y: list[float]
    group: list[int] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    doubt: list[float] = field(default_factory=list)


def point_names(points: Points) -> list[str]:
    """Return the names that a legend has."""
    return [*points.groups, *([OTHERS] if -1 in points.group else [])] if points.groups else []


def draw_points(axes: "Axes", points: Points) -> None:
    """Draw points small where there are many; uncertain ones large and faint.

    Source: of large and faint, Figure 9 of Kirchhof et al. 2024, "Pretrained Visual Uncertainties", arXiv:2402.16569.
    """
    n = len(points.x)
    x, y = np.array(points.x), np.array(points.y)
    size, alpha = float(np.clip(6000 / max(n, 1), 1.5, 14)), float(np.clip(900 / max(n, 1), 0.2, 0.8))
    group = np.array(points.group) if points.groups else np.zeros(n, int)
    level = np.round(np.array(points.doubt or np.zeros(n)) * LEVELS).astype(int)
    few = n <= MOST_SHAPES
    for step, place in sorted(set(zip(level.tolist(), group.tolist(), strict=True)), reverse=True):  # the sure on top
        mine = (level == step) & (group == place)
        doubt = step / LEVELS
        axes.scatter(
            x[mine],
            y[mine],
            size * (0.5 + 4.5 * doubt**2) if points.doubt else size,
            COLOURS[place] if place >= 0 else GREY,
            marker=MARKERS[place] if few and place >= 0 else "o",
            alpha=float(np.clip(1.3 * alpha * (1 - 0.85 * doubt), 0.04, 1)) if points.doubt else alpha,
            linewidths=0,
            rasterized=not few,
        )
    for place, name in enumerate(points.groups):
        shown = plain_line(name, LINE_LETTERS)
        marker = MARKERS[place] if n <= MOST_SHAPES else "o"
        axes.plot([], [], marker, color=COLOURS[place], markersize=3.5, label=shown)
    if points.groups and -1 in points.group:
        axes.plot([], [], "o", color=GREY, markersize=3.5, label=OTHERS)
