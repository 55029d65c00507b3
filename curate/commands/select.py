"""``curate select``: choose what to label next, or what to train on."""

from dataclasses import replace
from typing import TYPE_CHECKING

from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, Output, after_policy, printers, say_files
from curate.commands.progress import Bar
from curate.counted import counted
from curate.policies.select.options import SelectOptions

if TYPE_CHECKING:
    from curate.policies.select.policy import SelectResult


@command_of(SelectOptions, set="budget", embedding="holdout_loss")
def run(request: SelectOptions, output: Output) -> NextCommand:
    """Choose the rows to label next, or to train on.

    Example:

        curate select scores.parquet --budget 100 -o batch.parquet
        curate select scores.parquet --budget 100 --labelled labels.csv --noise-guard -o batch-2.parquet
        curate select scores.parquet --budget 10% --strategy herding --balance label -o train.parquet
        curate select scores.parquet --budget 50 --strategy score --score unc_losspred --dry-run
        curate select scores.parquet --budget 10% --strategy small-loss --label label -o train.parquet
        curate select /nfs/scores --budget 1% --strategy k-means -o /nfs/batch.parquet --engine ray:auto

    auto maximises coverage until labels exist, then prefers images near the decision boundary; it needs embeddings.
    Labelled rows are never picked again, and coverage strategies avoid their surroundings. Strategies that use class
    probabilities need labels, on which a linear probe is trained. small-loss is for labels that may be wrong: it picks
    rows whose label is confirmed by probes on other rows, or by --holdout-loss. The picks do not depend on the order of
    the table. Writes batch.parquet (in order of rank, with rank and gain), batch.decisions.parquet (every row, and why)
    and batch.receipt.json, which `curate verify` checks.
    """
    from curate.policies.select.policy import run_select

    with Bar("picks", quiet=output.silent) as bar:
        result = run_select(
            replace(request, picked=lambda done, total: bar.show(done, total, 0, ""), announce=output.announce)
        )
    output.result(result, lambda: _report(result, request.dry_run), requested=request.dry_run)
    return after_policy(request, result, "batch.parquet")


def _report(result: "SelectResult", dry_run: bool) -> None:
    line, table = printers(requested=dry_run)
    for note in [*result.notes, *(result.copies.words() if result.copies else [])]:
        line(note)
    rows: list[tuple[str, int, str]] = [("rows in", result.n_rows, "")]
    rows.append(("picked", result.kept, result.strategy + _span(result.gains)))
    rows += [(name, n, "") for name, n in result.dropped_by.items()]
    rows += [("undecided", n, reason) for reason, n in result.undecided_by.items()]
    rows += [("failed", n, status) for status, n in result.failed_by.items()]
    table(rows, right=1)
    if result.groups:
        shares = sorted(result.groups.values())
        span = f"{shares[0]:,} to " if shares[0] != shares[-1] else ""
        line(f"{counted(len(shares), 'group')}, {span}{counted(shares[-1], 'row')} of each")
    if dry_run:
        for each in result.first:
            line(f"would pick: {each['rank']}. {each['key']}")
    say_files(result, dry_run=dry_run)


def _span(gains: list[float | None]) -> str:
    """Return the first and last gain in words, or the least and greatest if they are not monotone."""
    known = [gain for gain in gains if gain is not None]
    if not known:
        return ""
    falls = known == sorted(known, reverse=True)
    first, last = (known[0], known[-1]) if falls else (min(known), max(known))
    return f"; gains {'from' if falls else 'between'} {first:.3g} {'to' if falls else 'and'} {last:.3g}"
