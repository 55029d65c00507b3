"""``curate verify``: derive a subset, or the batches of rounds, again from what is noted beside them."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from curate.commands import options
from curate.commands.printing import emit, show
from curate.commands.round_words import check_words
from curate.commands.verify_words import lines_of
from curate.counted import counted
from scoring.errors import InputError


def run(
    receipt: Annotated[
        Path,
        typer.Argument(
            parser=options.given_path,
            help="NAME.receipt.json, with subset and decisions beside it; a folder of rounds; a fitted model; or what "
            "curate run wrote.",
        ),
    ],
    table: options.MovedTable = None,
    json_: options.Json = False,
) -> None:
    """Derive a subset or a batch again from its receipt, and compare.

    Example:

    \b
        curate verify kept.receipt.json
        curate verify kept.receipt.json --table moved/scores.parquet
        curate verify rounds
        curate verify rounds/rounds/0002
        curate verify fitted.safetensors
        curate verify curated/pipeline.receipt.json
    """
    from curate.pipeline.receipt import is_pipeline_receipt
    from curate.rounds.verify import rounds_at

    if is_pipeline_receipt(receipt):
        if table is not None:
            raise InputError("expected no --table with the receipt of a pipeline: its tables lie beside it")
        if not _pipeline(receipt, json_):
            raise typer.Exit(1)
        return
    rounds = rounds_at(receipt)
    line = (lambda text: None) if json_ else show
    if receipt.suffix == ".safetensors":
        identical = _fit(receipt, table, json_, line)
    else:
        identical = _subset(receipt, table, json_, line) if rounds is None else _rounds(*rounds, table, json_, line)
    if not identical:
        raise typer.Exit(1)


def _subset(receipt: Path, table: Path | None, json_: bool, line: Callable[[str], None]) -> bool:
    from curate.policies.verify import verify

    result = verify(receipt, table)
    said = lines_of(result)
    if json_:
        emit({**result.to_json(), **said})
    for text in said["notes"] + said["different"]:
        line(text)
    if result.identical:
        line(f"identical: {counted(result.n_rows, 'row was', 'rows were')} decided again, and every one is the same")
    elif result.n_different:
        line(f"different: {counted(result.n_different, 'difference')} in {counted(result.n_rows, 'row')}")
    else:
        line(f"different: {counted(result.n_rows, 'row')} decided alike, but not what is named above")
    return result.identical


def _fit(model: Path, table: Path | None, json_: bool, line: Callable[[str], None]) -> bool:
    from curate.fitting.verify import verify_fit

    result = verify_fit(model, table)
    if json_:
        emit(result.to_json())
    for same, what in (
        (result.table, "the table does not hold the rows that it was fitted to"),
        (result.labels, "the labels are not those that it learned from"),
        (
            result.fit,
            "what is fitted again is not what the model keeps: another processor or version differs in last digits",
        ),
        (result.applied is not False, "the table that was written beside it has other bytes now"),
    ):
        if not same:
            line(what)
    line(f"{'identical' if result.identical else 'different'}: fitted again to {counted(result.rows, 'row')}")
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
            elsewhere = f"; {counted(check.elsewhere, 'file')} elsewhere not looked at" if check.elsewhere else ""
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
        line(f"{folder}: nothing was asked yet, so there is nothing to compare")
    return result.identical
