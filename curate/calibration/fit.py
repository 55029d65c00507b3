"""Calibrate a score: probabilities that a row is bad, fitted on judged rows, and their accuracy."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from curate.calibration.apply import AppliedCalibration, apply_calibration
from curate.calibration.judged import JudgedRows, Truth, folds_of, judged_rows
from curate.calibration.options import CalibrateOptions
from curate.calibration.result import CONSTANT, CalibrationResult
from curate.calibration.stored import SUFFIX, Calibration, dataset_of, read_calibration, write_calibration
from curate.columns import KEY
from curate.counted import counted
from curate.fitting.applied import check_applied
from curate.manifest.file_set import FileSet, file_set, refuse_two_places
from curate.manifest.store_path import AnyPath, path_on_disk, path_or_store
from curate.options.function import callable_of
from curate.options.values import several
from curate.policies.receipts import receipt_beside
from curate.tables.provenance import model_of
from curate.tables.ranges import FittedRange
from curate.tables.table import Table, open_table
from curate.version import __version__
from scoring.errors import InputError

FOLDS = 5
MOST_REPEATS = 100_000


def run_calibrate(options: CalibrateOptions) -> CalibrationResult:
    """Turn a score into the probability that an image is bad; write the calibration, the table, or neither.

    Two monotone maps are fitted on all judged rows, isotonic and logistic. How good they are is measured on
    predictions that were made for each row by maps of the other four fifths, next to the share of bad rows there, a
    constant. The same rows give the same calibration, whatever their order.

    Returns:
        how good the maps are, and what was written.

    Raises:
        InputError: for a table, column, label or output that cannot be used, a table of another model, or rows from
            which nothing can be fitted; nothing is written then.
    """
    files = several(options.audit)
    opened = open_table(options.table, require=[KEY], embedding=options.embedding)
    if options.embedding is not None and options.label is None and options.labelled is None:
        raise InputError(f"--embedding {options.embedding} is only used with --label, to find neighbours; leave it out")
    places = _places(opened, options.out, options.apply)
    if not 1 <= options.repeats <= MOST_REPEATS:
        raise InputError(f"--repeats must be between 1 and {MOST_REPEATS:,}, got {options.repeats:,}; 1,000 is usual")
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
            return _written(opened, calibration, (None, places[1]), written, overwrite=options.overwrite)
    labelled = None if options.labelled is None else str(options.labelled)
    truth = Truth(options.bad, tuple(map(str, files)), options.label, labelled, options.judges)
    with _files(places, overwrite=options.overwrite) as written:
        judged = judged_rows(opened, options.column, truth)
        options.report(f"calibrating {judged.score.column} on {counted(len(judged.values), 'judged row')}")
        calibration = fit_judged(opened, judged, truth.target, repeats=options.repeats, seed=options.seed)
        return _written(opened, calibration, places, written, judged=judged, overwrite=options.overwrite)


calibrate = callable_of(CalibrateOptions, run_calibrate)


def fit_judged(table: Table, judged: JudgedRows, target: str, *, repeats: int, seed: int) -> Calibration:
    """Return the calibration of judged rows, measured on held-out predictions."""
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
        "accuracy": {name: _plain(asdict(accuracy)) for name, accuracy in measured.items()},
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


def _plain(value: Any) -> Any:
    """Return lists instead of tuples, as read back from JSON."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _places(table: Table, out: str | Path | None, apply: str | AnyPath | None) -> tuple[Path | None, AnyPath | None]:
    """Return the output paths of calibration and table, checked before the work."""
    places = None if out is None else path_on_disk(out, "-o"), None if apply is None else path_or_store(apply)
    if places[0] is not None and (places[0].suffix != SUFFIX or places[0].name.endswith(".receipt.json")):
        raise InputError(f"a calibration is a JSON file: expected -o NAME.json, got {out}")
    refuse_two_places(*places, command=f"curate calibrate {table.path}")
    if places[1] is not None:
        check_applied(places[1], table)
    return places


def _files(places: tuple[Path | None, AnyPath | None], *, overwrite: bool) -> FileSet:
    """Return calibration, table and receipt, as far as they are written, as one file set."""
    out, apply = places
    beside = [] if out is None else [out]
    return file_set(beside if apply is None else [apply, *beside, receipt_beside(apply)], overwrite=overwrite)


def _written(
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
