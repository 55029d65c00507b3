"""Abstained accuracy: how accuracy rises where the least certain rows are left undecided."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from curate.evaluation.correctness import COVERAGES
from curate.plots.judged import Band, bands_of, outcomes
from curate.plots.request import Numbers, PlotRequest
from curate.sheets.chart import Curve, Panel, draw_chart
from curate.sheets.style import WIDTH
from curate.statistics.weighted import RankOrder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXIS = "share of rows decided, the most certain first"


@dataclass
class Abstained(Numbers):
    """Accuracy by the share of rows that are decided.

    Attributes:
        what: that predicts.
        rows: N.
        coverage: shares, shape (K,).
        accuracy: column -> its curve.
    """

    what: str
    rows: int
    coverage: list[float]
    accuracy: dict[str, Band]


def measure(request: PlotRequest) -> Abstained:
    """Measure at the shares of `curate evaluate`, on its rows and with its resamples."""
    notes: list[str] = []
    judged = outcomes(request, notes)
    bands = bands_of(judged, RankOrder.accuracy_at, COVERAGES, request)
    return Abstained(judged.what, len(judged.right), COVERAGES.tolist(), bands, notes=notes)


def draw(numbers: Abstained, *, title: str = "", width: float = WIDTH) -> "Figure":
    """Draw a curve a column, with its 95 % band."""
    curves = [Curve(name, numbers.coverage, band.value, band.low, band.high) for name, band in numbers.accuracy.items()]
    panel = Panel(curves, AXIS, f"accuracy, {numbers.what}", percent=True, across=True)
    return draw_chart([panel], title=title, width=width)
