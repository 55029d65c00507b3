"""``curate selftest``: whether scores mean what they claim, on the user's own images."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import (
    NextCommand,
    Output,
    check_report,
    emit,
    print_lines,
    show,
    show_table,
    suggest,
    unused,
    write_json,
)
from curate.options import fields
from curate.options.option import shared
from curate.selftests.options import SelftestOptions


@command_of(SelftestOptions)
def run(
    request: SelftestOptions,
    output: Output,
    plot: Annotated[Path | None, shared("--plot", ": how certainty falls as images get worse", metavar="FILE")] = None,
    out: options.Everything = None,
    overwrite: fields.Overwrite = False,
) -> NextCommand:
    """Test whether scores behave like uncertainties on your images.

    Blur, noise, zoom, a grey box, recompression and darkness must make every score less certain, increasingly so with
    their strength. A copy must be the nearest neighbour of its image. Batches, order, other images, device, engine and
    precision must not change a score beyond a stated tolerance. With labels, a score must be better than chance. X
    marks a failed check and sets exit code 1; ? marks a check that needs more images.

    Example:

        curate selftest scores.parquet --label label --plot selftest.svg
        curate selftest photos/ --label-from-folder
        curate selftest scores.parquet --column unc_fitted --change blur --change darkness
    """
    from curate.selftests.run import run_selftest
    from curate.sheets.style import check_chart, save_chart

    check_report(out, overwrite=overwrite)
    if plot is not None:
        check_chart(plot, overwrite=overwrite)
    result = run_selftest(replace(request, announce=output.note))
    if plot is not None:
        save_chart(result.figure(), plot, overwrite=overwrite)
    if out is not None:
        write_json(result.to_json(), out, overwrite=overwrite)
    if output.json:
        emit(result.to_json())
    else:
        print_lines(result.lines(), show, show_table)
    output.written(image=plot, report=out)
    if not result.passed:
        return suggest("doctor", code=1)
    if Path(request.images_of).suffix == ".parquet":
        return suggest("report", request.images_of, "-o", unused("report.html"))
    return suggest("score", request.images_of, "-o", unused("scores.parquet"))
