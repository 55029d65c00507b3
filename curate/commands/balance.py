"""``curate balance``: parse, balance, report."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curate.commands import options
from curate.commands.printing import emit, printers, say_files

if TYPE_CHECKING:
    from curate.policies.balance.result import BalanceResult

Texts = list[str] | None
N_CELLS = 20  # that a dry run shows


def run(
    table: options.Table,
    out: Annotated[Path | None, options.written_to("--out", ": the subset, such as balanced.parquet")] = None,
    per: Annotated[
        str,
        options.shared("--per", " (cells), or clusters for clusters of k-means", metavar="COLUMN", show_default=True),
    ] = "label",
    to: Annotated[
        Texts,
        options.shared(
            "--to",
            ": uniform, square-root, a .csv or .json of classes and shares, or CLASS=SHARE, again for each class. "
            "[default: uniform]",
            metavar="TARGET",
            autocompletion=None,
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(metavar="A", help="Instead of --to: shares use size to this power, 0 to 1.", show_default=False),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT",
            help="Rows in all: 1000 or 20%. [default: as many as meet every share]",
            show_default=False,
        ),
    ] = None,
    within: Annotated[str, typer.Option(help="Order of rows in a cell: random, certain or typical.")] = "random",
    column: Annotated[
        str | None,
        options.shared(
            "--column", " of --within certain; max:COLUMN, min:COLUMN. [default: the table's own]", metavar="NAME"
        ),
    ] = None,
    clusters: Annotated[
        int | None,
        options.shared("--clusters", ", of --per clusters. [default: 100, or a tenth of the rows]", metavar="K"),
    ] = None,
    nearest: Annotated[
        bool, typer.Option("--nearest", help="Come as near as rows allow to shares that cannot be met.")
    ] = False,
    embedding: options.Embedding = None,
    seed: options.Seed = 0,
    dry_run: options.DryRun = False,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Keep rows of each class or cluster, towards a distribution.

    Example:

    \b
        curate balance scores.parquet --per label -o balanced.parquet
        curate balance scores.parquet --per label --to square-root --rows 20% --within certain -o balanced.parquet
        curate balance scores.parquet --per label --to cat=30% --to dog=70% --rows 1000 -o balanced.parquet
        curate balance scores.parquet --per clusters --clusters 50 --rows 2000 --dry-run

    No row is repeated. Without --rows as many stay as meet every share exactly, which the smallest cell limits. With
    it, a cell that has too few gives all and the others give more, and the run says by how much the shares are
    missed; shares that were named are refused then, unless --nearest. Counts are whole by largest remainders. Writes
    balanced.parquet, balanced.decisions.parquet (every row, and why) and balanced.receipt.json, which
    `curate verify` checks.
    """
    arguments = dict(locals())
    from curate.policies.balance.policy import balance

    result = balance(**options.accepted(balance, arguments))
    if json_:
        emit(result.to_json())
    elif dry_run or not quiet:
        _report(result, dry_run)


def _report(result: "BalanceResult", dry_run: bool) -> None:
    line, table = printers(requested=dry_run)
    for note in result.notes:
        line(note)
    table(result.account(), right=1)
    if dry_run:
        _cells(result, line, table)
        for example in result.examples:
            line(f"would go: {example['key']}: {example['reason']}")
    say_files(result, dry_run=dry_run)


def _cells(result: "BalanceResult", line: Callable[[str], None], table: Callable[..., None]) -> None:
    """The largest cells, before and after."""
    before, after = sum(n for n, _, _ in result.cells.values()), max(1, result.kept)
    largest = sorted(result.cells.items(), key=lambda item: -item[1][0])
    table(
        [
            (name, n, f"{n / before:.2%}", kept, f"{kept / after:.2%}", f"{target / after:.2%}")
            for name, (n, kept, target) in largest[:N_CELLS]
        ],
        header=("cell", "rows", "share", "kept", "share", "asked"),
    )
    if len(largest) > N_CELLS:
        line(f"and {len(largest) - N_CELLS:,} smaller ones, down to {largest[-1][0]} with {largest[-1][1][0]:,}")
