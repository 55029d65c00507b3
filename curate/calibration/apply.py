"""Application of a calibration to a table: probability columns, written in batches, with a receipt."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.calibration.judged import TARGETS, ScoreColumn
from curate.columns import KEY, describe_all
from curate.manifest.file_set import FileSet
from curate.manifest.store_path import AnyPath
from curate.manifest.text import read_json
from curate.policies.receipts import APPLIED_KIND, FORMAT, digests_of, environment, receipt_beside, sealed, state_of
from curate.statistics.calibrators import CALIBRATORS, Calibrator
from curate.tables.digests import RowDigest, key_array, tie_breaks
from curate.tables.provenance import CALIBRATION, FittedRange, Outside, model_of
from curate.tables.table import Table
from curate.tables.writer import TableWriter
from curate.version import __version__
from scoring.atomic import AtomicFile
from scoring.errors import InputError
from scoring.relative.columns import COLUMNS as OF_THE_DATASET

KIND = "calibration"
SUFFIX = ".json"
MOST_BYTES = 64 << 20
P_ERROR = "p_error_"
STREAM_ROWS = 16_384


@dataclass(frozen=True)
class Calibration:
    """Maps from a score column of one model's tables to the probability that a row is bad.

    Attributes:
        target: the event, a name in ``TARGETS``.
        score: the column and its direction.
        model: digest of the model that scored the table; empty if not recorded.
        dataset: digest of the dataset to which a relative column was fitted; empty if not recorded.
        fitted: range of the scores on which the maps were fitted.
        rate: share of bad rows among these.
        maps: by name in ``CALIBRATORS``.
        about: further facts as JSON values: table, truth, settings, accuracy.
    """

    target: str
    score: ScoreColumn
    model: str
    dataset: str
    fitted: FittedRange
    rate: float
    maps: Mapping[str, Calibrator]
    about: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, with a digest of its content."""
        record = {
            "kind": KIND,
            "target": self.target,
            "score": {"column": self.score.column, "sign": self.score.sign},
            "model": self.model,
            "dataset": self.dataset,
            "range": self.fitted.to_json(),
            "rate": self.rate,
            "maps": {name: fitted_map.to_json() for name, fitted_map in self.maps.items()},
            "about": dict(self.about),
        }
        return {**record, "digest": _digest(record)}

    @property
    def digest(self) -> str:
        """SHA-256 of its content."""
        return str(self.to_json()["digest"])

    def refuse_another(self, table: Table) -> None:
        """Raise ``InputError`` for a table of another model, or without the column, or if one model is unknown."""
        table.require([self.score.column])
        model = model_of(table.stored)
        if model != self.model:
            names = [
                f"the model {digest[:12]}..." if digest else "a model that is not named"
                for digest in (self.model, model)
            ]
            raise InputError(
                f"expected a table that {names[0]} scored, as the calibration was fitted to, got {table.path}, scored "
                f"by {names[1]}; score the images with that model, or calibrate this table"
            )

    def of_another_dataset(self, table: Table) -> str:
        """Return why scores of the same model may not be comparable; empty if they are."""
        column = self.score.column
        if column not in OF_THE_DATASET or (self.dataset and dataset_of(table) == self.dataset):
            return ""
        return (
            f"{column} depends on the dataset, and this table does not record that it was fitted to the "
            "same one: save a model with curate fit, and score both with it"
        )


def dataset_of(table: Table) -> str:
    """Return the digest of the dataset to which the table's columns were fitted; empty if not recorded."""
    digests = (table.noted(*place).get("digest") for place in (["fit"], ["model", "fit"]))
    return next((digest for digest in digests if isinstance(digest, str)), "")


