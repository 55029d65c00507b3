"""Risk and coverage: errors among the most certain share of rows, next to the best order and one at random."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from curate.plots.abstained import AXIS
from curate.plots.judged import Band, bands_of, outcomes
from curate.plots.request import Numbers, PlotRequest
from curate.sheets.chart import Curve, Panel, draw_chart
from curate.sheets.style import WIDTH
from curate.statistics.selective import aurc
from curate.statistics.weighted import RankOrder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COVERAGE = np.arange(1, 51) / 50


@dataclass
class Risk(Numbers):
    """Share of errors by the share of rows that are decided.

    Attributes:
        what: that predicts.
        rows: N.
        coverage: shares, shape (K,).
        risk: column -> its curve.
        aurc: column -> area under its risk-coverage curve, the mean over every number of rows.
        perfect: the curve of an order with every error last, shape (K,).
        chance: the share of errors, which an order at random has throughout.
    """

    what: str
    rows: int
    coverage: list[float]
    risk: dict[str, Band]
    aurc: dict[str, float]
    perfect: list[float]
    chance: float


def measure(request: PlotRequest) -> Risk:
    """Measure on the rows of `curate evaluate`, with its resamples."""
    notes: list[str] = []
    judged = outcomes(request, notes)
    bands = bands_of(judged, RankOrder.accuracy_at, COVERAGE, request)
    risk = {
        name: Band([1 - a for a in band.value], [1 - a for a in band.high], [1 - a for a in band.low])
        for name, band in bands.items()
    }
    areas = {name: aurc(values, judged.right) for name, values in judged.certainty.items()}
    right = float(judged.right.mean())
    perfect = np.maximum(0.0, COVERAGE - right) / COVERAGE
    return Risk(
        judged.what, len(judged.right), COVERAGE.tolist(), risk, areas, perfect.tolist(), 1 - right, notes=notes
    )


def draw(numbers: Risk, *, title: str = "", width: float = WIDTH) -> "Figure":
    """Draw a curve a column with its 95 % band and its area, and what can be had at best and at random."""
    curves = [
        Curve(f"{name} ({numbers.aurc[name]:.3f})", numbers.coverage, band.value, band.low, band.high)
        for name, band in numbers.risk.items()
    ]
    beside = [
        Curve("best order", numbers.coverage, numbers.perfect),
        Curve("at random", numbers.coverage, [numbers.chance] * len(numbers.coverage)),
    ]
    y = f"errors, {numbers.what}"
    panel = Panel(curves, AXIS, y, percent=True, across=True, zero=True, dots=False, beside=beside, legend_title="AURC")
    return draw_chart([panel], title=title, width=width)
