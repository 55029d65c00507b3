"""ROC: what share of the right rows, and of the wrong ones, is above each threshold of a score."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from curate.plots.judged import Band, bands_of, outcomes
from curate.plots.request import Numbers, PlotRequest
from curate.sheets.chart import Curve, Panel, draw_chart
from curate.sheets.style import WIDTH
from curate.statistics.weighted import RankOrder
from scoring.errors import InputError
from scoring.metrics.ranking import auroc

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATES = np.arange(101) / 100


@dataclass
class Roc(Numbers):
    """Share of the right rows above a threshold by the share of the wrong rows above it.

    Attributes:
        what: that predicts.
        rows: N.
        false_positive_rate: of the wrong rows, shape (K,).
        true_positive_rate: column -> of the right rows.
        auroc: column -> area under its curve; 0.5 is chance level.
    """

    what: str
    rows: int
    false_positive_rate: list[float]
    true_positive_rate: dict[str, Band]
    auroc: dict[str, float]


def measure(request: PlotRequest) -> Roc:
    """Measure on the rows of `curate evaluate`, with its resamples.

    Source: Fawcett 2006, "An introduction to ROC analysis", sec. 5, and 7 for the bands (at each false-positive rate).
    """
    notes: list[str] = []
    judged = outcomes(request, notes)
    if judged.right.all() or not judged.right.any():
        raise InputError(f"expected rows that are right and rows that are wrong, got one kind: {notes[-1]}")
    bands = bands_of(judged, RankOrder.true_positive_rate_at, RATES, request)
    areas = {name: auroc(values, judged.right) for name, values in judged.certainty.items()}
    return Roc(judged.what, len(judged.right), RATES.tolist(), bands, areas, notes=notes)


def draw(numbers: Roc, *, title: str = "", width: float = WIDTH) -> "Figure":
    """Draw a curve a column with its 95 % band and its area, and the diagonal, which is chance level."""
    rates = numbers.false_positive_rate
    curves = [
        Curve(f"{name} ({numbers.auroc[name]:.3f})", rates, band.value, band.low, band.high)
        for name, band in numbers.true_positive_rate.items()
    ]
    panel = Panel(
        curves,
        "wrong rows above a threshold",
        "right rows above it",
        percent=True,
        across=True,
        zero=True,
        dots=False,
        beside=[Curve("chance level (0.5)", rates, rates)],
        legend_title=f"AUROC, {numbers.what}",
    )
    return draw_chart([panel], title=title, width=width)
