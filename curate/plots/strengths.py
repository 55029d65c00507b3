"""How uncertain scores call images as they get worse, from what `curate evaluate --degrade --strengths` wrote."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from curate.evaluation.curves import read_strengths
from curate.plots.degradation import chosen_columns, not_ours, read_report
from curate.plots.judged import Band
from curate.plots.request import Numbers, PlotRequest
from curate.sheets.captions import plain_line
from curate.sheets.style import (
    DASHES,
    GREY,
    LINE_LETTERS,
    MARKERS,
    WIDTH,
    axis_letters,
    colour,
    drawing,
    legend_height,
    name_axes,
    new_axes,
    new_figure,
    set_title,
    write_numbers,
    write_percent,
)
from scoring.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 2  # panels next to one another
HEIGHT = 40.0  # mm of a panel
MOST_COLUMNS = 6


@dataclass
class Steps:
    """One way to make images worse.

    Attributes:
        kind: its name.
        unit: of a strength.
        strength: ascending, the first 0 for the images as they are, shape (S,).
        share: column -> mean share of unchanged images that are more certain, at each strength.
    """

    kind: str
    unit: str
    strength: list[float]
    share: dict[str, Band]


@dataclass
class Strengths(Numbers):
    """How uncertain scores call images as they get worse.

    Attributes:
        images: N.
        kinds: ways to make them worse.
    """

    images: int
    kinds: list[Steps]

    @classmethod
    def measure(cls, request: PlotRequest) -> Self:
        """Read the curves and their intervals from the JSON of an evaluation."""
        report = read_report(request.path)
        if not report.get("strengths"):
            raise InputError(
                f"{request.path} was measured without strengths; run `curate evaluate TABLE --degrade 500 --strengths "
                "-o REPORT.json`"
            )
        try:
            kinds = [
                Steps(
                    each["kind"],
                    each["unit"],
                    each["strength"],
                    {name: Band(**ends) for name, ends in each["columns"].items()},
                )
                for each in read_strengths(report)
            ]
            images = int(next(each["n"] for each in report["measures"] if str(each["name"]).startswith("less certain")))
        except (KeyError, TypeError, ValueError, AttributeError, StopIteration):
            raise not_ours(request.path) from None
        chosen, notes = chosen_columns(request, list(kinds[0].share), MOST_COLUMNS)
        for kind in kinds:
            kind.share = {name: kind.share[name] for name in chosen}
        return cls(images, kinds, notes=notes)

    @drawing()
    def draw(self, *, title: str = "", width: float = WIDTH) -> "Figure":
        """Draw a panel a kind, a line with its band a column; half is what the images as they are have."""
        names = list(self.kinds[0].share)
        lines = -(-len(self.kinds) // COLUMNS)
        figure = new_figure(lines * HEIGHT + legend_height(names, width) + 6 + 5 * bool(title), width)
        set_title(figure, title)
        panels = new_axes(figure, len(self.kinds), COLUMNS)
        for at, (axes, steps) in enumerate(zip(panels, self.kinds, strict=True)):
            axes.axhline(0.5, color=GREY, linewidth=0.8, linestyle=(0, (3, 2)))
            axes.grid(axis="y")
            for place, (name, band) in enumerate(steps.share.items()):
                axes.fill_between(steps.strength, band.low, band.high, color=colour(place), alpha=0.18, linewidth=0)
                axes.plot(
                    steps.strength,
                    band.value,
                    color=colour(place),
                    linestyle=DASHES[place % len(DASHES)],
                    marker=MARKERS[place % len(MARKERS)],
                    markersize=2.4,
                    linewidth=1,
                    label=plain_line(name, LINE_LETTERS),
                )
            axes.set_ylim(-0.02, 1.02)
            write_percent(axes.yaxis, steps=(2.5, 5, 10))
            write_numbers(axes.xaxis, most=5)
            name_axes(axes, steps.unit)
            axes.set_title(plain_line(steps.kind, axis_letters(axes)[0]), loc="left", pad=2)
            if at % COLUMNS:
                axes.set_yticklabels([])
        handles, shown = panels[0].get_legend_handles_labels()
        columns = max(1, min(4, int(width / (1.4 * max(map(len, shown)) + 8))))
        figure.legend(handles, shown, loc="outside upper left", ncols=columns)
        figure.supylabel(f"unchanged images that are more certain, mean of {self.images:,}", fontsize=7.5)
        return figure
