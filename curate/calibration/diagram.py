"""The reliability diagram of a calibration: what was promised for held-out rows, and what they were."""

from typing import TYPE_CHECKING

from curate.calibration.result import CONSTANT, CalibrationResult
from curate.plots.judged import Band
from curate.plots.reliability import Reliability, draw
from scoring.metrics.resampling import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def diagram(result: CalibrationResult) -> "Figure":
    """Return the share of good rows over the probability of being good, in tenths of the rows, the worst first."""
    calibration = result.calibration
    numbers = Reliability("share of good rows", calibration.fitted.rows, {}, {}, {})
    for name, measured in result.measured.items():
        if name == CONSTANT:
            continue
        seen = measured["seen"][::-1]  # the highest probability of being bad first
        ends = [[1 - bin_[place] for bin_ in seen] for place in (0, 2, 1)]
        numbers.accuracy[name] = Band(*ends)
        numbers.confidence[name] = [1 - promised for promised in measured["promised"][::-1]]
        numbers.ece[name] = Interval(*measured["ece"])
    return draw(numbers)
