"""``curate calibrate``: a score as the probability that an image is bad."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from curate.calibration.options import CalibrateOptions
from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, Output, print_lines, printers, rerun, say, suggest, unused
from curate.options.option import shared


@command_of(CalibrateOptions, plot="embedding")
def run(
    request: CalibrateOptions,
    output: Output,
    plot: Annotated[Path | None, shared("--plot", ": the reliability of the probabilities", metavar="FILE")] = None,
) -> NextCommand:
    """Turn a score into the probability that an image is bad.

    Example:

        curate calibrate checked.parquet --column label_quality --bad 'label != true_label' -o right.json
        curate calibrate scores.parquet --audit kept.audit.csv -o good.json --plot good.svg
        curate calibrate scores.parquet --label label --apply calibrated.parquet
        curate calibrate more.parquet --fitted good.json --apply calibrated.parquet
        curate filter calibrated.parquet --column p_error_isotonic --max 0.1 -o kept.parquet

    Fits two monotone maps, isotonic and logistic, and measures them on held-out rows, compared with a constant. --apply
    writes both to the table, as p_error_isotonic and p_error_logistic. A table scored by another model is refused, and
    rows outside the judged range are reported.
    """
    from curate.calibration.fit import run_calibrate
    from curate.sheets.style import check_chart, save_chart
    from scoring.errors import InputError

    if plot is not None:
        if request.fitted is not None:
            raise InputError("--plot shows what is fitted, and --fitted fits nothing; leave one of them out")
        check_chart(plot, overwrite=request.overwrite)
    result = run_calibrate(replace(request, report=output.note))
    if plot is not None:
        save_chart(result.figure(), plot, overwrite=request.overwrite)
    requested = request.out is None and request.apply is None
    output.result(result, lambda: print_lines(result.lines(), *printers(requested=requested)), requested=requested)
    if plot is not None and not output.json and (requested or not output.quiet):
        say(f"image: {plot}")
    if not result.is_informative:
        return suggest("report", request.apply or request.table, "-o", unused("report.html"))
    if request.apply is not None:
        words = ("--column", "p_error_isotonic", "--max", "0.1", "-o", unused("kept.parquet"))
        return suggest("filter", request.apply, *words)
    applied = ("--apply", unused("calibrated.parquet"))
    if request.out is None:
        return rerun(*applied)
    return suggest("calibrate", request.table, "--fitted", request.out, *applied)
