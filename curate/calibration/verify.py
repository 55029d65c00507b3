"""Verification of a calibration, or of a table with one applied: repeat it and compare."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from curate.calibration import apply
from curate.calibration.fit import fit_judged
from curate.calibration.judged import NEIGHBOUR, Truth, judged_rows
from curate.columns import KEY
from curate.manifest.store_path import AnyPath, path_to_read, sha256_of
from curate.policies.differences import unequal_json
from curate.policies.findings import VerificationResult
from curate.policies.receipts import APPLIED_KIND, MAX_BYTES, digests_of, read_json, read_step
from curate.policies.sampled import judged_sha256
from curate.tables.digests import key_array, tie_breaks
from curate.tables.needs import MAX, MIN
from curate.tables.provenance import Outside
from curate.tables.table import Table, open_table
from scoring.errors import InputError


@dataclass
class CalibrationVerification(VerificationResult):
    """The result of repeating a calibration, of ``rows`` labelled rows, or rows of the written table."""

    rows: int
    problems: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Whether the calibration is reproduced exactly."""
        return not self.problems


def of_calibration(path: str | AnyPath) -> dict[str, Any] | None:
    """Return the JSON content of a calibration, or of a receipt of one; None for other files."""
    path = path_to_read(path)
    if path.suffix != ".json" or not path.is_file() or path.stat().st_size > MAX_BYTES:
        return None
    try:
        _, record = read_json(path, "a calibration")
    except InputError:
        return None
    ours = apply.is_calibration(record) or (isinstance(record, dict) and record.get("kind") == APPLIED_KIND)
    return record if ours else None


def verify_calibration(path: str | AnyPath, table: str | AnyPath | None = None) -> CalibrationVerification:
    """Fit a calibration again to its table, or apply the calibration of a receipt again, and compare.

    ``path`` is NAME.json, or NAME.receipt.json of ``--apply``; ``table`` is its table, if it was moved.

    Raises:
        InputError: if a file is missing or cannot be used.
    """
    record, path = of_calibration(path), path_to_read(path)
    if record is None:
        raise InputError(f"{path} is not a calibration; pass one that curate calibrate wrote")
    if apply.is_calibration(record) and isinstance(path, Path):
        return _verify_fit(path, table)
    noted = read_step(path)
    opened = open_table(table if table is not None else _find_file(noted["input"]["path"], path))
    return _verify_applied(opened, noted, path)


def _verify_fit(path: Path, table: str | AnyPath | None) -> CalibrationVerification:
    then = apply.read_calibration(path)
    about = then.about
    try:
        source, seed, repeats = about["truth"], int(about["seed"]), int(about["repeats"])
        audits = tuple(str(_find_file(name, path)) for name in source.get("audit", {}))
        digests = [str(digest) for digest in source.get("audit", {}).values()]
        labelled = source.get("path")
        label = source.get("column") if then.target == NEIGHBOUR else None
        place, digest, embedding = about["table"]["path"], about["table"]["digest"], about["table"].get("embedding")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} does not record what it was fitted to ({error}); calibrate again") from None
    opened = open_table(table if table is not None else _find_file(place, path), require=[KEY], embedding=embedding)
    truth = Truth(
        source.get("bad"),
        audits,
        label,
        None if labelled is None else str(_find_file(labelled, path)),
        source.get("judges", "any"),
    )
    judged = judged_rows(opened, (MIN if then.score.sign > 0 else MAX) + then.score.column, truth)
    verification = CalibrationVerification(len(judged.values))
    if judged.digest != digest:
        verification.problems.append("the table does not hold the rows it was fitted to")
    if [judged_sha256(Path(name)) for name in audits] != digests or judged.source.get("digest") != source.get("digest"):
        verification.problems.append("the labels are not those it was fitted to")
    now = fit_judged(opened, judged, then.target, repeats=repeats, seed=seed)
    if now.to_json()["maps"] != then.to_json()["maps"]:
        verification.problems.append("fitting it again gives other maps than the file holds")
    elif not verification.problems and {**now.about, **_variable_facts(then)} != then.about:
        verification.problems.append("the maps are the same, but their stated accuracy differs")
    return verification


def _variable_facts(then: apply.Calibration) -> dict[str, Any]:
    """Return the facts of a calibration that may differ: version and file paths."""
    return {name: then.about.get(name) for name in ("curate", "table", "truth")}


def _verify_applied(table: Table, noted: Mapping[str, Any], path: AnyPath) -> CalibrationVerification:
    calibration = apply.calibration_from(noted.get("calibration", {}), f"the calibration in {path}")
    calibration.refuse_another(table)
    source, output = noted["input"], noted["outputs"]["table"]
    written = path.with_name(output["file"])
    verification = CalibrationVerification(table.n_rows)
    if not written.is_file():
        verification.problems.append(f"{written} no longer exists")
        return verification
    if sha256_of(written) != output["sha256"]:
        verification.problems.append(f"{written} was changed after it was written: its bytes differ from the receipt")
    written_table = open_table(written, require=[KEY])
    column = calibration.score.column
    total, outside, without = apply.digest_of(table, calibration), Outside(), 0
    again = written_table.batches([apply.P_ERROR + name for name in calibration.maps], rows=apply.STREAM_ROWS)
    differ = written_table.n_rows != table.n_rows
    for batch, written_batch in zip(table.batches([KEY, column], rows=apply.STREAM_ROWS), again, strict=False):
        total.update(tie_breaks(key_array(batch.column(KEY), table.path, total.n_rows)), batch)
        values, columns = apply.probabilities(batch, calibration)
        outside += calibration.fitted.outside(values)
        without += int((~np.isfinite(values)).sum())
        differ |= any(not written_batch.column(name).equals(values) for name, values in columns.items())
    if total.hexdigest() != source["digest"]:
        verification.problems.append(f"{table.path} does not hold the rows the calibration was applied to")
    elif None not in source["sha256"] and digests_of(table) != source["sha256"]:
        verification.problems.append(f"{table.path} holds the same keys and scores, but its bytes have changed since")
    counts = {"n_rows": table.n_rows, "without_score": without, "outside": asdict(outside)}
    now = {"model": table.metadata.get("model"), "counts": counts, "input": table.n_rows, "table": table.n_rows}
    then = {
        "model": noted.get("model"),
        "counts": noted["counts"],
        "input": source.get("n_rows", table.n_rows),
        "table": output.get("n_rows", table.n_rows),
    }
    verification.problems += [
        f"{name} is {value}, and {was} in the receipt" for name, value, was in unequal_json(now, then)
    ]
    if differ:
        verification.problems.append(f"the probabilities in {written} are not those that the calibration gives")
    return verification


def _find_file(place: str, other: AnyPath) -> AnyPath:
    """Return the path of a file: as recorded, or else next to the other file."""
    path = path_to_read(place)
    for each in (path, other.parent / path.name):
        if each.exists():
            return each
    raise InputError(f"{path}, which {other} names, no longer exists; pass the table's new place as --table")
