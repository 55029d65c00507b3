"""``curate fit``: a score that is fitted to the heap."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curate.commands import options
from curate.commands.report import emit, say, say_table
from curate.counted import counted

if TYPE_CHECKING:
    from curate.fitting.result import FitResult

MOST_TOLD = 12  # classes or clusters in the report


def run(
    table: options.Table,
    out: Annotated[
        Path | None, options.shared("--out", ": the model, NAME.safetensors, for images that come later")
    ] = None,
    apply: Annotated[
        Path | None,
        typer.Option("--apply", metavar="FILE", help="Also write the table with the columns.", show_default=False),
    ] = None,
    fitted: Annotated[
        Path | None,
        typer.Option(
            "--fitted", metavar="FILE", help="Apply this model, fitted before, in place of fitting.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None, options.shared("--model", ": the one that scored the table; found by itself if it ships")
    ] = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit a score to the heap that a table holds; no image is read.

    Example:

    \b
        curate fit scores.parquet --apply fitted.parquet
        curate fit scores.parquet -o fitted.safetensors
        curate score more/ --model fitted.safetensors -o more.parquet

    unc_fitted is high for junk, and below that for what the heap cannot tell: images far from all others that are no
    copies, among images of other kinds. filter, select and sheet go by it where it is there. `curate score` ends with
    this by itself; fit it here for a model that scores new images by the same heap, or after rows came together.
    """
    from curate.fitting.fit import fit

    line = (lambda text: None) if quiet else say
    result = fit(
        table, out, apply=apply, fitted=fitted, model=model, seed=seed, overwrite=overwrite, report=line
    )  # fmt: skip
    if json_:
        emit(result.to_json())
    elif not quiet:
        _report(result)


def _report(result: "FitResult") -> None:
    from curate.fitting.shares import KEPT, uneven

    for note in result.notes:
        say(note)
    say(f"what keeping the surest {KEPT:.0%} by unc_fitted takes of each {result.kind}:")
    rows = [(each.name, each.rows, each.taken, f"{each.taken / each.rows:.0%}") for each in result.shares[:MOST_TOLD]]
    say_table(rows, header=(result.kind, "rows", "taken", "share"), right=1)
    if len(result.shares) > MOST_TOLD:
        say(f"and {len(result.shares) - MOST_TOLD:,} more")
    for each in uneven(result.shares)[:3]:
        say(f"{result.kind} {each.name} would lose {each.taken / each.rows:.0%}: rare is not bad; see --per")
    keeps = f"{counted(result.references, 'row')} to compare with, {result.n_bytes / 1e6:,.1f} MB"
    if result.path is not None:
        say(f"model: {result.path} ({keeps})")
    if result.applied is not None:
        say(f"table: {result.applied}")
