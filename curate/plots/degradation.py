"""How often a corrupted version of an image is called less certain, from what `curate evaluate --degrade` wrote."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from curate.evaluation.degraded import CENTER_CROP, share_shape
from curate.manifest.store_path import AnyPath
from curate.manifest.text import read_json
from curate.plots.judged import Band
from curate.plots.request import Numbers, PlotRequest
from curate.sheets.captions import plain_line
from curate.sheets.style import (
    GREY,
    LINE_LETTERS,
    MARKERS,
    WIDTH,
    colour,
    drawing,
    legend_height,
    name_axes,
    new_axes,
    new_figure,
    set_legend,
    set_title,
    write_percent,
)
from curate.statistics.degradations import WORSE
from scoring.errors import InputError
from scoring.lookup import closest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = (CENTER_CROP, *WORSE)
MOST_BYTES = 64 << 20
MOST_COLUMNS = 7
LINE = 2.6  # mm of a column in a kind


@dataclass
class Degradation(Numbers):
    """Share of images whose corrupted version is less certain.

    Attributes:
        images: N.
        kinds: of making them worse, K.
        share: column -> of each kind.
    """

    images: int
    kinds: list[str]
    share: dict[str, Band]

    @classmethod
    def measure(cls, request: PlotRequest) -> Self:
        """Read the shares and their intervals from the JSON of an evaluation."""
        measures = {str(measure["name"]): measure for measure in read_report(request.path)["measures"]}
        missing = [kind for kind in KINDS if share_shape(kind).name not in measures]
        if missing:
            raise InputError(
                f"{request.path} was measured without corrupted images; run `curate evaluate TABLE --degrade 500 -o "
                "REPORT.json`"
            )
        try:
            shares = [measures[share_shape(kind).name] for kind in KINDS]
            columns = list(shares[0]["values"])
            share = {
                name: Band(*([float(each["values"][name][end]) for each in shares] for end in ("value", "low", "high")))
                for name in columns
            }
            images = int(shares[0]["n"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise not_ours(request.path) from None
        chosen, notes = chosen_columns(request, columns, MOST_COLUMNS)
        return cls(images, list(KINDS), {name: share[name] for name in chosen}, notes=notes)

    @drawing()
    def draw(self, *, title: str = "", width: float = WIDTH) -> "Figure":
        """Draw a line a kind: a mark and its interval for every column; 0.5 is chance level."""
        n, kinds = len(self.share), self.kinds
        figure = new_figure(
            len(kinds) * (n * LINE + 2) + 11 + legend_height(list(self.share), width) + 5 * bool(title), width
        )
        set_title(figure, title)
        (axes,) = new_axes(figure)
        axes.axvline(0.5, color=GREY, linewidth=0.8, linestyle=(0, (3, 2)))
        axes.grid(axis="x")
        for place, (name, band) in enumerate(self.share.items()):
            at = np.arange(len(kinds)) + (place - (n - 1) / 2) * 0.8 / n
            axes.hlines(at, band.low, band.high, color=colour(place), linewidth=1)
            axes.plot(
                band.value,
                at,
                MARKERS[place],
                color=colour(place),
                markersize=3.2,
                label=plain_line(name, LINE_LETTERS),
            )
        axes.set_yticks(range(len(kinds)), kinds)
        axes.tick_params(axis="y", length=0)
        for edge in np.arange(len(kinds) - 1) + 0.5:
            axes.axhline(edge, color=GREY, linewidth=0.3)
        axes.set_ylim(len(kinds) - 0.5, -0.5)
        axes.set_xlim(-0.02, 1.02)
        write_percent(axes.xaxis)
        name_axes(axes, f"share of {self.images:,} images less certain than before")
        set_legend(axes, width)
        return figure


def chosen_columns(request: PlotRequest, known: list[str], most: int) -> tuple[list[str], list[str]]:
    """Return the columns of an evaluation to draw, at most so many, and a note where there are more.

    Raises:
        InputError: for a column that it lacks.
    """
    for name in request.column:
        if name not in known:
            raise InputError(
                f"{request.path} has no column {name!r}{closest(name, known)} (columns: {', '.join(known)})"
            )
    chosen = list(dict.fromkeys(request.column)) or known
    notes = [f"the first {most} of {len(chosen)} columns are shown"] if len(chosen) > most else []
    return chosen[:most], notes


def read_report(path: AnyPath) -> dict[str, Any]:
    """Return the report of an evaluation, whose measures have names.

    Raises:
        InputError: for anything else.
    """
    if not isinstance(path, Path) or path.suffix.lower() != ".json":
        raise InputError(
            f"degradation is drawn from the JSON of `curate evaluate TABLE --degrade 500 -o REPORT.json`, got {path}"
        )
    report: dict[str, Any] = read_json(path, what="the JSON of curate evaluate", most=MOST_BYTES)
    try:
        if all("name" in measure for measure in report["measures"]):
            return report
    except (KeyError, TypeError):
        raise not_ours(path) from None
    raise not_ours(path)


def not_ours(path: AnyPath) -> InputError:
    """Return the mistake of a file that no evaluation wrote."""
    return InputError(f"{path} is not what curate evaluate writes; expected its JSON; take the file that it wrote")
