"""``curate sheet``: a picture of the most and the least certain images."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curate.commands import options
from curate.commands.printing import emit, say
from curate.counted import counted

if TYPE_CHECKING:
    from curate.display.rank import Cut, Extremes

ENDS = {"less certain": "least certain, ", "more certain": "most certain, "}
OPPOSITE = {"less certain": "more certain", "more certain": "less certain"}
FRAMES = {"keep": "green", "drop": "red", "undecided": "orange", "failed": "gray"}


def run(
    table: options.Table,
    out: Annotated[Path, options.shared("--out", ": the picture, NAME.png")],
    source: options.Source = None,
    root: options.SourceRoot = None,
    key: options.SourceKey = None,
    path_column: options.SourcePathColumn = None,
    image_column: options.SourceImageColumn = None,
    column: Annotated[
        str | None,
        options.shared("--column", " to sort by; by default unc_fitted, else that of the model's own method"),
    ] = None,
    top: Annotated[int, options.shared("--top", ": pictures", min=0, show_default=True)] = 30,
    bottom: Annotated[int, typer.Option(min=0, help="Pictures with the lowest values.")] = 30,
    columns: Annotated[int, typer.Option(min=1, max=100, help="Pictures a row.")] = 10,
    decisions: Annotated[
        Path | None,
        typer.Option(
            help="Also both sides of the cut, by NAME.decisions.parquet of curate filter: green stays, red goes.",
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
    from curate.display.picture import check_picture, save_picture
    from curate.display.rank import around_cut, extremes
    from curate.display.sheet import contact_sheet, refuse_too_many
    from curate.display.tiles import tiles
    from curate.manifest import SourceOptions
    from curate.tables.table import open_table
    from scoring.errors import InputError

    check_picture(out, overwrite=overwrite)
    opened = open_table(table, require=["key"])
    found = extremes(opened, column, top=top, bottom=bottom)
    if not found.top and not found.bottom:
        raise InputError(
            f"expected rows with a value in {found.column} and --top or --bottom above 0, got none to draw"
        )
    cut = None if decisions is None else around_cut(opened, open_table(decisions), found.top + found.bottom)
    sections = [*_ends(found), *([] if cut is None else _sides(cut))]
    rows = [row for _, each in sections for row in each]
    refuse_too_many(len(rows))
    where = SourceOptions(root=root, key=key, path_column=path_column, image_column=image_column)
    frames = {} if cut is None else {row: FRAMES[decision] for row, decision in cut.decision.items()}
    pictures = tiles(opened, rows, found.column, source=source, options=where, frames=frames)
    drawn = contact_sheet(
        [(title, [pictures[row] for row in each]) for title, each in sections if each], columns=columns
    )
    save_picture(drawn, out, overwrite=overwrite)
    if json_:
        emit({"picture": str(out), "column": found.column, "sections": {name: len(each) for name, each in sections}})
    elif not quiet:
        ends = [f"{len(each):,} {name}" for each, name in ((found.top, "highest"), (found.bottom, "lowest")) if each]
        say(f"{' and '.join(ends)} of {found.column}: {out}")
        shown = how_to_show(out, os.environ)
        if shown is not None and sys.stderr.isatty():
            say(f"this terminal shows it: {shown}")


def how_to_show(picture: Path, environment: Mapping[str, str]) -> str | None:
    """Return the command line that shows a picture in the terminal that one sits at; None where none is known."""
    by_program = {"iTerm.app": "imgcat", "WezTerm": "wezterm imgcat", "ghostty": "kitten icat"}
    program = by_program.get(environment.get("TERM_PROGRAM", ""))
    if "KITTY_WINDOW_ID" in environment:
        program = "kitten icat"
    if program is None and "sixel" in environment.get("TERM", ""):
        program = "img2sixel"
    return None if program is None else f"{program} {shlex.quote(str(picture))}"


def _ends(found: "Extremes") -> list[tuple[str, list[int]]]:
    """Headings with their rows: both ends of a column, in words where it says how certain a row is."""
    from curate.columns import describe
    from curate.display.rank import RANK

    if found.column == RANK:
        return [(f"the first {len(found.bottom):,} of {counted(found.n, 'row')} by rank", found.bottom)]
    high = describe(found.column).higher
    sides = (("highest", found.top, high), ("lowest", found.bottom, OPPOSITE.get(high, "")))
    return [
        (f"{ENDS.get(word, '')}{side} {found.column}: {len(rows):,} of {counted(found.n, 'row')}", rows)
        for side, rows, word in sides
    ]


def _sides(cut: "Cut") -> list[tuple[str, list[int]]]:
    return [
        (f"just dropped: the nearest to the cut of {counted(cut.n_dropped, 'dropped row')}", cut.dropped),
        (f"just kept: the nearest to the cut of {counted(cut.n_kept, 'kept row')}", cut.kept),
    ]
