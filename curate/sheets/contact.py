"""`curate.sheet`: a contact sheet of both ends of a column, or of both sides of a filter's threshold."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.columns import describe
from curate.counted import counted
from curate.options.function import callable_of
from curate.sheets.options import SheetOptions
from curate.sheets.picture import check_picture, save_picture
from curate.sheets.rank import RANK, Cut, Extremes, around_cut, extremes
from curate.sheets.tiles import contact_sheet, refuse_too_many, tiles
from curate.tables.table import open_table
from scoring.errors import InputError

COLUMNS = 10  # images a row
ENDS = {"less certain": "least certain, ", "more certain": "most certain, "}
OPPOSITE = {"less certain": "more certain", "more certain": "less certain"}
FRAMES = {"keep": "green", "drop": "red", "undecided": "orange", "failed": "gray"}


@dataclass(frozen=True)
class SheetResult:
    """The result of drawing a contact sheet.

    Attributes:
        image: the file.
        column: the column of the sheet.
        top: images with the highest values.
        bottom: images with the lowest values.
        sections: heading -> number of images.
    """

    image: Path
    column: str
    top: int
    bottom: int
    sections: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return {"image": str(self.image), "column": self.column, "sections": self.sections}


def run_sheet(options: SheetOptions) -> SheetResult:
    """Draw a contact sheet of the highest and lowest values of a column.

    Raises:
        InputError: for an unusable table, column or output, or without any image to draw.
    """
    out = Path(options.out)
    check_picture(out, overwrite=options.overwrite)
    opened = open_table(options.table, require=["key"])
    ends = extremes(opened, options.column, top=options.top, bottom=options.bottom)
    if not ends.top and not ends.bottom:
        raise InputError(
            f"expected rows with a value in {ends.column} and --top or --bottom above 0, got none to draw; "
            "choose another --column"
        )
    decided = None if options.decisions is None else open_table(options.decisions)
    cut = None if decided is None else around_cut(opened, decided, ends.top + ends.bottom)
    sections = [*_ends(ends), *([] if cut is None else _sides(cut))]
    rows = [row for _, each in sections for row in each]
    refuse_too_many(len(rows))
    frames = {} if cut is None else {row: FRAMES[decision] for row, decision in cut.decision.items()}
    pictures = tiles(opened, rows, ends.column, source=options.source, frames=frames)
    drawn = contact_sheet(
        [(title, [pictures[row] for row in each]) for title, each in sections if each], columns=COLUMNS
    )
    save_picture(drawn, out, overwrite=options.overwrite)
    counts = {name: len(each) for name, each in sections}
    return SheetResult(out, ends.column, len(ends.top), len(ends.bottom), counts)


sheet = callable_of(SheetOptions, run_sheet)


def _ends(ends: Extremes) -> list[tuple[str, list[int]]]:
    """Return headings with their rows for both ends of a column, named by certainty if it is a score."""
    if ends.column == RANK:
        return [(f"the first {len(ends.bottom):,} of {counted(ends.n, 'row')} by rank", ends.bottom)]
    high = describe(ends.column).higher
    sides = (("highest", ends.top, high), ("lowest", ends.bottom, OPPOSITE.get(high, "")))
    return [
        (f"{ENDS.get(word, '')}{side} {ends.column}: {len(rows):,} of {counted(ends.n, 'row')}", rows)
        for side, rows, word in sides
    ]


def _sides(cut: Cut) -> list[tuple[str, list[int]]]:
    return [
        (f"just dropped: the nearest to the cut of {counted(cut.n_dropped, 'dropped row')}", cut.dropped),
        (f"just kept: the nearest to the cut of {counted(cut.n_kept, 'kept row')}", cut.kept),
    ]
