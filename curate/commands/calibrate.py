"""``curate calibrate``: a score as the probability that an image is bad."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curate.commands import options
from curate.commands.printing import emit, print_lines, printers, say

if TYPE_CHECKING:
    from curate.calibration.result import CalibrationResult


def run(
    table: options.Table,
    out: Annotated[
        Path | None, options.shared("--out", ": the calibration, NAME.json, for tables of the same model")
    ] = None,
    apply: Annotated[Path | None, options.written_to("--apply")] = None,
    fitted: Annotated[
        Path | None, options.shared("--fitted", ": a calibration", metavar="FILE", parser=options.path_argument)
    ] = None,
    column: Annotated[
        str | None,
        options.shared("--column", ", or max:COLUMN, min:COLUMN for what is certain; by default the audit's"),
    ] = None,
    bad: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="True of bad rows, false of good ones.", show_default=False)
    ] = None,
    audit: Annotated[
        list[Path] | None, options.shared("--audit", ": NAME.audit.csv, or key and answer (repeatable)")
    ] = None,
    judges: Annotated[str, options.shared("--judges", metavar="any|majority|share", show_default=True)] = "any",
    label: Annotated[
        str | None, options.shared("--label", ": the probability is of a nearest neighbour of another class")
    ] = None,
    labelled: Annotated[Path | None, options.shared("--labelled", ", or a folder of rounds, for --label")] = None,
    embedding: options.Embedding = None,
    plot: Annotated[
        Path | None, options.shared("--plot", ": the reliability of the probabilities", metavar="FILE")
    ] = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Turn a score into the probability that an image is bad.

    Example:

    \b
        curate calibrate checked.parquet --column label_quality --bad 'label != true_label' -o right.json
        curate calibrate scores.parquet --audit kept.audit.csv -o good.json --plot good.svg
        curate calibrate scores.parquet --label label --apply chances.parquet
        curate calibrate more.parquet --fitted good.json --apply chances.parquet
        curate filter chances.parquet --column p_error_isotonic --max 0.1 -o kept.parquet

    Two maps that never fall are fitted, isotonic and logistic, and measured on rows that were held out, next to a
    constant. The table that --apply writes has both as p_error_isotonic and p_error_logistic. A table that another
    model scored is refused, and rows outside of the judged range are reported.
    """
    from curate.calibration.fit import calibrate
    from curate.display.style import check_chart
    from scoring.errors import InputError

    if plot is not None:
        if fitted is not None:
            raise InputError("--plot shows what is fitted, and --fitted fits nothing; leave one of them out")
        check_chart(plot, overwrite=overwrite)
    result = calibrate(
        table,
        out,
        apply=apply,
        fitted=fitted,
        column=column,
        bad=bad,
        audit=audit,
        judges=judges,
        label=label,
        labelled=labelled,
        embedding=embedding,
        seed=seed,
        overwrite=overwrite,
        report=(lambda text: None) if quiet else say,
    )
    if plot is not None:
        _draw(result, plot, overwrite)
    if json_:
        emit(result.to_json())
    elif (out is None and apply is None) or not quiet:
        print_lines(result.lines(), *printers(requested=out is None and apply is None))
        if plot is not None:
            say(f"image: {plot}")


def _draw(result: "CalibrationResult", plot: Path, overwrite: bool) -> None:
    from curate.calibration.diagram import diagram
    from curate.display.style import save_chart

    save_chart(diagram(result), plot, overwrite=overwrite)
