"""``curate sheet``: a picture of the most and the least certain images."""

from pathlib import Path
from typing import Annotated

import typer

from curate.commands import options
from curate.commands.report import emit, say


def run(
    table: options.Table,
    out: Annotated[Path, options.shared("--out", ": the picture, NAME.png")],
    source: options.Source = None,
    root: options.SourceRoot = None,
    key: options.SourceKey = None,
    path_column: options.SourcePathColumn = None,
    image_column: options.SourceImageColumn = None,
    column: Annotated[
        str | None, options.shared("--column", " to sort by; by default that of the model's own method")
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Pictures with the highest values.")] = 30,
    bottom: Annotated[int, typer.Option(min=0, help="Pictures with the lowest values.")] = 30,
    columns: Annotated[int, typer.Option(min=1, max=100, help="Pictures a row.")] = 10,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw a contact sheet: the highest and the lowest of a column.

    Example:

    \b
        curate sheet scores.parquet -o sheet.png
        curate sheet scores.parquet --source images.parquet --top 50 --bottom 50 -o sheet.png
    """
    from curate.manifest import SourceOptions
    from curate.report.picture import check_picture, save_picture
    from curate.report.rank import extremes
    from curate.report.sheet import contact_sheet, refuse_too_many
    from curate.report.tiles import tiles
    from curate.tables.table import open_table
    from scoring.errors import InputError

    check_picture(out, overwrite=overwrite)
    opened = open_table(table, require=["key"])
    found = extremes(opened, column, top=top, bottom=bottom)
    if not found.top and not found.bottom:
        raise InputError(
            f"expected rows with a value in {found.column} and --top or --bottom above 0, got none to draw"
        )
    refuse_too_many(len(found.top) + len(found.bottom))
    where = SourceOptions(root=root, key=key, path_column=path_column, image_column=image_column)
    pictures = tiles(opened, [*found.top, *found.bottom], found.column, source=source, options=where)
    sections = [
        (f"highest {found.column}", [pictures[row] for row in found.top]),
        (f"lowest {found.column}", [pictures[row] for row in found.bottom]),
    ]
    save_picture(
        contact_sheet([section for section in sections if section[1]], columns=columns), out, overwrite=overwrite
    )
    if json_:
        emit({"picture": str(out), "column": found.column, "highest": len(found.top), "lowest": len(found.bottom)})
    elif not quiet:
        say(f"{len(found.top)} highest and {len(found.bottom)} lowest of {found.column}: {out}")
