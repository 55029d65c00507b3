"""Scores under growing corruption, drawn for `curate selftest`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from curate.reporting.plots.judged import Band
from curate.sheets import style
from curate.sheets.captions import plain_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 2  # panels next to one another
HEIGHT = 40.0  # mm of a panel
MOST_COLUMNS = 6


@dataclass
class Steps:
    """One kind of corruption.

    Attributes:
        kind: its name.
        unit: of a strength.
        strength: ascending from 0 for the original images, shape (S,).
        share: column -> mean share of original images that are more certain, at each strength.
    """

    kind: str
    unit: str
    strength: list[float]
    share: dict[str, Band]


@dataclass
class Strengths:
    """Scores of images under growing corruption.

    Attributes:
        images: number N of images.
        kinds: kinds of corruption.
    """

    images: int
    kinds: list[Steps]

    @style.drawing()
    def draw(self, *, width: float = style.WIDTH) -> "Figure":
        """Draw one panel per kind, with a line and a band per column; 0.5 is the value of the original images."""
        names = list(self.kinds[0].share)
        lines = -(-len(self.kinds) // COLUMNS)
        figure = style.new_figure(lines * HEIGHT + style.legend_height(names, width) + 6, width)
        panels = style.new_axes(figure, len(self.kinds), COLUMNS)
        for at, (axes, steps) in enumerate(zip(panels, self.kinds, strict=True)):
            axes.axhline(0.5, color=style.GREY, linewidth=0.8, linestyle=(0, (3, 2)))
            axes.grid(axis="y")
            for place, (name, band) in enumerate(steps.share.items()):
                axes.fill_between(
                    steps.strength, band.low, band.high, color=style.colour(place), alpha=0.18, linewidth=0
                )
                axes.plot(
                    steps.strength,
                    band.value,
                    color=style.colour(place),
                    linestyle=style.DASHES[place % len(style.DASHES)],
                    marker=style.MARKERS[place % len(style.MARKERS)],
                    markersize=2.4,
                    linewidth=1,
                    label=plain_line(name, style.LINE_LETTERS),
                )
            axes.set_ylim(-0.02, 1.02)
            style.write_percent(axes.yaxis, steps=(2.5, 5, 10))
            style.write_numbers(axes.xaxis, most=5)
            style.name_axes(axes, steps.unit)
            axes.set_title(plain_line(steps.kind, style.axis_letters(axes)[0]), loc="left", pad=2)
            if at % COLUMNS:
                axes.set_yticklabels([])
        handles, shown = panels[0].get_legend_handles_labels()
        columns = max(1, min(4, int(width / (1.4 * max(map(len, shown)) + 8))))
        figure.legend(handles, shown, loc="outside upper left", ncols=columns)
        figure.supylabel(f"unchanged images that are more certain, mean of {self.images:,}", fontsize=7.5)
        return figure
