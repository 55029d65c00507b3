"""``curate sheet``: an image of the most and least certain rows."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, Output, emit, say, suggest, unused
from curate.sheets.options import SheetOptions


@command_of(SheetOptions)
def run(request: SheetOptions, output: Output) -> NextCommand:
    """Draw a contact sheet of the highest and lowest rows of a column.

    Example:

        curate sheet scores.parquet -o sheet.png
        curate sheet scores.parquet --source images.parquet --top 50 --bottom 50 -o sheet.png
        curate sheet scores.parquet --decisions kept.decisions.parquet -o cut.png

    A table with ranks but without scores, such as the batch of a round, is drawn in the order of its ranks.
    """
    from curate.sheets.contact import run_sheet

    drawn = run_sheet(request)
    if output.json:
        emit(drawn.to_json())
    elif not output.quiet:
        ends = [f"{n:,} {name}" for n, name in ((drawn.top, "highest"), (drawn.bottom, "lowest")) if n]
        say(f"{' and '.join(ends)} of {drawn.column}: {request.out}")
        shown = how_to_show(drawn.image, os.environ)
        if shown is not None and sys.stderr.isatty():
            say(f"this terminal shows it: {shown}")
    return suggest("report", request.table, "-o", unused("report.html"))


def how_to_show(picture: Path, environment: Mapping[str, str]) -> str | None:
    """Return the command that shows an image in this terminal; None if none is known."""
    by_program = {"iTerm.app": "imgcat", "WezTerm": "wezterm imgcat", "ghostty": "kitten icat"}
    program = by_program.get(environment.get("TERM_PROGRAM", ""))
    if "KITTY_WINDOW_ID" in environment:
        program = "kitten icat"
    if program is None and "sixel" in environment.get("TERM", ""):
        program = "img2sixel"
    return None if program is None else f"{program} {shlex.quote(str(picture))}"
