"""``curate dedup``: keep one of each group that is the same, and say why."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curate.commands.order import typed
from curate.commands.report import emit, say, show_table

if TYPE_CHECKING:
    from curate.dedup.run import DedupResult

Texts = list[str] | None


def run(
    ctx: typer.Context,
    table: Annotated[Path, typer.Argument(help="Scored table: a Parquet file, or a folder of part-*.parquet.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Subset to write, such as unique.parquet.")] = None,
    finder: Annotated[
        Texts,
        typer.Option(
            metavar="NAME",
            help="Kind of sameness: bytes, hash, signature, embedding; again for more. [default: bytes and signature]",
        ),
    ] = None,
    threshold: Annotated[
        Texts,
        typer.Option(metavar="X", help="Of the finder before it: bits that may differ (hash), or the least cosine."),
    ] = None,
    mirrored: Annotated[bool, typer.Option("--mirrored", help="Mirrored copies are the same (signature).")] = False,
    rotated: Annotated[
        bool, typer.Option("--rotated", help="Copies turned by 90, 180 or 270 degrees are the same (signature).")
    ] = False,
    cropped: Annotated[
        bool, typer.Option("--cropped", help="Crops down to 80 % are the same (signature); 13 times the search.")
    ] = False,
    against: Annotated[
        Path | None, typer.Option(help="Another scored table: what it has already goes.", show_default=False)
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="What --against has already stays, and is told (leaks).")
    ] = False,
    keep: Annotated[
        str, typer.Option(metavar="LIST", help="Who stays: criteria in order, separated by commas.")
    ] = "labelled,largest,least-compressed,certain",
    protect: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="Rows that never go.", show_default=False)
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Labels, to list groups that disagree. [default: label, where there is one]"
        ),
    ] = None,
    groups: Annotated[
        str, typer.Option(help="star: none further from the one that stays than the threshold; chain: connected.")
    ] = "star",
    similarity: Annotated[
        str, typer.Option(help="Of embeddings: cosine, or elk, whose radius follows kappa.")
    ] = "cosine",
    kappa: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Kappa column for elk.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the counts; write nothing.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace outputs that exist.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Keep one image of each group that is the same.

    Example:

    \b
        curate dedup scores.parquet --mirrored -o unique.parquet
        curate dedup scores.parquet --finder hash --threshold 4 --finder embedding --dry-run
        curate dedup new.parquet --against old.parquet -o added.parquet
        curate dedup train.parquet --against test.parquet --report-only --mirrored -o train-leaks.parquet

    Every row that goes is the same as the row that stays in its place, which the decisions name with the similarity;
    there are no chains of ever less alike images. --keep decides who stays: labelled, largest,
    least-compressed, certain, max:COLUMN, min:COLUMN, and a hash of the key at the end.
    Writes unique.parquet, unique.decisions.parquet, unique.groups.parquet (with label conflicts) and
    unique.receipt.json. Nothing is deleted.
    """
    from curate.dedup.run import dedup_table
    from curate.dedup.typed import finders_in_order

    result = dedup_table(
        table,
        out,
        finders_in_order(typed(ctx)),
        against=against,
        dry_run=dry_run,
        overwrite=overwrite,
        mirrored=mirrored,
        rotated=rotated,
        cropped=cropped,
        report_only=report_only,
        keep=keep,
        protect=protect,
        label=label,
        groups=groups,
        similarity=similarity,
        kappa=kappa,
    )
    if json_:
        emit(result.to_json())
    else:
        _report(result, dry_run)


def _report(result: "DedupResult", dry_run: bool) -> None:
    for note in [*result.notes, *result.recall]:
        say(note)
    rows: list[tuple[str, int, str]] = [("rows in", result.n_rows, ""), ("kept", result.kept, "")]
    rows += [("dropped", n, name) for name, n in result.dropped_by.items()]
    rows += [("failed", n, status) for status, n in result.failed_by.items()]
    rows.append(("groups", result.n_groups, f"the largest has {result.largest:,} rows" if result.n_groups else ""))
    if result.n_leaks:
        rows.append(("in the other", result.n_leaks, "rows that --against has too"))
    show_table(rows, right=1)
    if result.n_conflicts:
        say(
            f"{result.n_conflicts:,} groups carry different labels, perhaps labelling errors; the groups table has all:"
        )
        for each in result.conflicts:
            say(f"  {each['kept_key']}: {', '.join(each['labels'])} ({each['size']:,} rows)")
    if dry_run:
        for example in result.examples:
            say(f"would go: {example['key']}: {example['reason']}")
        say("dry run: nothing was written")
    for name, path in result.paths().items():
        if path is not None:
            say(f"{name}: {path}")
