"""``curate verify``: derive a subset, or the batches of rounds, again from what is noted beside them."""

from pathlib import Path
from typing import Annotated

import typer

from curate.commands.report import emit, say
from curate.counted import counted


def run(
    receipt: Annotated[
        Path,
        typer.Argument(help="NAME.receipt.json, with subset and decisions beside it; or a folder of rounds."),
    ],
    table: Annotated[Path | None, typer.Option(help="The table that was filtered, if it has moved.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Derive a subset again from its receipt, or the batch of every round, and compare.

    Example:

    \b
        curate verify kept.receipt.json
        curate verify kept.receipt.json --table moved/scores.parquet
        curate verify rounds
        curate verify rounds/rounds/0002/receipt.json
    """
    from curate.rounds.verify import rounds_at

    rounds = rounds_at(receipt)
    identical = _subset(receipt, table, json_) if rounds is None else _rounds(*rounds, table, json_)
    if not identical:
        raise typer.Exit(1)


def _subset(receipt: Path, table: Path | None, json_: bool) -> bool:
    from curate.policies.verify import verify

    result = verify(receipt, table)
    if json_:
        emit(result.to_json())
        return result.identical
    for line in result.notes + result.different:
        say(line)
    if result.identical:
        say(f"identical: {counted(result.n_rows, 'row was', 'rows were')} decided again, and every one is the same")
    else:
        say(f"different: {counted(result.n_different, 'difference')} in {counted(result.n_rows, 'row')}")
    return result.identical


def _rounds(folder: Path, number: int | None, table: Path | None, json_: bool) -> bool:
    from curate.rounds.verify import verify_rounds

    result = verify_rounds(folder, table, only=number, report=None if json_ else lambda check: say(str(check)))
    if json_:
        emit(result.to_json())
        return result.identical
    for line in result.problems:
        say(line)
    if not result.rounds:
        say(f"{folder}: nothing was asked yet, so there is nothing to compare")
    return result.identical
