"""``curate sheet``: an image of the most and the least certain images."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from curate.commands import options
from curate.commands.printing import emit, say


def run(
    table: options.Table,
    out: Annotated[Path, options.shared("--out", ": the image, NAME.png")],
    source: options.Source = None,
    column: Annotated[
        str | None,
        options.shared("--column", " to sort by; by default unc_fitted, else the column of the model's method"),
    ] = None,
    top: Annotated[int, options.shared("--top", ": images", min=0, show_default=True)] = 30,
    bottom: Annotated[int, typer.Option(min=0, help="Images with the lowest values.")] = 30,
    decisions: Annotated[
        Path | None,
        typer.Option(
            help="Also both sides of the cut, from NAME.decisions.parquet of curate filter: kept green, dropped red.",
            show_default=False,
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw a contact sheet: the highest and the lowest of a column.

    Example:

    \b
        curate sheet scores.parquet -o sheet.png
        curate sheet scores.parquet --source images.parquet --top 50 --bottom 50 -o sheet.png
        curate sheet scores.parquet --decisions kept.decisions.parquet -o cut.png

    A table with ranks and no score, such as the batch of a round, is drawn in the order of its ranks.
    """
    arguments = dict(locals())
    from curate.display.contact import sheet

    drawn = sheet(**options.accepted(sheet, arguments))
    if json_:
        emit(drawn.to_json())
    elif not quiet:
        ends = [f"{n:,} {name}" for n, name in ((drawn.top, "highest"), (drawn.bottom, "lowest")) if n]
        say(f"{' and '.join(ends)} of {drawn.column}: {out}")
        shown = how_to_show(out, os.environ)
        if shown is not None and sys.stderr.isatty():
            say(f"this terminal shows it: {shown}")


def how_to_show(picture: Path, environment: Mapping[str, str]) -> str | None:
    """Return the command line that shows an image in the terminal that one sits at; None where none is known."""
    by_program = {"iTerm.app": "imgcat", "WezTerm": "wezterm imgcat", "ghostty": "kitten icat"}
    program = by_program.get(environment.get("TERM_PROGRAM", ""))
    if "KITTY_WINDOW_ID" in environment:
        program = "kitten icat"
    if program is None and "sixel" in environment.get("TERM", ""):
        program = "img2sixel"
    return None if program is None else f"{program} {shlex.quote(str(picture))}"