def write_calibration(path: Path, calibration: Calibration, *, overwrite: bool) -> AtomicFile:
    """Write a calibration to a temporary file, to be renamed."""
    text = json.dumps(calibration.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
    file = AtomicFile(path, overwrite=overwrite)
    try:
        file.write((text + "\n").encode("utf-8", "backslashreplace"))
        file.seal()
    except BaseException:
        file.discard()
        raise
    return file


def read_calibration(path: str | Path) -> Calibration:
    """Read a calibration; InputError for a file that is missing, too large, not a calibration, or changed."""
    path = Path(path)
    record = read_json(path, what="a calibration that curate calibrate wrote", most=MOST_BYTES)
    if not is_calibration(record):
        raise InputError(f"{path} is not a calibration; pass one that curate calibrate wrote")
    return calibration_from(record, str(path))


def calibration_from(record: Mapping[str, Any], where: str) -> Calibration:
    """Return the calibration that ``to_json`` wrote; InputError names ``where`` if it is invalid or changed."""
    rest = {name: value for name, value in record.items() if name != "digest"}
    if "dataset" not in rest and _digest(rest) == record.get("digest"):
        raise InputError(f"{where} was written by an earlier version of curate; calibrate again")
    try:
        if _digest(rest) != record["digest"]:
            raise ValueError("its digest is another")
        return _parsed(rest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where} was changed after curate calibrate wrote it ({error}); calibrate again") from None


def is_calibration(record: object) -> bool:
    """Return whether the content of a JSON file is a calibration."""
    return isinstance(record, dict) and record.get("kind") == KIND


def _parsed(record: Mapping[str, Any]) -> Calibration:
    score, maps = record["score"], record["maps"]
    rate = float(record["rate"])
    texts = (record["target"], score["column"], record["model"], record["dataset"])
    if not all(isinstance(text, str) for text in texts) or record["target"] not in TARGETS:
        raise TypeError(f"a target {record['target']!r}")
    if score["sign"] not in (-1, 1) or not 0 < rate < 1 or not math.isfinite(rate):
        raise ValueError(f"a direction of {score['sign']!r}, a rate of {rate}")
    if set(maps) != set(CALIBRATORS):
        raise ValueError(f"maps {', '.join(maps)}")
    return Calibration(
        record["target"],
        ScoreColumn(score["column"], int(score["sign"])),
        record["model"],
        record["dataset"],
        FittedRange.from_json(record["range"]),
        rate,
        {name: kind.from_json(maps[name]) for name, kind in CALIBRATORS.items()},
        dict(record["about"]),
    )


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class AppliedCalibration:
    """The result of applying a calibration.

    Attributes:
        path: the table written.
        rows: number of its rows.
        without: number of rows without a score, which have no probability.
        outside: number of rows outside of the range of the fitted scores.
        receipt: path of the receipt.
    """

    path: AnyPath
    rows: int
    without: int
    outside: Outside
    receipt: AnyPath


def apply_calibration(
    out: AnyPath,
    table: Table,
    calibration: Calibration,
    files: FileSet,
    *,
    companions: Sequence[AtomicFile] = (),
    overwrite: bool,
) -> AppliedCalibration:
    """Write a table with probability columns, which replace columns of the same name or follow all others.

    Args:
        out: NAME.parquet; the receipt is NAME.receipt.json. Both appear together, or none.
        table: scored by the calibration's model.
        calibration: to apply.
        files: file set to which table and receipt are added before it is renamed.
        companions: other written files that are renamed with them.
        overwrite: replace existing files.

    Raises:
        InputError: for a table of another model, or a path that cannot be written.
    """
    calibration.refuse_another(table)
    table = table.stored
    receipt_path = receipt_beside(out)
    before = state_of(table)
    names = [P_ERROR + name for name in calibration.maps]
    kept = [name for name in table.schema.names if name not in names]
    added = [pa.field(name, pa.float32()) for name in names]
    schema = pa.schema([*(table.schema.field(name) for name in kept), *added], table.file_metadata)
    digest = digest_of(table, calibration)
    outside, without = Outside(), 0
    writer = TableWriter(files.draft(out), schema, _metadata(table, calibration, schema.names), overwrite=overwrite)
    receipt: AtomicFile | None = None
    try:
        receipt = AtomicFile(files.draft(receipt_path), overwrite=overwrite)
        for batch in table.batches(rows=STREAM_ROWS):
            values, by_map = probabilities(batch, calibration)
            outside += calibration.fitted.outside(values)
            without += int((~np.isfinite(values)).sum())
            digest.update(tie_breaks(key_array(batch.column(KEY), table.path, digest.n_rows)), batch)
            arrays = [*(batch.column(name) for name in kept), *by_map.values()]
            writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema.remove_metadata()))
        if state_of(table) != before:
            raise InputError(f"{table.path} changed while it was being read; run the command again")
        writer.seal()
        done = AppliedCalibration(out, writer.n_rows, without, outside, receipt_path)
        receipt.write(_receipt(done, table, calibration, digest.hexdigest(), writer.file.sha256))
        files.commit([writer.file, *companions, receipt])
    finally:
        writer.discard()
        if receipt is not None:
            receipt.discard()
    return done


def digest_of(table: Table, calibration: Calibration) -> RowDigest:
    """Return an empty digest for the key and score of each row."""
    return RowDigest(pa.schema([table.schema.field(name) for name in (KEY, calibration.score.column)]))


def probabilities(batch: pa.RecordBatch, calibration: Calibration) -> tuple[np.ndarray, dict[str, pa.Array]]:
    """Return the scores of N rows as float64, and their probabilities by name; null without a score."""
    column = batch.column(calibration.score.column)
    values = np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
    has_score = np.isfinite(values)
    doubt = calibration.score.doubt(np.where(has_score, values, 0.0))
    by_map = {
        P_ERROR + name: pa.array(fitted_map.predict(doubt).astype(np.float32), mask=~has_score)
        for name, fitted_map in calibration.maps.items()
    }
    return values, by_map


def _metadata(table: Table, calibration: Calibration, names: list[str]) -> dict[str, Any]:
    described = describe_all(names) | table.noted("columns")
    described |= describe_all(name for name in names if name.startswith(P_ERROR))
    about = {"digest": calibration.digest, "target": calibration.target, "range": calibration.fitted.to_json()}
    return {
        "kind": "scores",
        **table.metadata,
        CALIBRATION: about,
        "columns": {name: described[name] for name in names},
    }


def _receipt(done: AppliedCalibration, table: Table, calibration: Calibration, digest: str, sha256: str) -> bytes:
    receipt: Mapping[str, Any] = {
        "kind": APPLIED_KIND,
        "format": FORMAT,
        "curate": __version__,
        "input": {
            "path": str(table.path.resolve()),
            "files": [file.name for file in table.files],
            "sha256": digests_of(table),
            "n_rows": done.rows,
            "digest": digest,
        },
        "model": table.metadata.get("model"),
        "calibration": calibration.to_json(),
        "counts": {"n_rows": done.rows, "without_score": done.without, "outside": asdict(done.outside)},
        "outputs": {"table": {"file": done.path.name, "sha256": sha256, "n_rows": done.rows}},
        "environment": environment(),
    }
    return sealed(receipt)
