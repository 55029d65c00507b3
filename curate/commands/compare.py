"""``curate compare``: the differences of two tables, and whether they are significant."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import (
    EXIT_GATE,
    NextCommand,
    Output,
    check_report,
    emit,
    print_lines,
    show,
    show_table,
    suggest,
    write_json,
)
from curate.evaluation.comparison.options import CompareOptions
from curate.options import fields
from curate.options.option import Option, shared

if TYPE_CHECKING:
    from curate.evaluation.comparison.results import TableComparison


@command_of(CompareOptions)
def run(
    request: CompareOptions,
    output: Output,
    sheet: Annotated[Path | None, shared("--sheet", ": rows and clusters side by side, NAME.png")] = None,
    source: options.SheetSource = None,
    other_source: Annotated[str | None, Option("The scored source of the other table.", default=False)] = None,
    out: options.Everything = None,
    overwrite: fields.Overwrite = False,
) -> NextCommand:
    """Compare two tables: columns, embeddings, and what one lacks.

    Example:

        curate compare train.parquet production.parquet
        curate compare scores.parquet kept.parquet --sheet compared.png
        curate compare train.parquet production.parquet --fail-above 0.6 --json

    All p values are from permutation tests that keep rows of both tables in both, and are adjusted for the number of
    columns or clusters. Exit code 0: compared; 3: the gate of --fail-above failed; 1: an error.
    """
    from curate.evaluation.comparison.run import run_compare
    from curate.sheets.picture import check_picture
    from scoring.atomic import require_folder

    check_report(out, overwrite=overwrite)
    if sheet is not None:
        check_picture(sheet, overwrite=overwrite)
        require_folder(sheet)
        _require_images(request.table, source, request.other, other_source)
    comparison = run_compare(replace(request, announce=output.announce))
    if out is not None:
        write_json(comparison.to_json(), out, overwrite=overwrite)
    if sheet is not None:
        _draw(comparison, sheet, (source, other_source), overwrite)
    if output.json:
        emit(comparison.to_json())
    else:
        print_lines(comparison.lines(), show, show_table)
    output.written(report=out, sheet=sheet)
    words = ("--against", request.other, "--only-against", "--dry-run")
    return suggest("dedup", request.table, *words, code=EXIT_GATE if comparison.failed else 0)


def _require_images(table: str | Path, source: str | None, other: str | Path, other_source: str | None) -> None:
    from curate.tables.images import require_images
    from curate.tables.table import open_table

    for path, where in ((table, source), (other, other_source)):
        require_images(open_table(path, require=["key"]), where)


def _draw(comparison: "TableComparison", sheet: Path, sources: tuple[str | None, str | None], overwrite: bool) -> None:
    from curate.sheets.compared import comparison_sheet
    from curate.sheets.picture import save_picture
    from curate.tables.table import open_table

    tables = open_table(comparison.tables[0]), open_table(comparison.tables[1])
    save_picture(comparison_sheet(comparison, tables, sources), sheet, overwrite=overwrite)
