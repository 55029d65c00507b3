"""``curate issues``: findings about the images of a table, by kind."""

from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, Output, after_policy, emit, printers, say, say_files, suggest, unused
from curate.counted import counted
from curate.options import fields
from curate.options.option import shared
from curate.policies.issues.options import IssuesOptions

if TYPE_CHECKING:
    from curate.policies.issues.policy import IssuesResult

N_PAIRS = 5  # maximum pairs of kinds shown


@command_of(IssuesOptions)
def run(
    request: IssuesOptions,
    output: Output,
    sheet: Annotated[
        Path | None, shared("--sheet", ": the worst of each kind, and groups unlike the rest, NAME.png")
    ] = None,
    source: fields.Source = None,
) -> NextCommand:
    """Report junk, dark, blurry and other unusual images, by kind.

    Example:

        curate issues scores.parquet
        curate issues scores.parquet --sheet issues.png --show 20
        curate issues scores.parquet --drop unusable -o clean.parquet
        curate issues scores.parquet --drop dark,blurry --drop-group 1 -o clean.parquet
        curate issues scores.parquet --only blurry --set blurry=0.2 --force blurry

    Drops only what --drop or --drop-group names. `--drop unusable` drops images that are unusable in every
    domain: one colour, pure noise, enlarged from a few pixels, or a placeholder. A kind that more than 10% of the
    images have describes the dataset and is switched off. `curate dedup` finds copies.
    """
    from curate.policies.issues.kinds import UNUSABLE_KINDS
    from curate.policies.issues.policy import run_issues

    if sheet is not None:
        from curate.sheets.picture import check_picture

        check_picture(sheet, overwrite=request.overwrite)
    result = run_issues(request)
    if sheet is not None:
        _draw(result, request, sheet, source)
    if output.json:
        emit(result.to_json())
    elif request.out is None or not output.quiet:
        _report(result, requested=request.out is None)
        if request.out is not None:
            say_files(result, dry_run=False)
        if sheet is not None:
            say(f"sheet: {sheet}")
    if request.out is None and not request.drop and not request.drop_group:
        if not any(result.kinds.get(name, {}).get("n") for name in UNUSABLE_KINDS):
            return suggest("report", request.table, "-o", unused("report.html"))
        return suggest("issues", request.table, "--drop", "unusable", "-o", unused("clean.parquet"))
    return after_policy(request, result, "clean.parquet")


def _report(result: "IssuesResult", *, requested: bool) -> None:
    from curate.policies.decided import uneven_notes

    line, table = printers(requested=requested)
    n = max(1, result.n_rows - result.failed)
    line(f"{counted(result.n_rows, 'row')}: {_coverage(result)}")
    rows = []
    for name, about in result.kinds.items():
        if about["n"] or "off" in about or name in result.dropped_by:
            median = "" if about["median"] is None else f"{about['median']:.3g}"
            rows.append((name, about["n"], f"{about['n'] / n:.1%}", f"{about['begins']:.3g}", median, _becomes(about)))
    if rows:
        table(rows, header=("kind", "rows", "share", "begins at", "median", ""), right=1)
    none = [name for name, about in result.kinds.items() if not about["n"] and "off" not in about]
    none = [name for name in none if name not in result.dropped_by and name not in result.not_looked]
    if none:
        line(f"none: {', '.join(none)}")
    off = [
        f"{name} {about['off']:,} ({about['off'] / n:.0%})" for name, about in result.kinds.items() if "off" in about
    ]
    if off:
        line(
            f"off, because so many images have them that they are its style: {', '.join(off)}; --force KIND flags them"
        )
    for text in _groups(result, n):
        line(text)
    if result.failed_by:
        line("not scored: " + ", ".join(f"{count:,} {status}" for status, count in result.failed_by.items()))
    for why, count in result.undecided_by.items():
        line(f"undecided: {count:,} {why}")
    if result.not_looked:
        line(f"not checked, because their columns are missing or empty: {', '.join(result.not_looked)}")
    if result.no_junk:
        line(f"no search for junk: {result.no_junk}")
    if result.overlaps:
        pairs = [f"{first} and {second} {count:,}" for first, second, count in result.overlaps[:N_PAIRS]]
        line(f"both: {', '.join(pairs)}")
    for why, examples in groupby(result.examples, key=itemgetter("why")):
        most = "most " if why in result.kinds else ""
        line(f"{most}{why}: {', '.join(example['key'] for example in examples)}")
    for text in uneven_notes(result):
        line(text)
    advice = "nothing was written: add --out" if result.dropped_by else "--drop KIND drops"
    shown = f"; {advice}" if requested or not result.dropped_by else ""
    line(f"kept {result.kept:,}, dropped {result.dropped:,}{shown}")


