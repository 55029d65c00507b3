"""``curate split``: parse, split, report."""

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from curate.commands.declared import command_of
from curate.commands.dedup import Threshold
from curate.commands.groups import OrderedCommand, typed
from curate.commands.printing import NextCommand, Output, after_policy, printers, say_files
from curate.counted import counted
from curate.policies.split.options import SplitOptions

if TYPE_CHECKING:
    from curate.policies.split.policy import SplitResult

N_STRATA = 20  # rows shown by a dry run


PARSER = OrderedCommand


@command_of(SplitOptions, threshold="finder")
def run(request: SplitOptions, ctx: typer.Context, output: Output, threshold: Threshold = None) -> NextCommand:
    """Split a table into train, val and test; copies stay together.

    Example:

        curate split scores.parquet --train 80% --val 10% --test 10% -o split.parquet
        curate split scores.parquet --train 80% --test 20% --per label --group patient -o split.parquet
        curate split scores.parquet --side fit=90% --side dev=10% --no-duplicates --dry-run
        curate filter split.parquet --where 'split == "train"' -o train.parquet

    A hash of the key assigns the side of a row, so it does not change when rows are added or removed, and the shares
    are random. With --per or --exact, the shares are met to within a row, but rows near a cut can change sides when the
    table grows. Copies, and rows with the same value of --group, stay together. Writes split.parquet (the table with a
    column split), split.decisions.parquet (every row, and why) and split.receipt.json, which `curate verify` checks.
    """
    from curate.policies.dedup.request import finders_in_order
    from curate.policies.split.policy import run_split

    result = run_split(replace(request, finder=finders_in_order(typed(ctx))))
    output.result(result, lambda: _report(result, request.dry_run), requested=request.dry_run)
    return after_policy(request, result, "split.parquet", "--per", "split")


def _report(result: "SplitResult", dry_run: bool) -> None:
    line, table = printers(requested=dry_run)
    for note in result.notes:
        line(note)
    rows: list[tuple[str, int, str]] = [("rows in", result.n_rows, "")]
    rows += [
        (name, n, f"{n / max(1, result.kept):.2%}, requested {result.shares[name] * 100:.4g}%")
        for name, n in result.sides.items()
    ]
    rows += [("failed", n, status) for status, n in result.failed_by.items()]
    table(rows, right=1)
    if result.n_groups:
        line(f"{counted(result.n_groups, 'group')} kept together, the largest of {counted(result.largest, 'row')}")
    if result.leaks is not None:
        line(
            f"copies: {counted(result.n_copies, 'group')}; rows with a copy on another side: {result.leaks:,} "
            f"(by their keys alone it would be {result.would_leak:,})"
        )
    if dry_run and result.strata:
        shown = list(result.strata.items())[:N_STRATA]
        table([(name, *counts) for name, counts in shown], header=("stratum", *result.sides))
        if len(result.strata) > N_STRATA:
            line(f"and {len(result.strata) - N_STRATA:,} more")
    say_files(result, dry_run=dry_run)
