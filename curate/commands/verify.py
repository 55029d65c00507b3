"""``curate verify``: a subset, or the batches of rounds, recomputed from their receipts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import emit, show
from curate.commands.round_words import check_words
from curate.commands.verify_words import lines_of, proof_lines
from curate.counted import counted
from curate.lineage.options import VerifyOptions
from scoring.errors import InputError


@command_of(VerifyOptions)
def run(
    request: VerifyOptions,
    json_: options.Json = False,
) -> None:
    """Recompute a subset or batch from its receipt, and compare.

    Example:

    \b
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
        identical = _calibration(receipt, table, json_, line)
    elif isinstance(receipt, Path) and is_pipeline_receipt(receipt):
        _refuse(request, "a pipeline", ("table", "root", "chain", "pixels", "source"))
        identical = _pipeline(receipt, json_)
    elif receipt.suffix == ".safetensors":
        _refuse(request, "a fitted model", ("root", "chain", "pixels", "source"))
        identical = _fit(path_on_disk(receipt, "a fitted model"), table, json_, line)
    elif rounds is not None:
        _refuse(request, "rounds", ("root", "chain", "pixels", "source"))
        moved = None if table is None else path_on_disk(table, "--table of rounds")
        identical = _rounds(*rounds, moved, json_, line)
    else:
        identical = _subset(request, json_, line)
    if not identical:
        raise typer.Exit(1)


def _refuse(request: VerifyOptions, what: str, names: tuple[str, ...]) -> None:
    """Refuse options that do not apply to what is verified."""
    for name in names:
        if getattr(request, name):
            raise InputError(f"expected no --{name.replace('_', '-')} with {what}; it is for the receipt of a subset")


def _subset(request: VerifyOptions, json_: bool, line: Callable[[str], None]) -> bool:
    from curate.lineage.verify import run_verify

    result = run_verify(request)
    if json_:
        emit({**result.to_json(), **lines_of(result)})
    for text in proof_lines(result):
        line(text)
    return result.identical


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
