"""``curate issues``: pictures with a problem, by kind."""

from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curate.commands import options
from curate.commands.printing import emit, printers, say, say_files
from curate.counted import counted

if TYPE_CHECKING:
    from curate.manifest import SourceOptions
    from curate.policies.issues.policy import IssuesResult

N_PAIRS = 5  # pairs of kinds that are shown
Names = list[str] | None


def run(
    table: options.Table,
    out: Annotated[Path | None, options.written_to("--out", ": the rows without issues, such as clean.parquet")] = None,
    only: Annotated[
        Names,
        typer.Option(
            metavar="KIND", help="Look for this kind alone; again for more. What is named goes.", show_default=False
        ),
    ] = None,
    without: Annotated[
        Names, typer.Option(metavar="KIND", help="Do not look for this kind; again for more.", show_default=False)
    ] = None,
    also: Annotated[
        Names,
        typer.Option(
            metavar="KIND", help="Drop this kind too, harmless by itself; again for more.", show_default=False
        ),
    ] = None,
    set_: Annotated[Names, options.shared("--set", ": where a kind begins", metavar="KIND=VALUE")] = None,
    show: Annotated[int, typer.Option(min=0, help="Rows of each kind to name and to draw, the worst.")] = 3,
    sheet: Annotated[
        Path | None,
        options.shared("--sheet", ": the worst of each kind, NAME.png"),
    ] = None,
    source: options.Source = None,
    root: options.SourceRoot = None,
    key: options.SourceKey = None,
    path_column: options.SourcePathColumn = None,
    image_column: options.SourceImageColumn = None,
    dry_run: options.DryRun = False,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Name the pictures with a problem, and which one it is.

    Example:

    \b
        curate issues scores.parquet
        curate issues scores.parquet --sheet issues.png --show 20
        curate issues scores.parquet -o clean.parquet
        curate issues scores.parquet --only blurry --set blurry=0.2 --also grey --without noisy

    Where a kind begins adapts to the heap, between two fixed bounds, and is printed; --set says otherwise. With
    --out the rows that have a harmful kind go; overexposed, bordered, grey, odd-aspect and odd-size are counted and
    stay, unless --also or --only names them. Copies are no kind here: `curate dedup` finds them.
    """
    from curate.policies.issues.policy import issues
    from scoring.settings import parse_settings

    given = dict(locals())
    if sheet is not None:
        from curate.display.picture import check_picture

        check_picture(sheet, overwrite=overwrite)
    settings = parse_settings(set_ or [], example="dark=0.2")
    result = issues(**options.given_to(issues, given) | {"set": settings})
    if sheet is not None and not dry_run:
        from curate.manifest import SourceOptions

        where = SourceOptions(root=root, key=key, path_column=path_column, image_column=image_column)
        _draw(result, table, sheet, source, where, overwrite)
    if json_:
        emit(result.to_json())
    elif out is None or dry_run or not quiet:
        _report(result, asked=out is None or dry_run)
        if out is not None:
            say_files(result, dry_run=dry_run)
        if sheet is not None and not dry_run:
            say(f"sheet: {sheet}")


def _report(result: "IssuesResult", *, asked: bool) -> None:
    line, table = printers(asked=asked)
    n = max(1, result.n_rows - result.failed)
    line(f"{counted(result.n_rows, 'row')}: {_found(result)}")
    rows = []
    for name, found in result.kinds.items():
        median = "" if found["median"] is None else f"{found['median']:.3g}"
        fate = "go" if found["goes"] else "stay"
        if "common" in found:
            fate = f"stay: {found['common']:,} rows are so, which is what the heap is"
        rows.append((name, found["n"], f"{found['n'] / n:.1%}", f"{found['begins']:.3g}", median, fate))
    table(rows, header=("kind", "rows", "share", "begins at", "median", "its rows"), right=1)
    for status, count in result.failed_by.items():
        line(f"not scored: {count:,} {status}")
    for why, count in result.undecided_by.items():
        line(f"undecided: {count:,} {why}")
    if result.not_looked:
        line(f"not looked for, without values: {', '.join(result.not_looked)}")
    for first, second, count in result.overlaps[:N_PAIRS]:
        line(f"both {first} and {second}: {count:,}")
    for kind, examples in groupby(result.examples, key=itemgetter("why")):
        line(f"most {kind}: {', '.join(example['key'] for example in examples)}")
    line(f"kept {result.kept:,}, dropped {result.dropped:,}; copies are found by `curate dedup`")


def _found(result: "IssuesResult") -> str:
    """Return how many rows have an issue, and of how many that could be looked at."""
    scored = result.n_rows - result.failed
    if not result.n_issues and not scored - result.undecided:
        return "none could be looked at: " + ("no image was scored" if not scored else "none has measures of quality")
    of = f" of {scored:,} that were scored" if result.failed else ""
    return f"{result.n_issues:,}{of} with an issue ({result.n_issues / scored:.1%})"


def _draw(
    result: "IssuesResult",
    table: Path,
    sheet: Path,
    source: str | None,
    where: "SourceOptions",
    overwrite: bool,
) -> None:
    """Draw the worst rows of each kind, each with its measure."""
    from curate.display.picture import save_picture
    from curate.display.sheet import contact_sheet, refuse_too_many
    from curate.display.tiles import tiles
    from curate.policies.issues.kinds import KINDS
    from curate.tables.table import open_table
    from scoring.errors import InputError

    if not result.worst:
        raise InputError("no row has an issue: there is nothing to draw; leave out --sheet")
    refuse_too_many(sum(map(len, result.worst.values())))
    opened = open_table(table, require=["key"])
    sections = []
    for name, rows in result.worst.items():
        found = result.kinds[name]
        pictures = tiles(opened, rows, KINDS[name].columns[0], source=source, options=where)
        title = f"{name}: the worst {len(rows)} of {found['n']:,}; begins at {found['begins']:.3g}"
        sections.append((title, [pictures[row] for row in rows]))
    save_picture(contact_sheet(sections, columns=10, fewest=5), sheet, overwrite=overwrite)
