"""``curate verify``: derive a subset again from its receipt."""

from pathlib import Path
from typing import Annotated

import typer

from curate.commands.report import emit, say


def run(
    receipt: Annotated[Path, typer.Argument(help="NAME.receipt.json, with subset and decisions beside it.")],
    table: Annotated[Path | None, typer.Option(help="The table that was filtered, if it has moved.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Derive a subset again from its receipt, and compare.

    Example:

    \b
        curate verify kept.receipt.json
        curate verify kept.receipt.json --table moved/scores.parquet
    """
    from curate.verify import verify

    result = verify(receipt, table)
    if json_:
        emit(result.to_json())
    else:
        for line in result.notes + result.different:
            say(line)
        if result.identical:
            say(f"identical: {result.n_rows:,} rows were decided again, and every one is the same")
        else:
            say(f"different: {result.n_different:,} differences in {result.n_rows:,} rows")
    if not result.identical:
        raise typer.Exit(1)
