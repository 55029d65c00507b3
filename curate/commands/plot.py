"""``curate plot``: an image of a table for papers, and the numbers behind it."""

from pathlib import Path
from typing import Annotated

import typer

from curate.commands import options
from curate.commands.complete import OFFERED
from curate.commands.printing import emit, say
from curate.plots.table import KINDS

Kind = Annotated[str, typer.Argument(help=", ".join(KINDS) + ".", autocompletion=OFFERED["KIND"])]


def run(
    table: options.Table,
    kind: Kind,
    out: Annotated[Path | None, options.shared("--out", ": NAME.png, .svg or .pdf")] = None,
    column: Annotated[
        list[str] | None, options.shared("--column", " (repeatable). [default: every kappa_* and unc_*]")
    ] = None,
    per: Annotated[str | None, options.shared("--per", ", each with its colour or line")] = None,
    label: Annotated[str | None, options.shared("--label", ", in --labelled or in the table")] = None,
    labelled: options.Labelled = None,
    right: Annotated[
        str | None,
        typer.Option(help="Column that says whether your own prediction is right: 1 or 0.", show_default=False),
    ] = None,
    prediction: Annotated[
        str | None,
        typer.Option(
            help="What predicts labels: linear, neighbour or kNN. [default: the first that there is]",
            show_default=False,
        ),
    ] = None,
    embedding: options.Embedding = None,
    title: Annotated[str, typer.Option(help="Over the image; papers say it beneath.", show_default=False)] = "",
    width: Annotated[float, typer.Option(help="In mm: a column of a journal has 89, its page 183.")] = 89.0,
    repeats: Annotated[
        int, options.shared("--repeats", ": bootstrap resamples of the bands", show_default=True)
    ] = 1000,
    sample: Annotated[int | None, options.shared("--sample")] = None,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw an image of a table, for papers.

    Example:

    \b
        curate plot scores.parquet histogram -o histogram.svg
        curate plot scores.parquet histogram --column kappa_visimsiam --per label -o classes.pdf
        curate plot scores.parquet abstained-accuracy --label label -o abstained.svg
        curate plot report.json degradation -o worse.svg
        curate plot report.json strengths -o strengths.svg
        curate plot scores.parquet risk-coverage --label label --json

    {kinds}

    All have one style, which colour-blind readers can read, and the text of an SVG stays text. The same input gives
    the same bytes. --json prints the numbers behind an image, with or without -o. Accuracies are as in
    `curate evaluate`, on the same rows and with the same resamples.
    """
    arguments = dict(locals())
    from curate.plots.plot import plot
    from scoring.errors import InputError

    if out is None and not json_:
        raise InputError("expected -o NAME.png, .svg or .pdf, or --json for the numbers alone, got neither; add one")
    said = (lambda text: None) if quiet else say
    drawn = plot(**options.accepted(plot, arguments), announce=said)
    for note in drawn.numbers.notes:
        said(note)
    if json_:
        emit(drawn.to_json())
    if out is not None:
        said(f"image: {out}")


def _kinds() -> str:
    """The kinds as lines of the help."""
    wide = max(map(len, KINDS))
    return "\b\n" + "\n".join(f"    {name:{wide}}  {kind.shows}; of {kind.needs}" for name, kind in KINDS.items())


run.__doc__ = (run.__doc__ or "").replace("{kinds}", _kinds().replace("\n    ", "\n        "))
