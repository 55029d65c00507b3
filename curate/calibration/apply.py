"""Application of a calibration to a table: probability columns, written in batches, with a receipt."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.calibration.stored import P_ERROR, Calibration
from curate.columns import KEY, describe_all
from curate.manifest.file_set import FileSet
from curate.manifest.store_path import AnyPath
from curate.policies.receipts import APPLIED_KIND, digests_of, environment, receipt_beside, state_of
from curate.policies.seal import FORMAT, sealed
from curate.tables.digests import RowDigest, key_array, tie_breaks
from curate.tables.ranges import CALIBRATION, Outside
from curate.tables.table import Table
from curate.tables.writer import TableWriter
from curate.version import __version__
from scoring.atomic import AtomicFile
from scoring.errors import InputError

STREAM_ROWS = 16_384


@dataclass(frozen=True)
class AppliedCalibration:
    """The result of applying a calibration.

    Attributes:
        path: the table that was written.
        rows: of it.
        without: rows without a score, which have no probability.
        outside: rows next to the range that was judged.
        receipt: what was done, as a file.
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
        files: table, what is next to it, and receipt, by which they get their names.
        companions: written files that get their names with these.
        overwrite: replace what is there.

    Raises:
        InputError: for a table of another model, or a place that refuses.
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
    """Return an empty digest of the data read from a table: key and score of each row."""
    return RowDigest(pa.schema([table.schema.field(name) for name in (KEY, calibration.score.column)]))


def probabilities(batch: pa.RecordBatch, calibration: Calibration) -> tuple[np.ndarray, dict[str, pa.Array]]:
    """Return the scores of N rows as float64, and the probabilities by name; null without a score."""
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
    recorded = table.metadata.get("columns")
    described = {**describe_all(names), **(recorded if isinstance(recorded, dict) else {})}
    described |= describe_all(name for name in names if name.startswith(P_ERROR))
    about = {
        "digest": calibration.digest,
        "target": calibration.target,
        "range": calibration.fitted.to_json(),
    }
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
