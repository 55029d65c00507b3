"""``curate retrieve``: similar images, with the certainty of each match."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, Output, emit, print_lines, show, show_table, suggest, unused
from curate.options.option import shared
from curate.options.values import several
from curate.retrieval.options import RetrieveOptions

MOST_EXAMPLES = 5  # queries in the next command


@command_of(RetrieveOptions)
def run(
    request: RetrieveOptions,
    output: Output,
    sheet: Annotated[Path | None, shared("--sheet", ": queries and what they found, NAME.png")] = None,
    source: options.SheetSource = None,
) -> NextCommand:
    """Find similar images, with the certainty of each match.

    Example:

        curate retrieve scores.parquet photo.jpg --top 5 --sheet found.png
        curate retrieve scores.parquet dogs/017.jpg new/ --reject 10% -o answers.csv
        curate retrieve scores.parquet new.parquet --credible 0.95 --calibrate label -o answers.parquet

    If a query is a row of the table, this row is not an answer. The output has the state of every query, such as
    answered or rejected.
    """
    from curate.retrieval.run import run_retrieve

    if sheet is not None:
        from curate.sheets.picture import check_picture
        from curate.tables.images import require_images
        from curate.tables.table import open_table
        from scoring.atomic import require_folder

        check_picture(sheet, overwrite=request.overwrite)
        require_folder(sheet)
        require_images(open_table(request.table, require=["key"]), source)
    answers = run_retrieve(replace(request, announce=output.announce))
    if sheet is not None:
        from curate.sheets.answers import answer_sheet
        from curate.sheets.picture import save_picture
        from scoring.errors import InputError

        if sheet.resolve() in {Path(name).resolve() for name in answers.queries.names}:
            raise InputError(f"{sheet} is a query, and would be overwritten; choose another name for --sheet")
        save_picture(answer_sheet(answers, source), sheet, overwrite=request.overwrite)
    if output.json:
        emit(answers.to_json())
    else:
        print_lines(answers.lines(), show, show_table)
        for note in answers.notes:
            output.note(f"note: {note}")
        output.written(answers=request.out, sheet=sheet)
    table = next((query for query in several(request.queries) if str(query).endswith(".parquet")), None)
    if table is not None:
        against = [] if str(table) == str(request.table) else ["--against", request.table]
        return suggest("dedup", table, *against, "-o", unused("unique.parquet"))
    words = [word for name in answers.queries.names[:MOST_EXAMPLES] for word in ("--unlike", name)]
    words += [] if request.model is None else ["--model", str(request.model)]
    return suggest("filter", request.table, *words, "-o", unused("kept.parquet"))
