"""``curate dedup``: keep one of each group of duplicates, with reasons."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.dedup_words import lower_words, recall_header, recall_lines, recall_table
from curate.commands.order import typed
from curate.commands.printing import EXIT_GATE, emit, printers, say, say_files
from curate.commands.progress import Bar
from curate.counted import counted
from curate.policies.dedup.options import DedupOptions

if TYPE_CHECKING:
    from curate.policies.dedup.policy import DedupResult

Texts = list[str] | None


Threshold = Annotated[
    Texts,
    typer.Option(metavar="X", help="Threshold of the finder before it: maximum bits (hash), or minimum cosine."),
]
FailOnLeaks = Annotated[
    bool,
    typer.Option("--fail-on-leaks", help="Exit with 3 if any row is also in --against; outputs are still written."),
]
Sheet = Annotated[
    Path | None,
    options.shared("--sheet", ": the groups, doubtful ones first, NAME.png"),
]


@command_of(DedupOptions, threshold="finder", fail_on_leaks="only_against", sheet="audit")
def run(
    request: DedupOptions,
    ctx: typer.Context,
    threshold: Threshold = None,
    fail_on_leaks: FailOnLeaks = False,
    sheet: Sheet = None,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Keep one image of each group of duplicates.

    Example:

    \b
        curate dedup scores.parquet --mirrored -o unique.parquet
        curate dedup scores.parquet --finder hash --threshold 4 --finder embedding --dry-run
        curate dedup scores.parquet --audit 200 -o unique.parquet
        curate dedup new.parquet --against old.parquet -o added.parquet
        curate dedup /nfs/scores --finder embedding -o /nfs/unique.parquet --engine ray:auto
        curate dedup scores.parquet --verdicts scores.verdicts.jsonl -o unique.parquet
        curate dedup train.parquet --against test.parquet --only-against --mirrored --fail-on-leaks --dry-run

    Every dropped row is a direct copy of the kept row, which the decisions name with the similarity; copies of copies
    are not chained. --prefer, then --keep, decide which image is kept: labelled, no-junk, least-lost, least-lossy,
    largest, least-compressed, certain, max:COLUMN, min:COLUMN; of identical files, the one with the shorter key. Only
    --estimate-recall and --sheet read images. Writes unique.parquet, unique.decisions.parquet, unique.groups.parquet
    (with label conflicts) and unique.receipt.json, and with --against unique.leaks.csv. Nothing is deleted.
    """
    from curate.policies.dedup.policy import run_dedup
    from curate.policies.dedup.request import finders_in_order
    from scoring.errors import InputError

    if fail_on_leaks and request.against is None:
        raise InputError("--fail-on-leaks is about what another table also has; pass that as --against")
    _refuse_sheet(sheet, request)
    silent = json_ or quiet
    with Bar("rows compared", quiet=silent) as rows_bar, Bar("images edited", quiet=silent) as bar:
        result = run_dedup(
            replace(
                request,
                finder=finders_in_order(typed(ctx)),
                report=lambda done, total: bar.show(done, total, 0, ""),
                compared=lambda done, total: rows_bar.show(done, total, 0, ""),
                announce=(lambda text: None) if silent else say,
            )
        )
    if sheet is not None:
        drawn = _draw(result, request, sheet)
        if not quiet:
            say(f"sheet: {sheet}: {drawn:,} of {counted(result.n_groups, 'group')}, the most doubtful first")
    if json_:
        emit(result.to_json())
    elif request.dry_run or not quiet:
        _report(result, request.against, request.dry_run)
    if fail_on_leaks and result.n_leaks:
        if not silent:
            say(f"failed: {counted(result.n_leaks, 'row is', 'rows are')} in {request.against} too (--fail-on-leaks)")
        raise typer.Exit(EXIT_GATE)


def _refuse_sheet(sheet: Path | None, request: DedupOptions) -> None:
    """Refuse mistakes about the sheet before hours of work."""
    from curate.sheets.picture import check_picture
    from curate.tables.images import require_images
    from curate.tables.table import open_table
    from scoring.atomic import require_folder
    from scoring.errors import InputError

    if sheet is None:
        return
    if request.dry_run:
        raise InputError("--sheet draws what was written, and --dry-run writes nothing; leave one of them out")
    check_picture(sheet, overwrite=request.overwrite)
    require_folder(sheet)
    for table, source in ((request.table, request.source), (request.against, request.against_source)):
        if table is not None:
            require_images(open_table(table), source)


def _draw(result: "DedupResult", request: DedupOptions, sheet: Path) -> int:
    """Draw the groups, and return how many fit."""
    from curate.sheets.groups import group_sheet
    from curate.tables.table import open_table

    return group_sheet(
        open_table(request.table),
        open_table(str(result.decisions)),
        open_table(str(result.groups)),
        sheet,
        source=request.source,
        against=(open_table(request.against), request.against_source) if request.against else None,
        label=request.label,
        overwrite=request.overwrite,
    )


def _report(result: "DedupResult", against: str | Path | None, dry_run: bool) -> None:
    line, table = printers(requested=dry_run)
    for note in [*result.notes, *result.recall]:
        line(note)
    rows = result.account()
    rows.append(
        ("groups", result.n_groups, f"the largest has {counted(result.largest, 'row')}" if result.n_groups else "")
    )
    if result.n_leaks:
        rows.append(("leaks", result.n_leaks, f"also in {against}"))
    table(rows, right=1)
    if result.n_lower is not None and result.n_groups:
        line(lower_words(result.n_lower))
    leaks = [each for each in result.examples if each["why"] == "leak"]
    for leak in leaks:
        line(f"leak: {leak['key']}: {leak['reason']}")
    if len(leaks) < result.n_leaks and leaks:
        where = f"{result.leaks} names" if result.leaks else "with -o, NAME.leaks.csv names"
        line(f"and {result.n_leaks - len(leaks):,} more: {where} every one")
    if result.n_conflicts:
        groups = counted(result.n_conflicts, "group carries", "groups carry")
        line(f"{groups} different labels, perhaps labelling errors; the groups table has all:")
        for each in result.conflicts:
            line(f"  {each['kept_key']}: {', '.join(each['labels'])} ({counted(each['size'], 'row')})")
    if result.planted is not None:
        table(recall_table(result.planted), header=recall_header(result.planted))
        for text in recall_lines(result.planted):
            line(text)
    if dry_run:
        for example in result.examples:
            if example["why"] == "goes":
                line(f"would drop: {example['key']}: {example['reason']}")
    say_files(result, dry_run=dry_run)
