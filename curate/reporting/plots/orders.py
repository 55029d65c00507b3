"""Certainty against errors: accuracy by coverage, risk by coverage, and ROC."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from curate.evaluation.correctness import COVERAGES
from curate.reporting.plots.judged import Band, Outcomes, bands_of, outcomes
from curate.reporting.plots.request import Numbers, PlotRequest
from curate.sheets.chart import Curve, Panel, draw_chart
from curate.sheets.style import WIDTH
from curate.statistics.weighted import RankOrder, aurc
from scoring.arrays import Floats
from scoring.errors import InputError
from scoring.metrics.ranking import auroc

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXIS = "share of rows decided, the most certain first"
COVERAGE = np.arange(1, 51) / 50
RATES = np.arange(101) / 100


def _accuracies(judged: Outcomes, coverage: Floats, request: PlotRequest) -> dict[str, Band]:
    """Return the accuracy by coverage for each column, with the intervals of ``curate evaluate``."""
    bands = bands_of(judged, RankOrder.accuracy_at, coverage, request)
    return {name: band.widened(coverage * len(judged.right)) for name, band in bands.items()}


@dataclass
class Abstained(Numbers):
    """Accuracy over the share of rows decided.

    Attributes:
        what: description of the predictor.
        rows: N.
        coverage: shares, shape (K,).
        accuracy: column -> its curve.
    """

    what: str
    rows: int
    coverage: list[float]
    accuracy: dict[str, Band]

    @classmethod
    def measure(cls, request: PlotRequest) -> Self:
        """Measure accuracies at the coverages of ``curate evaluate``, with its rows and resamples."""
        notes: list[str] = []
        judged = outcomes(request, notes)
        bands = _accuracies(judged, COVERAGES, request)
        return cls(judged.what, len(judged.right), COVERAGES.tolist(), bands, notes=notes)

    def draw(self, *, title: str = "", width: float = WIDTH) -> "Figure":
        """Draw a curve with a 95 % band for each column."""
        curves = [Curve(name, self.coverage, band.value, band.low, band.high) for name, band in self.accuracy.items()]
        panel = Panel(curves, AXIS, f"accuracy, {self.what}", percent=True, across=True)
        return draw_chart([panel], title=title, width=width)


@dataclass
class Risk(Numbers):
    """Error rate over the share of rows decided.

    Attributes:
        what: description of the predictor.
        rows: N.
        coverage: shares, shape (K,).
        risk: column -> its curve.
        aurc: column -> area under its risk-coverage curve, as the mean over all numbers of rows.
        perfect: the best possible curve: all errors rejected first, shape (K,).
        at_random: the error rate, the expected risk of a random order.
    """

    what: str
    rows: int
    coverage: list[float]
    risk: dict[str, Band]
    aurc: dict[str, float]
    perfect: list[float]
    at_random: float

    @classmethod
    def measure(cls, request: PlotRequest) -> Self:
        """Measure risks with the rows and resamples of ``curate evaluate``."""
        notes: list[str] = []
        judged = outcomes(request, notes)
        bands = _accuracies(judged, COVERAGE, request)
        risk = {
            name: Band([1 - a for a in band.value], [1 - a for a in band.high], [1 - a for a in band.low])
            for name, band in bands.items()
        }
        areas = {name: aurc(values, judged.right) for name, values in judged.certainty.items()}
        right = float(judged.right.mean())
        perfect = np.maximum(0.0, COVERAGE - right) / COVERAGE
        return cls(
            judged.what, len(judged.right), COVERAGE.tolist(), risk, areas, perfect.tolist(), 1 - right, notes=notes
        )

    def draw(self, *, title: str = "", width: float = WIDTH) -> "Figure":
        """Draw a curve with a 95 % band and its area for each column, the best possible order, and a random one."""
        curves = [
            Curve(f"{name} ({self.aurc[name]:.3f})", self.coverage, band.value, band.low, band.high)
            for name, band in self.risk.items()
        ]
        beside = [
            Curve("best order", self.coverage, self.perfect),
            Curve("at random", self.coverage, [self.at_random] * len(self.coverage)),
        ]
        y = f"errors, {self.what}"
        panel = Panel(
            curves, AXIS, y, percent=True, across=True, zero=True, dots=False, beside=beside, legend_title="AURC"
        )
        return draw_chart([panel], title=title, width=width)


@dataclass
class Roc(Numbers):
    """True-positive over false-positive rate, where right rows are the positives.

    Attributes:
        what: description of the predictor.
        rows: N.
        false_positive_rate: of the wrong rows, shape (K,).
        true_positive_rate: column -> share of the right rows, shape (K,).
        auroc: column -> area under its curve; 0.5 is chance level.
    """

    what: str
    rows: int
    false_positive_rate: list[float]
    true_positive_rate: dict[str, Band]
    auroc: dict[str, float]

    @classmethod
    def measure(cls, request: PlotRequest) -> Self:
        """Measure ROC curves with the rows and resamples of ``curate evaluate``.

        Source: Fawcett 2006, "An introduction to ROC analysis", sec. 5, and 7 for the bands (at each
        false-positive rate).
        """
        notes: list[str] = []
        judged = outcomes(request, notes)
        if judged.right.all() or not judged.right.any():
            raise InputError(f"expected rows that are right and rows that are wrong, got one kind: {notes[-1]}")
        bands = bands_of(judged, RankOrder.true_positive_rate_at, RATES, request)
        areas = {name: auroc(values, judged.right) for name, values in judged.certainty.items()}
        return cls(judged.what, len(judged.right), RATES.tolist(), bands, areas, notes=notes)

    def draw(self, *, title: str = "", width: float = WIDTH) -> "Figure":
        """Draw a curve with a 95 % band and its area for each column, and the diagonal (chance level)."""
        rates = self.false_positive_rate
        curves = [
            Curve(f"{name} ({self.auroc[name]:.3f})", rates, band.value, band.low, band.high)
            for name, band in self.true_positive_rate.items()
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
            legend_title=f"AUROC, {self.what}",
        )
        return draw_chart([panel], title=title, width=width)
