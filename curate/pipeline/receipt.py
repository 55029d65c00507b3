"""One receipt over all steps: every command line, the row counts, and digests of the outputs."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from curate.calibration.verify import verify_calibration
from curate.pipeline.file import Pipeline
from curate.pipeline.state import Done, Stage
from curate.policies import receipts
from curate.policies.differences import unequal_json
from curate.policies.receipts import FORMAT, sealed
from curate.policies.verify import verify
from curate.tables.table import open_table
from curate.version import __version__
from scoring.atomic import AtomicFile
from scoring.file_digest import file_sha256


def outputs_of(out: str) -> list[str]:
    """Return the paths of all files that a step wrote, from its receipt if it has one."""
    receipt = receipts.receipt_beside(out)
    if not (Path(out).suffix == ".parquet" and receipt.is_file()):
        return [out]
    files = [entry["file"] for entry in receipts.read_step(receipt)["outputs"].values()]
    return [str(Path(out).with_name(name)) for name in (*files, receipt.name)]


def stage_of(table: str | None, out: str) -> Stage:
    """Return the counts of a step's rows, from its receipt or else from its input and output tables."""
    receipt = receipts.receipt_beside(out)
    if Path(out).suffix == ".parquet" and receipt.is_file():
        return _stage(receipts.read_step(receipt))
    rows = open_table(table if table is not None else out).n_rows
    return Stage(rows, rows)


def _stage(receipt: Mapping[str, Any]) -> Stage:
    if receipts.is_applied(receipt):
        return Stage(int(receipt["counts"]["n_rows"]), int(receipt["counts"]["n_rows"]))
    lost: dict[str, int] = {}
    for decision, why, n in receipts.lost_rows(receipt):
        word = f"{decision}: " if decision != "drop" and why != receipts.REST[decision] else ""
        lost[f"{word}{why}"] = n
    return Stage(int(receipt["counts"]["n_rows"]), int(receipt["counts"]["kept"]), lost)


def write_receipt(path: Path, pipeline: Pipeline, steps: Mapping[str, Done]) -> None:
    """Write the receipt of all steps, replacing an existing one; it has no date, so equal runs give equal receipts.

    Args:
        path: of the receipt.
        pipeline: as run.
        steps: all of them, done.
    """
    receipt = {
        "kind": receipts.PIPELINE_KIND,
        "format": FORMAT,
        "curate": __version__,
        "file": pipeline.path.name,
        "text": pipeline.text,
        "folder": pipeline.folder,
        "steps": [
            {
                "step": name,
                "command": list(done.words),
                "rows_in": done.stage.rows_in if done.stage else None,
                "rows_out": done.stage.rows_out if done.stage else None,
                "lost": dict(done.stage.lost) if done.stage else {},
                "outputs": dict(done.digests),
            }
            for name, done in steps.items()
        ],
        "environment": receipts.environment(),
    }
    content = sealed(receipt)
    if path.is_file() and path.read_bytes() == content:
        return
    with AtomicFile(path, overwrite=True) as file:
        file.write(content)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, or of the names and sizes of all files in a folder; empty if missing."""
    if not path.is_dir():
        return file_sha256(path)
    total = 0
    for file in path.rglob("*"):
        if file.is_file():
            entry = f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}".encode("utf-8", "surrogateescape")
            total += int.from_bytes(hashlib.sha256(entry).digest())  # a sum, independent of their order
    return f"{total % (1 << 256):064x}"


@dataclass
class StepCheck:
    """The result of verifying a step.

    Attributes:
        step: its name.
        differences: one sentence each; empty if everything matches.
        decided_again: number of rows that its policy decided again; None for a step without a policy.
        elsewhere: files outside of the receipt's folder, which are not checked.
    """

    step: str
    differences: list[str] = field(default_factory=list)
    decided_again: int | None = None
    elsewhere: int = 0


def is_pipeline_receipt(path: Path) -> bool:
    """Return whether a path is the receipt of a pipeline, or a folder with one."""
    return (path / receipts.PIPELINE_RECEIPT).is_file() or path.name == receipts.PIPELINE_RECEIPT


def verify_pipeline(path: Path) -> Iterator[StepCheck]:
    """Compare every file that the steps wrote with its digest, and decide every policy again.

    Args:
        path: the receipt, or its folder. Files elsewhere are not checked.

    Raises:
        InputError: for a missing or malformed receipt.
    """
    path = path / receipts.PIPELINE_RECEIPT if path.is_dir() else path
    for step in receipts.pipeline_steps(path):
        outputs = dict(step["outputs"])
        check = StepCheck(str(step["step"]))
        inside = {file: digest for file, digest in outputs.items() if ".." not in Path(file).parts}
        for file, digest in inside.items():
            now = digest_of(path.parent / file)
            if now != digest:
                check.differences.append(f"{file} {'was changed after it was written' if now else 'no longer exists'}")
        for file in inside:
            if file.endswith(".receipt.json") and not check.differences:
                _derive(path.parent / file, check)
                _compare_stage(path.parent / file, step, check)
        check.elsewhere = len(outputs) - len(inside)
        yield check


def _compare_stage(receipt: Path, step: Mapping[str, Any], check: StepCheck) -> None:
    """Compare the rows of a step with its receipt."""
    now = asdict(_stage(receipts.read_step(receipt)))
    then = {name: step.get(name) for name in now}
    check.differences += [
        f"{name} is {value}, and {was} in the receipt" for name, value, was in unequal_json(now, then)
    ]


def _derive(receipt: Path, check: StepCheck) -> None:
    """Repeat the decisions or the calibration of a receipt, and record the differences."""
    if receipts.is_applied(receipts.read_step(receipt)):
        check.differences += verify_calibration(receipt).problems
        return
    again = verify(receipt)
    check.decided_again = again.n_rows
    if not again.identical:
        check.differences.append(f"{receipt.name} derives another subset; run curate verify on it to see which rows")
