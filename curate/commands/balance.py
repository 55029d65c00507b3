"""``curate balance``: parse, balance, print."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, Output, after_policy, printers, say_files
from curate.policies.balance.options import BalanceOptions

if TYPE_CHECKING:
    from curate.policies.balance.policy import BalanceResult

N_CELLS = 20  # cells shown by a dry run


@command_of(BalanceOptions)
def run(request: BalanceOptions, output: Output) -> NextCommand:
    """Balance classes or clusters towards a distribution.

    Example:

        curate balance scores.parquet --per label -o balanced.parquet
        curate balance scores.parquet --per label --to square-root --rows 20% --within certain -o balanced.parquet
        curate balance scores.parquet --per label --to cat=30% --to dog=70% --rows 1000 -o balanced.parquet
        curate balance scores.parquet --per clusters --clusters 50 --rows 2000 --dry-run

    Undersamples: no row is repeated. Without --rows, as many rows are kept as the shares allow, which the smallest
    group limits. With --rows, a group with too few rows contributes all of them and the others more, and the run
    reports the deviation from the shares; if you named the shares, this is refused unless you add --nearest. Counts are
    rounded by largest remainders. Writes balanced.parquet, balanced.decisions.parquet (every row, and why) and
    balanced.receipt.json, which `curate verify` checks.
    """
    from curate.policies.balance.policy import run_balance

    result = run_balance(request)
    output.result(result, lambda: _report(result, request.dry_run), requested=request.dry_run)
    return after_policy(request, result, "balanced.parquet")


def _report(result: "BalanceResult", dry_run: bool) -> None:
    line, table = printers(requested=dry_run)
    for note in result.notes:
        line(note)
    table(result.account(), right=1)
    if dry_run:
        _cells(result, line, table)
        for example in result.examples:
            line(f"would drop: {example['key']}: {example['reason']}")
    say_files(result, dry_run=dry_run)


def _cells(result: "BalanceResult", line: Callable[[str], None], table: Callable[..., None]) -> None:
    """Return the largest cells, before and after."""
    before, after = sum(n for n, _, _ in result.cells.values()), max(1, result.kept)
    largest = sorted(result.cells.items(), key=lambda item: -item[1][0])
    table(
        [
            (name, n, f"{n / before:.2%}", kept, f"{kept / after:.2%}", f"{target / after:.2%}")
            for name, (n, kept, target) in largest[:N_CELLS]
        ],
        header=("cell", "rows", "share", "kept", "share", "requested"),
    )
    if len(largest) > N_CELLS:
        line(f"and {len(largest) - N_CELLS:,} smaller ones, down to {largest[-1][0]} with {largest[-1][1][0]:,}")
