"""``curate report``: one page of what the scores and policies found."""

import json
from pathlib import Path
from typing import Annotated

import typer

from curate.commands import options
from curate.commands.printing import say
from curate.counted import counted

Results = Annotated[
    list[Path] | None,
    typer.Argument(
        help="What policies made of it: subsets, decisions, receipts, or the folder of a pipeline.",
        show_default=False,
    ),
]
Column = Annotated[
    str | None, options.shared("--column", " that rows are sorted by; by default unc_fitted, else the model's own")
]
Label = Annotated[str | None, options.shared("--label", ", by default label where there is one")]
Sample = Annotated[int, options.shared("--sample", ", and list them", min=1, show_default=True)]
Points = Annotated[int, typer.Option(min=0, help="Rows on the map, for which the extra map is needed; 0: no map.")]
Findings = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Also write kept rows with a finding, by kind, the largest consequence first: a CSV and contact sheets.",
        show_default=False,
    ),
]
Measured = Annotated[Path | None, typer.Option(help="Show what curate evaluate wrote with -o too.", show_default=False)]


def run(
    table: options.Table,
    results: Results = None,
    out: Annotated[Path | None, options.shared("--out", ": the page, NAME.html")] = None,
    column: Column = None,
    label: Label = None,
    source: options.Source = None,
    sample: Sample = 20_000,
    thumbs: Annotated[int, typer.Option(min=0, help="Thumbnails at most.")] = 1_000,
    points: Points = 5_000,
    measured: Measured = None,
    findings: Findings = None,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show a table on one page: scores, funnel, images, a map.

    The page is one file that opens from disk, without a network. Counts are of all rows; of a large table a sample is
    listed.

    Example:

    \b
        curate report scores.parquet -o report.html
        curate report scores.parquet kept.parquet -o report.html
        curate report scores.parquet kept.parquet --findings review -o report.html
        curate report scores.parquet alone.parquet --source images.parquet --measured worth.json -o report.html

    Of several policies the last is enough: those between it and the table are found by their receipts. With --json
    the facts are printed, without thumbnails.
    """
    arguments = dict(locals())
    from curate.facts.write import report
    from scoring.errors import InputError

    if out is None and not json_:
        raise InputError("expected a name for the page (-o report.html), got none; or print the facts with --json")
    made = report(**options.accepted(report, arguments))
    if json_:
        typer.echo(json.dumps(made.facts(), ensure_ascii=True, allow_nan=False))
    if quiet:
        return
    for note in made.notes():
        say(note)
    if findings is not None:
        say(f"findings: {findings}")
    if made.path is not None:
        shown = sum(each >= 0 for each in made.document["thumbs"]["of"])
        say(f"report: {made.path}: {counted(made.document['rows']['n'], 'row')} listed, {shown:,} thumbnails, "
            f"{made.n_bytes / 1e6:,.1f} MB")  # fmt: skip