def _becomes(about: dict[str, object]) -> str:
    return "off" if "off" in about and not about["n"] else "dropped" if about["dropped"] else ""


def _groups(result: "IssuesResult", n: int) -> list[str]:
    """Return lines on the groups of images unlike the rest, and on next steps."""
    if not result.groups:
        return []
    many = f"{len(result.groups)} groups" if len(result.groups) > 1 else "1 group"
    lines = [f"{result.n_unlike:,} images in {many} look unlike the other {n - result.n_unlike:,}:"]
    for group in result.groups:
        near = group.get("nearest_cluster")
        text = f"  group {group['group']}: {counted(group['rows'], 'image')}"
        text += f", nearest to cluster {near}" if near is not None else ""
        text += "; dropped" if group["dropped"] else ""
        lines.append(text)
    if not any(group["dropped"] for group in result.groups):
        first = result.groups[0]["group"]
        lines.append(f"  view them with --sheet; to keep them, do nothing; to drop one, --drop-group {first}")
    return lines


def _coverage(result: "IssuesResult") -> str:
    """Return the number of rows with an issue, and of checked rows."""
    scored = result.n_rows - result.failed
    if not result.n_issues and not scored - result.undecided:
        return "none could be checked: " + ("no image was scored" if not scored else "none has quality columns")
    of = f" of {scored:,} that were scored" if result.failed else ""
    groups = f", {result.n_unlike:,} in groups unlike the rest" if result.n_unlike else ""
    return f"{result.n_issues:,}{of} with an issue ({result.n_issues / scored:.1%}){groups}"


def _draw(result: "IssuesResult", request: IssuesOptions, sheet: Path, source: str | None) -> None:
    """Draw the worst rows of each kind with their values, and images of each group unlike the rest."""
    from curate.policies.issues.kinds import GROUPS, KINDS
    from curate.sheets.picture import save_picture
    from curate.sheets.tiles import contact_sheet, refuse_too_many, tiles
    from curate.tables.table import open_table
    from scoring.errors import InputError

    if not result.worst:
        raise InputError("no row has an issue: there is nothing to draw; leave out --sheet")
    drawn = {name: rows for name, rows in result.worst.items() if name != GROUPS}
    sections = [(name, name, rows) for name, rows in drawn.items()]
    sections += [(f"group {each['group']}", GROUPS, each["examples"]) for each in result.groups]
    refuse_too_many(sum(len(rows) for _, _, rows in sections))
    opened = open_table(request.table, require=["key"])
    cells = []
    for title, name, rows in sections:
        about = result.kinds[name]
        pictures = tiles(opened, rows, KINDS[name].columns[0], source=source)
        words = f"{title}: the worst {len(rows)} of {about['n']:,}; begins at {about['begins']:.3g}"
        if name == GROUPS:
            size = next(each["rows"] for each in result.groups if f"group {each['group']}" == title)
            words = f"unlike the rest, {title}: {len(rows)} of {size:,}"
        cells.append((words, [pictures[row] for row in rows]))
    save_picture(contact_sheet(cells, columns=10, fewest=5), sheet, overwrite=request.overwrite)
