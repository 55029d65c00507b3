"""``curate report``: scores and policies on one page."""

import json

import typer

from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, Output, suggest
from curate.counted import counted
from curate.options.values import several
from curate.reporting.options import ReportOptions


@command_of(ReportOptions)
def run(request: ReportOptions, output: Output) -> NextCommand:
    """Show a table on one page: scores, funnel, images, a map.

    The page is a single file that works offline. Counts cover all rows; for a large table, the list is a sample.

    Example:

        curate report scores.parquet -o report.html
        curate report scores.parquet kept.parquet -o report.html
        curate report scores.parquet kept.parquet --findings review -o report.html
        curate report scores.parquet alone.parquet --source images.parquet --measured worth.json -o report.html

    For a chain of policies, name only the last: the others are found by their receipts. --json prints the facts without
    thumbnails.
    """
    from curate.reporting.write import run_report
    from scoring.errors import InputError

    if request.out is None and not output.json:
        raise InputError("expected a name for the page (-o report.html), got none; or print the facts with --json")
    result = run_report(request)
    if output.json:
        typer.echo(json.dumps(result.facts(), ensure_ascii=True, allow_nan=False))
    for note in result.notes():
        output.note(note)
    if request.findings is not None:
        output.note(f"findings: {request.findings}")
    if result.path is not None:
        shown = sum(each >= 0 for each in result.document["thumbs"]["of"])
        output.note(
            f"report: {result.path}: {counted(result.document['rows']['n'], 'row')} listed, {shown:,} thumbnails, "
            f"{result.n_bytes / 1e6:,.1f} MB"
        )
    return suggest("review", request.table, *several(request.results), *_of_source(request.source))


def _of_source(source: str | None) -> list[str]:
    return [] if source is None else ["--source", source]
