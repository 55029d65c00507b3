"""``curate retrieve``: images that are like some, with how certain either is."""

from pathlib import Path
from typing import Annotated

import typer

from curate.commands import options
from curate.commands.complete import columns
from curate.commands.printing import emit, print_lines, say, show, show_table


def run(
    table: options.Table,
    queries: Annotated[
        list[str],
        typer.Argument(metavar="QUERY...", help="Keys of the table, images, folders of images, or scored tables."),
    ],
    out: Annotated[Path | None, options.shared("--out", ": the answers, NAME.parquet, .csv or .jsonl")] = None,
    table_rows: Annotated[
        Path | None, typer.Option(help="What became of every row of the table, too.", show_default=False)
    ] = None,
    top: Annotated[
        int | None, options.shared("--top", ": rows of each query, by cosine. [default: 10, or all inside]")
    ] = None,
    credible: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Give all rows in the region that holds what a query shows with this probability: more where it "
            "is unsure.",
            show_default=False,
        ),
    ] = None,
    calibrate: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Classes on which these regions are calibrated: the probability holds for a row of the query's class.",
            show_default=False,
            autocompletion=columns,
        ),
    ] = None,
    reject: Annotated[
        str | None,
        typer.Option(
            metavar="CUT",
            help="Do not answer queries less certain than the last 10% of the table, or than a value.",
            show_default=False,
        ),
    ] = None,
    clean: Annotated[
        str | None,
        typer.Option(metavar="CUT", help="Do not find rows less certain than that, too.", show_default=False),
    ] = None,
    certainty: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="What says how certain an image is: kappa_*, unc_*, or max:COLUMN, min:COLUMN. [default: unc_fitted "
            "for rows of the table, or with a fitted --model; else the model's own]",
            show_default=False,
            autocompletion=columns,
        ),
    ] = None,
    model: Annotated[
        str | None, options.shared("--model", ", for images: the table's, or what curate fit made of it")
    ] = None,
    embedding: options.Embedding = None,
    seed: options.Seed = 0,
    sheet: Annotated[Path | None, options.shared("--sheet", ": queries and what they found, NAME.png")] = None,
    source: Annotated[str | None, options.shared("--source", ", for --sheet, where the table holds no path")] = None,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the images like one, and how certain each match is.

    Example:

    \b
        curate retrieve scores.parquet photo.jpg --top 5 --sheet found.png
        curate retrieve scores.parquet dogs/017.jpg new/ --reject 10% --clean 10% -o answers.csv
        curate retrieve scores.parquet new.parquet --credible 0.95 --calibrate label -o answers.parquet

    A row of the table is not its own answer. Every query and every row is accounted for: answered, rejected, cleaned
    away, or why not.
    """
    arguments = dict(locals())
    from curate.retrieval.run import retrieve

    if sheet is not None:
        from curate.display.picture import check_picture
        from curate.tables.images import require_images
        from curate.tables.table import open_table
        from scoring.atomic import require_folder

        check_picture(sheet, overwrite=overwrite)
        require_folder(sheet)
        require_images(open_table(table, require=["key"]), source)
    answers = retrieve(**options.accepted(retrieve, arguments), announce=(lambda text: None) if quiet or json_ else say)
    if sheet is not None:
        from curate.display.answers import answer_sheet
        from curate.display.picture import save_picture
        from scoring.errors import InputError

        if sheet.resolve() in {Path(name).resolve() for name in answers.queries.names}:
            raise InputError(f"{sheet} is a query, and would be written over; choose another name for --sheet")
        save_picture(answer_sheet(answers, source), sheet, overwrite=overwrite)
    if json_:
        emit(answers.to_json())
        return
    print_lines(answers.lines(), show, show_table)
    for note in answers.notes if not quiet else ():
        say(f"note: {note}")
    for name, path in (("answers", out), ("rows", table_rows), ("sheet", sheet)):
        if path is not None and not quiet:
            say(f"{name}: {path}")
