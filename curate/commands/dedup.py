"""``curate dedup``: keep one of each group of duplicates, with reasons."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curate.commands.declared import command_of
from curate.commands.groups import OrderedCommand, typed
from curate.commands.printing import EXIT_GATE, NextCommand, Output, after_policy, printers, say_files, suggest
from curate.commands.progress import Bar
from curate.counted import counted
from curate.options.option import Option, shared
from curate.policies.dedup.options import DedupOptions

if TYPE_CHECKING:
    from curate.policies.dedup.policy import DedupResult
    from curate.policies.dedup.quality.examine import RecallReport

N_UNREAD = 5  # unusable images named in the report
Texts = list[str] | None

Threshold = Annotated[
    Texts, Option("Threshold of the finder before it: maximum bits (hash), or minimum cosine.", metavar="X")
]
FailOnLeaks = Annotated[bool, Option("Exit with 3 if any row is also in --against; outputs are still written.")]
Sheet = Annotated[Path | None, shared("--sheet", ": the groups, doubtful ones first, NAME.png")]


def lower_words(n: int) -> str:
    """Return how many groups keep a copy of lower quality than a dropped one."""
    if not n:
        return "no group keeps a copy of lower quality than one it drops"
    groups = "1 group keeps a copy of lower quality than one it drops"
    if n > 1:
        groups = f"{n:,} groups keep a copy of lower quality than one they drop"
    return f"{groups}: lower_quality in the groups table (by --prefer, --protect, labels or --keep)"


def recall_header(report: "RecallReport") -> tuple[str, ...]:
    """Return the header of ``recall_table``."""
    return ("edit", "what was done", "found", "recall", "95 %", *report.overall.by_finder)


def recall_table(report: "RecallReport") -> list[tuple[str, ...]]:
    """Return a row of text for each kind of edit, and one for the total."""
    rows = []
    for kind in [*report.kinds, report.overall]:
        finders = [f"{n / kind.n:.2f}" for n in kind.by_finder.values()]
        share, interval = f"{kind.detected / kind.n:.3f}", f"{kind.low:.3f} to {kind.high:.3f}"
        rows.append((kind.name, kind.strength, f"{kind.detected:,} of {kind.n:,}", share, interval, *finders))
    return rows


def recall_lines(report: "RecallReport") -> list[str]:
    """Return notes on the table, one sentence per line."""
    overall, images = report.overall, counted(report.images, "image")
    lines = [
        f"recall of planted copies {overall.detected / overall.n:.3f} (95 %: {overall.low:.3f} to {overall.high:.3f}): "
        f"{overall.detected:,} of {overall.n:,} found, {len(report.kinds)} edits of each of {images}, "
        f"seed {report.seed}; the mix of edits decides this number, so read it by kind"
    ]
    if "listed" in overall.by_finder:
        lines.append("listed: found, or listed for review as a crop; not counted as found")
    if report.elsewhere:
        copies = counted(report.elsewhere, "copy was", "copies were")
        lines.append(f"{copies} linked, but not with the original or its group: not found")
    if report.failed:
        lines.append(f"{counted(report.failed, 'copy', 'copies')} could not be scored: counted as missed")
    if report.shrunk:
        lines.append(f"made smaller before the edits: {report.shrunk:,} of {images}")
    if report.unread:
        named = [f"{key} ({why})" for key, why in list(report.unread.items())[:N_UNREAD]]
        more = f", and {len(report.unread) - N_UNREAD:,} more" if len(report.unread) > N_UNREAD else ""
        lines.append(
            f"{len(report.unread):,} images that were drawn cannot be used, others took their place: "
            f"{', '.join(named)}{more}"
        )
    return lines


PARSER = OrderedCommand


@command_of(
    DedupOptions, threshold="finder", against="cropped", fail_on_leaks="only_against", sheet="audit", finder="out"
)
def run(
    request: DedupOptions,
    ctx: typer.Context,
    output: Output,
    threshold: Threshold = None,
    fail_on_leaks: FailOnLeaks = False,
    sheet: Sheet = None,
) -> NextCommand:
    """Keep one image of each group of duplicates.

    Example:

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
    with Bar("rows compared", quiet=output.silent) as rows_bar, Bar("images edited", quiet=output.silent) as bar:
        result = run_dedup(
            replace(
                request,
                finder=finders_in_order(typed(ctx)),
                report=lambda done, total: bar.show(done, total, 0, ""),
                compared=lambda done, total: rows_bar.show(done, total, 0, ""),
                announce=output.announce,
            )
        )
    if sheet is not None:
        drawn = _draw(result, request, sheet)
        output.note(f"sheet: {sheet}: {drawn:,} of {counted(result.n_groups, 'group')}, the most doubtful first")
    output.result(result, lambda: _report(result, request.against, request.dry_run), requested=request.dry_run)
    failed = fail_on_leaks and bool(result.n_leaks)
    if failed:
        output.announce(
            f"failed: {counted(result.n_leaks, 'row is', 'rows are')} in {request.against} too (--fail-on-leaks)"
        )
    return _next(request, result, failed=failed)


def _next(request: DedupOptions, result: "DedupResult", *, failed: bool) -> NextCommand:
    """Return the review of drawn pairs, or of copies and leaks; else what follows a policy, without the leaks."""
    code = EXIT_GATE if failed else 0
    sample = None if failed else result.audit
    if sample is not None or (result.subset is not None and (result.to_review or failed)):
        where = () if request.source is None else ("--source", request.source)
        return suggest("review", request.table, sample or result.subset, *where, code=code)
    gates = ("--fail-on-leaks", "--report-only") if failed else ()
    return after_policy(request, result, "unique.parquet", without=("--dry-run", *gates), code=code)


def _refuse_sheet(sheet: Path | None, request: DedupOptions) -> None:
    """Refuse invalid sheet options before hours of work."""
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
    """Draw the groups; return the number drawn."""
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
