"""Calibrate a score: probabilities that a row is bad, fitted on labelled rows, and their accuracy."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.calibration.apply import (
    SUFFIX,
    AppliedCalibration,
    Calibration,
    apply_calibration,
    dataset_of,
    read_calibration,
    write_calibration,
)
from curate.calibration.judged import TARGETS, JudgedRows, Truth, folds_of, judged_rows
from curate.calibration.options import CalibrateOptions
from curate.columns import KEY
from curate.counted import Grid, Printed, counted
from curate.fitting.applied import check_applied
from curate.manifest.file_set import FileSet, file_set, refuse_two_places
from curate.manifest.store_path import AnyPath, path_on_disk, path_or_store
from curate.options.function import callable_of
from curate.options.values import several
from curate.policies.receipts import receipt_beside
from curate.tables.provenance import FittedRange, model_of
from curate.tables.table import Table, open_table
from curate.version import __version__
from scoring.errors import InputError
from scoring.metrics.resampling import Interval
from scoring.settings import require_between

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONSTANT = "constant"
Measured = Mapping[str, Any]
FOLDS = 5
MOST_REPEATS = 100_000


@dataclass(frozen=True)
class CalibrationResult(Printed):
    """A calibration, its accuracy on held-out rows, and the files written.

    Attributes:
        calibration: the fitted or read calibration.
        fitted_before: whether it was read from a file instead of fitted.
        path: the calibration that was written, or None.
        applied: the table that was written, or None.
        note: why it may not suit the table it was applied to; empty if it does.
    """

    calibration: Calibration
    fitted_before: bool = False
    path: Path | None = None
    applied: AppliedCalibration | None = None
    note: str = ""

    @property
    def measured(self) -> Mapping[str, Measured]:
        """Fields of ``curate.statistics.calibration.Calibrated`` as JSON values, by map or ``constant``."""
        measured: Mapping[str, Measured] = self.calibration.about["accuracy"]
        return measured

    @property
    def is_informative(self) -> bool:
        """Whether a map is better than a constant beyond the interval."""
        return any(each["gain"][1] > 0 for name, each in self.measured.items() if name != CONSTANT)

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
                Grid([_measure_row(name, each) for name, each in self.measured.items()], header=HEADER),
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
        """Return a plot of the share of good rows over the predicted probability of good, in ten bins of equal size."""
        from curate.reporting.plots.judged import Band
        from curate.reporting.plots.reliability import Reliability

        numbers = Reliability("share of good rows", self.calibration.fitted.rows, {}, {}, {})
        for name, measured in self.measured.items():
            if name == CONSTANT:
                continue
            seen = measured["seen"][::-1]  # highest probability of being bad first
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
        if not self.is_informative:
            return [
                (
                    f"no map is better than a constant beyond the interval: {self.calibration.score.column} "
                    "carries no information here"
                )
            ]
        return []


HEADER = ("", "ECE", "by chance", "debiased RMS", "Brier", "below the constant")


def _measure_row(name: str, measured: Measured) -> tuple[str, ...]:
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


def run_calibrate(options: CalibrateOptions) -> CalibrationResult:
    """Turn a score into the probability that an image is bad; write the calibration, the table, or neither.

    Two monotone maps are fitted on all labelled rows, isotonic and logistic. They are evaluated on out-of-fold
    predictions of five folds, against the constant base rate. The result does not depend on the order of rows.

    Returns:
        The accuracy of the maps, and the files written.

    Raises:
        InputError: for a table, column, label or output that cannot be used, a table of another model, or rows to which
            nothing can be fitted; then nothing is written.
    """
    files = several(options.audit)
    opened = open_table(options.table, require=[KEY], embedding=options.embedding)
    if options.embedding is not None and options.label is None and options.labelled is None:
        raise InputError(f"--embedding {options.embedding} is only used with --label, to find neighbours; leave it out")
    places = _outputs(opened, options.out, options.apply)
    require_between("--repeats", options.repeats, 1, MOST_REPEATS, "1,000 is usual")
    if options.fitted is not None:
        refused = (options.column, options.bad, options.audit, options.label, options.labelled, options.out)
        flags = ("--column", "--bad", "--audit", "--label", "--labelled", "-o")
        for flag in (flag for flag, value in zip(flags, refused, strict=True) if value is not None):
            raise InputError(f"--fitted {options.fitted} is applied without fitting; leave out {flag}")
        if places[1] is None:
            raise InputError(
                f"--fitted {options.fitted} is applied to a table; name the output with --apply NAME.parquet"
            )
        calibration = read_calibration(options.fitted)
        with _files((None, places[1]), overwrite=options.overwrite) as written:
            options.report(f"applying {options.fitted} to {counted(opened.n_rows, 'row')} of {opened.path}")
            return _write_outputs(opened, calibration, (None, places[1]), written, overwrite=options.overwrite)
    labelled = None if options.labelled is None else str(options.labelled)
    truth = Truth(options.bad, tuple(map(str, files)), options.label, labelled, options.judges)
    with _files(places, overwrite=options.overwrite) as written:
        judged = judged_rows(opened, options.column, truth)
        options.report(f"calibrating {judged.score.column} on {counted(len(judged.values), 'judged row')}")
        calibration = fit_judged(opened, judged, truth.target, repeats=options.repeats, seed=options.seed)
        return _write_outputs(opened, calibration, places, written, judged=judged, overwrite=options.overwrite)


calibrate = callable_of(CalibrateOptions, run_calibrate)


def fit_judged(table: Table, judged: JudgedRows, target: str, *, repeats: int, seed: int) -> Calibration:
    """Return the calibration of labelled rows, evaluated on held-out predictions."""
    from curate.statistics.calibration import calibrated
    from curate.statistics.calibrators import CALIBRATORS, cross_fitted

    x, fold = judged.score.doubt(judged.values), folds_of(judged, FOLDS, seed)
    held_out = {name: cross_fitted(kind, x, judged.bad, judged.weights, fold) for name, kind in CALIBRATORS.items()}
    rates = np.array([_rate(judged, fold != number) for number in range(FOLDS)])
    held_out[CONSTANT] = rates[fold]
    measured = calibrated(held_out, CONSTANT, judged.bad, judged.weights, repeats=repeats, seed=seed)
    low, high = float(judged.values.min()), float(judged.values.max())
    about: dict[str, Any] = {
        "curate": __version__,
        "table": {
            "path": str(table.path.resolve()),
            "digest": judged.digest,
            **({} if table.embedding_column is None else {"embedding": table.embedding_column}),
        },
        "truth": judged.source,
        "left_out": judged.left_out,
        "folds": FOLDS,
        "repeats": repeats,
        "seed": seed,
        "accuracy": {name: _tuples_as_lists(asdict(accuracy)) for name, accuracy in measured.items()},
    }
    return Calibration(
        target,
        judged.score,
        model_of(table.stored),
        dataset_of(table),
        FittedRange(judged.score.column, low, high, len(x)),
        judged.rate,
        {name: kind.fit(x, judged.bad, judged.weights) for name, kind in CALIBRATORS.items()},
        about,
    )


def _rate(judged: JudgedRows, rows: np.ndarray) -> float:
    return float(judged.weights[rows] @ judged.bad[rows] / judged.weights[rows].sum())


def _tuples_as_lists(value: Any) -> Any:
    """Return tuples as lists, as read back from JSON."""
    if isinstance(value, dict):
        return {name: _tuples_as_lists(each) for name, each in value.items()}
    return [_tuples_as_lists(each) for each in value] if isinstance(value, list | tuple) else value


def _outputs(table: Table, out: str | Path | None, apply: str | AnyPath | None) -> tuple[Path | None, AnyPath | None]:
    """Return the output paths of calibration and table, checked before the work."""
    places = None if out is None else path_on_disk(out, "-o"), None if apply is None else path_or_store(apply)
    if places[0] is not None and (places[0].suffix != SUFFIX or places[0].name.endswith(".receipt.json")):
        raise InputError(f"a calibration is a JSON file: expected -o NAME.json, got {out}")
    refuse_two_places(*places, command=f"curate calibrate {table.path}")
    if places[1] is not None:
        check_applied(places[1], table)
    return places


def _files(places: tuple[Path | None, AnyPath | None], *, overwrite: bool) -> FileSet:
    """Return the requested outputs (calibration, table, receipt) as one file set."""
    out, apply = places
    files = [] if out is None else [out]
    return file_set(files if apply is None else [apply, *files, receipt_beside(apply)], overwrite=overwrite)


def _write_outputs(
    table: Table,
    calibration: Calibration,
    places: tuple[Path | None, AnyPath | None],
    files: FileSet,
    *,
    judged: JudgedRows | None = None,
    overwrite: bool,
) -> CalibrationResult:
    """Write calibration and table as requested; all are renamed together, the table's receipt last."""
    calibration.refuse_another(table)
    applied: AppliedCalibration | None = None
    beside = [] if places[0] is None else [write_calibration(places[0], calibration, overwrite=overwrite)]
    try:
        if places[1] is not None:
            applied = apply_calibration(places[1], table, calibration, files, companions=beside, overwrite=overwrite)
        elif beside:
            files.commit(beside)
    finally:
        for file in beside:
            file.discard()
    note = "" if judged is not None else calibration.of_another_dataset(table)
    return CalibrationResult(calibration, judged is None, places[0], applied, note)
