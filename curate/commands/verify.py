"""``curate verify``: a subset, or the batches of rounds, recomputed from their receipts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, emit, show, suggest, to_export
from curate.commands.status import check_words
from curate.counted import counted
from curate.lineage.options import VerifyOptions
from scoring.errors import InputError

if TYPE_CHECKING:
    from curate.lineage.verify import PixelCheck, Proof
    from curate.policies.differences import Verification
    from curate.policies.findings import Difference, Finding

DIFFERENCES = {
    "decision": "{0.key}: now {0.now}, then {0.then}",
    "score": "{0.key}: its {0.column} is {0.now:.6g} now, {0.then:.6g} then; with the same decision",
    "reason": "{0.key}: its {0.column} is {0.now!r} by the rules, and {0.then!r} in the decisions",
    "gone": "{0.key}: decided then, but no longer in the input",
    "lacking": "{0.key}: kept, but not in the subset",
    "extra": "{0.key}: in the subset, but not kept",
    "rank": "{0.key}: now number {0.now:,}, then number {0.then:,}",
    "value": "{0.key}: column {0.column!r} differs from the {0.file}",
}
FINDINGS = {
    "reordered": "the rows of the input are in a new order; they were compared by key, not in every column",
    "other digest": ("{0.what} has changed since it was read: its digest is {0.now:.16}..., expected {0.then:.16}..."),
    "twice": "the subset holds some rows more than once",
    "file gone": "{0.what} no longer exists",
    "file changed": "{0.what} was changed after it was written: its bytes differ from the receipt",
    "other bytes": (
        "{0.what} has changed since it was read, but not in the columns the rules read; to compare another "
        "file of the same rows, pass it as --table"
    ),
    "other bytes next to": ("{0.what} has changed since it was read, but not in the columns the rules read"),
    "rewritten": "{0.what} is not the file that was read, but has the same rows in all columns the rules read",
    "moved": "{0.then} is now {0.now}",
    "neither": "neither {0.then} has the bytes of the input as it was; {0.what} is compared (--table chooses another)",
    "not nearest": "{0.then} has changed since it was read; {0.what} has the same bytes and is compared",
    "other model": "the input was scored by other weights: {0.now:.16}... now, {0.then:.16}... then",
    "other version": "it was written by curate {0.then}, this is {0.now}",
    "other package": "{0.what} was {0.then} then and is {0.now} now, which can change last digits",
    "other figure": "{0.what} is {0.now}, and was {0.then} when written",
    "not again": "{0.what} of the receipt was not derived again: that needs the images",
    "other probabilities": "{0.what}",
    "other form": (
        "the receipt has other figures than this version computes: it was edited, or another version of "
        "curate with other rules wrote it; run its command again"
    ),
    "other rules": (
        "all files are as the receipt records, but its rules decide differently: the rules were edited, or "
        "another version or processor evaluates them"
    ),
}
OTHER_COLUMNS = {  # options by kind of file
    "subset": "the input now has other columns or types than the subset",
    "batch": "the batch has other columns or types than the selection now has",
}


def difference_words(each: "Difference") -> str:
    """Return how a row differs, in one sentence."""
    return DIFFERENCES[each.kind].format(each)


def finding_words(each: "Finding") -> str:
    """Return another difference from the receipt, in one sentence."""
    return OTHER_COLUMNS[each.what] if each.kind == "other columns" else FINDINGS[each.kind].format(each)


def lines_of(result: "Verification") -> dict[str, list[str]]:
    """Return the messages of a verification: ``notes``, and the first ``different`` rows."""
    return {
        "notes": [finding_words(each) for each in result.notes],
        "different": [difference_words(each) for each in result.different],
    }


def proof_lines(proof: "Proof") -> list[str]:
    """Return the report on a subset: differences by step, then images, and the total."""
    several = bool(proof.earlier)
    lines: list[str] = []
    named = [(proof.receipt, proof), *((step.receipt, step.verification) for step in proof.earlier)]
    for receipt, verification in named:
        before = f"{receipt}: " if several else ""
        lines_by_kind = lines_of(verification)
        lines += [
            f"{before}{text}" for text in (*lines_by_kind["notes"], *lines_by_kind["different"], _sum(verification))
        ]
    if proof.origin:
        about = proof.origin
        lines.append(
            f"{about['table']}: {counted(about['n_rows'], 'row')}"
            + "".join(f", {what} {about[name]:{form}}" for name, (what, form) in ORIGIN.items() if name in about)
        )
    return lines + (_pixel_lines(proof.pixels) if proof.pixels is not None else [])


ORIGIN = {"kind": ("kind", ""), "model": ("by", ""), "model_digest": ("weights", ".16"), "source": ("of", "")}


def _sum(result: "Verification") -> str:
    """Return whether one step is the same."""
    is_same = not result.n_different and not result.problems
    if is_same:
        return f"identical: {counted(result.n_rows, 'row was', 'rows were')} decided again, and every one is the same"
    if result.n_different:
        return f"different: {counted(result.n_different, 'difference')} in {counted(result.n_rows, 'row')}"
    return f"different: {counted(result.n_rows, 'row')} with the same decision, but not what is named above"


def _pixel_lines(check: "PixelCheck") -> list[str]:
    lines = [f"{key}: {problem}" for key, problem in check.named]
    of = f"{counted(check.n_compared, 'image')} of {check.n_rows:,}"
    if check.identical:
        return [*lines, f"pixels: {of} read again, and all have the bytes that were scored"]
    parts = [(check.n_changed, "changed"), (check.n_lost, "cannot be read")]
    problems = ", ".join(f"{n:,} {what}" for n, what in parts if n)
    return [*lines, f"pixels: different: {problems}, of {of} read again"]


@command_of(VerifyOptions)
def run(request: VerifyOptions, json_: options.Json = False) -> NextCommand:
    """Recompute a subset or batch from its receipt, and compare.

    Example:

        curate verify kept.receipt.json
        curate verify kept.receipt.json --table moved/scores.parquet
        curate verify kept.parquet --chain --pixels 1000
        curate verify kept.receipt.json --root /mnt/archive
        curate verify rounds
        curate verify rounds/rounds/0002
        curate verify fitted.safetensors
        curate verify good.json
        curate verify curated/pipeline.receipt.json

    Exit code 0: identical; 1: something differs, or an error.
    """
    from curate.calibration.verify import of_calibration
    from curate.manifest.store_path import path_on_disk, path_to_read
    from curate.pipeline.receipt import is_pipeline_receipt
    from curate.rounds.files.folder import rounds_at

    line = (lambda text: None) if json_ else show
    receipt: Any = path_to_read(request.receipt)
    table: Any = request.table
    rounds = rounds_at(receipt) if isinstance(receipt, Path) else None
    if of_calibration(receipt) is not None:
        _refuse(request, "a calibration", ("root", "chain", "pixels", "source"))
        identical, following = _calibration(receipt, table, json_, line), suggest("info", receipt)
    elif isinstance(receipt, Path) and is_pipeline_receipt(receipt):
        _refuse(request, "a pipeline", ("table", "root", "chain", "pixels", "source"))
        identical, following = _pipeline(receipt, json_), suggest("info", receipt)
    elif receipt.suffix == ".safetensors":
        _refuse(request, "a fitted model", ("root", "chain", "pixels", "source"))
        identical, following = (
            _fit(path_on_disk(receipt, "a fitted model"), table, json_, line),
            suggest("info", receipt),
        )
    elif rounds is not None:
        _refuse(request, "rounds", ("root", "chain", "pixels", "source"))
        moved = None if table is None else path_on_disk(table, "--table of rounds")
        identical, following = _rounds(*rounds, moved, json_, line), suggest("round", "status", rounds[0])
    else:
        identical, following = _subset(request, json_, line)
    return following if identical else replace(following, code=1)


def _refuse(request: VerifyOptions, what: str, names: tuple[str, ...]) -> None:
    """Refuse options that do not apply to the verified file."""
    for name in names:
        if getattr(request, name):
            raise InputError(f"expected no --{name.replace('_', '-')} with {what}; it is for the receipt of a subset")


def _subset(request: VerifyOptions, json_: bool, line: Callable[[str], None]) -> tuple[bool, NextCommand]:
    from curate.lineage.verify import run_verify

    result = run_verify(request)
    if json_:
        emit({**result.to_json(), **lines_of(result)})
    for text in proof_lines(result):
        line(text)
    if result.different:
        return False, suggest("explain", result.input, result.different[0].key)
    subset = Path(str(request.receipt).removesuffix(".receipt.json").removesuffix(".parquet") + ".parquet")
    return result.identical, to_export(subset) if subset.is_file() else suggest("info", request.receipt)


def _fit(model: Path, table: Path | None, json_: bool, line: Callable[[str], None]) -> bool:
    from curate.fitting.verify import verify_fit

    result = verify_fit(model, table)
    if json_:
        emit(result.to_json())
    for same, what in (
        (result.table, "the table does not hold the rows that it was fitted to"),
        (result.labels, "the labels are not those it learned from"),
        (
            result.fit,
            (
                "fitting it again gives other values than the model holds: another processor or version differs "
                "in the last digits"
            ),
        ),
        (result.applied is not False, "the table written with it has changed since"),
    ):
        if not same:
            line(what)
    line(f"{'identical' if result.identical else 'different'}: fitted again to {counted(result.rows, 'row')}")
    return result.identical


def _calibration(path: Path, table: Path | None, json_: bool, line: Callable[[str], None]) -> bool:
    from curate.calibration.verify import verify_calibration

    result = verify_calibration(path, table)
    if json_:
        emit(result.to_json())
    for text in result.problems:
        line(text)
    line(f"{'identical' if result.identical else 'different'}: calibrated again, {counted(result.rows, 'row')}")
    return result.identical


def _pipeline(receipt: Path, json_: bool) -> bool:
    from dataclasses import asdict

    from curate.pipeline.receipt import verify_pipeline

    checks = []
    for check in verify_pipeline(receipt):
        checks.append(check)
        for text in check.differences if not json_ else ():
            show(f"{check.step}: different: {text}")
        if not check.differences and not json_:
            again = "" if check.decided_again is None else f", {counted(check.decided_again, 'row')} decided again"
            elsewhere = f"; {counted(check.elsewhere, 'file')} elsewhere not checked" if check.elsewhere else ""
            show(f"{check.step}: identical{again}{elsewhere}")
    identical = not any(check.differences for check in checks)
    if json_:
        emit({"identical": identical, "steps": [asdict(check) for check in checks]})
    return identical


def _rounds(folder: Path, number: int | None, table: Path | None, json_: bool, line: Callable[[str], None]) -> bool:
    from curate.rounds.verify import verify_rounds

    result = verify_rounds(folder, table, only=number, report=lambda check: line(check_words(check)))
    if json_:
        emit(result.to_json())
    for text in result.problems:
        line(text)
    if not result.rounds:
        line(f"{folder}: it has no batch yet, so there is nothing to compare")
    return result.identical
