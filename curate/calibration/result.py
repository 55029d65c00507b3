"""The quality of a calibration, as a value and as text."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.calibration.apply import AppliedCalibration
from curate.calibration.judged import TARGETS
from curate.calibration.stored import Calibration
from curate.counted import Grid, Printed, counted
from scoring.metrics.resampling import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONSTANT = "constant"
Measured = Mapping[str, Any]


@dataclass(frozen=True)
class CalibrationResult(Printed):
    """A calibration, its quality on held-out rows, and the files written.

    Attributes:
        calibration: the maps, and all that belongs to them.
        fitted_before: whether it was read, and nothing fitted.
        path: the calibration that was written, or None.
        applied: the table that was written, or None.
        note: why it may not fit the table that it was applied to; empty where it does.
    """

    calibration: Calibration
    fitted_before: bool = False
    path: Path | None = None
    applied: AppliedCalibration | None = None
    note: str = ""

    @property
    def measured(self) -> Mapping[str, Measured]:
        """Map, or ``constant``, -> the fields of ``curate.statistics.calibration.Calibrated``, as plain JSON."""
        measured: Mapping[str, Measured] = self.calibration.about["accuracy"]
        return measured

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        applied = None
        if self.applied is not None:
            applied = {**asdict(self.applied), "path": str(self.applied.path), "receipt": str(self.applied.receipt)}
        return {
            "calibration": self.calibration.to_json(),
            "fitted_before": self.fitted_before,
            "path": None if self.path is None else str(self.path),
            "applied": applied,
            "note": self.note,
        }

    def lines(self) -> list[str | Grid]:
        """Return the printed lines: the judged rows, the quality of the maps, and the files."""
        calibration, fitted = self.calibration, self.calibration.fitted
        lines: list[str | Grid] = []
        if not self.fitted_before:
            lines += self._about_rows()
            lines += [
                Grid([_line(name, each) for name, each in self.measured.items()], header=HEADER),
                *self._verdict(),
            ]
        if self.note:
            lines.append(f"note: {self.note}")
        if self.path is not None:
            lines.append(
                f"calibration: {self.path} ({calibration.score.column} from {fitted.low:.4g} to {fitted.high:.4g})"
            )
        if self.applied is not None:
            without = f"; {counted(self.applied.without, 'row')} without a score" if self.applied.without else ""
            lines.append(f"{self.applied.outside.words(fitted)}{without}")
            lines.append(f"table: {self.applied.path}")
        return lines

    def figure(self) -> "Figure":
        """Return the share of good rows over the predicted probability of good, in tenths of the rows, worst first."""
        from curate.plots.judged import Band
        from curate.plots.reliability import Reliability

        numbers = Reliability("share of good rows", self.calibration.fitted.rows, {}, {}, {})
        for name, measured in self.measured.items():
            if name == CONSTANT:
                continue
            seen = measured["seen"][::-1]  # the highest probability of being bad first
            ends = [[1 - bin_[place] for bin_ in seen] for place in (0, 2, 1)]
            numbers.accuracy[name] = Band(*ends)
            numbers.confidence[name] = [1 - promised for promised in measured["promised"][::-1]]
            numbers.ece[name] = Interval(*measured["ece"])
        return numbers.draw()

    def _about_rows(self) -> list[str | Grid]:
        calibration = self.calibration
        side = "high" if calibration.score.sign > 0 else "low"
        left_out = calibration.about["left_out"]
        return [
            f"{calibration.fitted.rows:,} judged rows, {calibration.rate:.1%} bad ({TARGETS[calibration.target]}); "
            f"{calibration.score.column}, where {side} is doubtful",
            *(f"left out: {counted(n, 'row')} {why}" for why, n in left_out.items()),
            "held out, with 95 % intervals; by chance: what perfect probabilities would show",
        ]

    def _verdict(self) -> list[str]:
        gains = {name: each["gain"] for name, each in self.measured.items() if name != CONSTANT}
        if all(gain[1] <= 0 for gain in gains.values()):
            return [
                (
                    f"no map is better than a constant beyond the interval: {self.calibration.score.column} "
                    "carries no information here"
                )
            ]
        return []


HEADER = ("", "ECE", "by chance", "debiased RMS", "Brier", "below the constant")


def _line(name: str, measured: Measured) -> tuple[str, ...]:
    chance = measured["by_chance"]
    shown = [
        _interval(measured["ece"]),
        f"{chance[0]:.4f}, up to {chance[2]:.4f}",
        _interval(measured["rms"]),
        _interval(measured["brier"]),
        "" if name == CONSTANT else _interval(measured["gain"]),
    ]
    return (name, *shown)


def _interval(value: Any) -> str:
    return "{:.4f} [{:.4f}, {:.4f}]".format(*value)
