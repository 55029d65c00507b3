"""``curate plot``: a chart of a table for papers, and its numbers."""

from dataclasses import replace

from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, Output, emit, suggest, unused
from curate.reporting.plots.options import PlotOptions
from curate.reporting.plots.table import KINDS


@command_of(PlotOptions)
def run(request: PlotOptions, output: Output) -> NextCommand:
    """Draw a chart of a table, for papers.

    Example:

        curate plot scores.parquet histogram -o histogram.svg
        curate plot scores.parquet histogram --column kappa_visimsiam --per label -o classes.pdf
        curate plot scores.parquet abstained-accuracy --label label -o abstained.svg
        curate plot scores.parquet risk-coverage --label label --json

    {kinds}

    All charts have a style that colour-blind readers can read, and the text of an SVG remains text. The same input
    gives the same bytes. --json prints the plotted numbers, with or without -o. Accuracies are as in `curate evaluate`,
    on the same rows and with the same resamples.
    """
    from curate.reporting.plots.plot import run_plot
    from scoring.errors import InputError

    if request.out is None and not output.json:
        raise InputError("expected -o NAME.png, .svg or .pdf, or --json for the numbers alone, got neither; add one")
    drawn = run_plot(replace(request, announce=output.note))
    for note in drawn.numbers.notes:
        output.note(note)
    if output.json:
        emit(drawn.to_json())
    output.written(image=request.out)
    return suggest("report", request.table, "-o", unused("report.html"))


def _kinds() -> str:
    """Return the kinds as lines of the help."""
    width = max(map(len, KINDS))
    return "\b\n" + "\n".join(f"    {name:{width}}  {kind.shows}; of {kind.needs}" for name, kind in KINDS.items())


run.__doc__ = (run.__doc__ or "").replace("{kinds}", _kinds().replace("\n    ", "\n        "))
