"""Reliability: accuracy of rows of similar certainty, compared with the predicted probability."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from curate.columns import ERROR_COLUMNS, describe
from curate.counted import counted
from curate.reporting.plots.judged import Band, Outcomes, outcomes
from curate.reporting.plots.request import Numbers, PlotRequest
from curate.sheets.chart import Curve, Panel, draw_chart
from curate.sheets.style import WIDTH
from curate.statistics.calibration import BINS, EqualMass
from scoring.arrays import Floats
from scoring.errors import InputError
from scoring.metrics.resampling import Interval, percentiles, resample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONFIDENCE = "linear classifier"


@dataclass
class Reliability(Numbers):
    """Accuracy in tenths of the rows, least certain first.

    Attributes:
        what: description of the predictor.
        rows: N.
        accuracy: column -> accuracy in each tenth.
        confidence: column -> mean confidence in each tenth, for columns of probabilities only.
        ece: column -> expected calibration error: the mean absolute difference of accuracy and confidence.
    """

    what: str
    rows: int
    accuracy: dict[str, Band]
    confidence: dict[str, list[float]]
    ece: dict[str, Interval]

    @classmethod
    def measure(cls, request: PlotRequest) -> Self:
        """Compute tenths of the rows of ``curate evaluate``; rows of equal certainty are split evenly."""
        notes: list[str] = []
        judged = outcomes(request, notes)
        if request.column:
            columns = {name: _certainty(name, judged) for name in dict.fromkeys(request.column)}
            promised = [name for name in columns if _is_chance(name, judged.raw[name])]
        elif judged.confidence is not None:
            columns, promised = {CONFIDENCE: judged.confidence}, [CONFIDENCE]
        else:
            raise InputError(
                f"the {judged.what} has no confidence; choose columns with --column, such as {', '.join(judged.raw)}"
            )
        if promised and len(promised) < len(columns):
            rest = [name for name in columns if name not in promised]
            raise InputError(
                f"--column: {promised[0]} holds probabilities between 0 and 1 and {rest[0]} does not, so they "
                "cannot share an axis; draw one chart of each"
            )
        if len(judged.right) < 2 * BINS:
            raise InputError(f"expected at least {2 * BINS} rows, got {len(judged.right)}; score more images")
        request.announce(f"bands of {counted(len(columns), 'column')} from {request.repeats:,} resamples")
        result = cls(judged.what, len(judged.right), {}, {}, {}, notes=notes)
        for name, certainty in columns.items():
            _measure_column(result, name, certainty, judged, request, promised=name in promised)
        return result

    def draw(self, *, title: str = "", width: float = WIDTH) -> "Figure":
        """Draw accuracy over predicted probability with the diagonal, or over tenths for other scores."""
        if not self.confidence:
            x = [(place + 0.5) / BINS for place in range(BINS)]
            curves = [Curve(name, x, band.value, band.low, band.high) for name, band in self.accuracy.items()]
            panel = Panel(curves, "share of rows, the least certain first", f"accuracy, {self.what}", True, across=True)
            return draw_chart([panel], title=title, width=width)
        curves = [
            Curve(f"{name} ({self.ece[name].value:.3f})", self.confidence[name], band.value, band.low, band.high)
            for name, band in self.accuracy.items()
        ]
        least = min(min(values) for values in self.confidence.values())
        diagonal = Curve("as promised", [least, 1.0], [least, 1.0])
        panel = Panel(
            curves,
            "confidence, mean of a tenth of the rows",
            f"accuracy, {self.what}",
            percent=True,
            across=True,
            beside=[diagonal],
            square=True,
            height=72,
            legend_title="ECE",
        )
        return draw_chart([panel], title=title, width=width)


def _certainty(name: str, judged: Outcomes) -> Floats:
    """Return the certainty of each row, shape (N,): one minus the probability of being bad, else the column itself."""
    return 1 - judged.raw[name] if name in ERROR_COLUMNS else judged.certainty[name]


def _is_chance(name: str, values: Floats) -> bool:
    """Return whether a column holds probabilities: the user's column, or one from ``curate calibrate``."""
    if name in ERROR_COLUMNS:
        return True
    return not describe(name).higher and bool(((values >= 0) & (values <= 1)).all())


def _measure_column(
    result: Reliability, name: str, certainty: Floats, judged: Outcomes, request: PlotRequest, *, promised: bool
) -> None:
    bins = EqualMass(certainty, np.stack([judged.right, certainty if promised else np.zeros(len(certainty))], 1))

    def statistic(counts: NDArray[np.int64]) -> Floats:
        """Return accuracy and mean certainty of each tenth, then the calibration error, shape (2 BINS + 1,)."""
        right, mean = bins.means(counts)  # the least certain first
        return np.concatenate([right, mean, [np.abs(right - mean).mean()]])

    n = len(certainty)
    values = statistic(np.ones(n, np.int64))
    samples = resample(statistic, n, repeats=request.repeats, seed=request.seed)
    samples[:, -1] -= (
        samples[:, -1].mean() - values[-1]
    )  # rows drawn twice raise it, as in curate.statistics.calibration
    low, high = np.maximum(percentiles(samples), 0)
    band = Band(*(part[:BINS].tolist() for part in (values, low, high)))
    result.accuracy[name] = band.widened(np.full(BINS, n / BINS))
    if promised:
        result.confidence[name] = values[BINS : 2 * BINS].tolist()
        result.ece[name] = Interval(float(values[-1]), float(low[-1]), float(high[-1]))
