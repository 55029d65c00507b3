"""``curate review plan``: how many images to judge for a filter with a guarantee, and which."""

from pathlib import Path
from typing import Annotated

import typer

from curate.commands import options
from curate.commands.printing import emit, print_lines, printers


def run(
    table: options.Table,
    max_bad_rate: Annotated[
        str, typer.Option(metavar="SHARE", help="Share of bad ones to show: 2%.", show_default=False)
    ],
    out: Annotated[Path | None, options.shared("--out", ": NAME.audit.csv")] = None,
    column: Annotated[str | None, options.shared("--column", ", by which rows will be cut")] = None,
    confidence: Annotated[str, options.shared("--confidence", metavar="SHARE", show_default=True)] = "95%",
    keep: Annotated[
        str, typer.Option(metavar="AMOUNT", help="How many of the most certain could be kept at all.")
    ] = "100%",
    expected: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE", help="Bad ones in the better half, at a guess. [default: a quarter of --max-bad-rate]"
        ),
    ] = None,
    images: Annotated[
        int | None, typer.Option(metavar="N", help="How many to draw. [default: for a probability of 80%]")
    ] = None,
    label: Annotated[
        str | None, options.shared("--label", ", shown with each image: bad is a wrong label", metavar="COLUMN")
    ] = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Say how many images a reviewer must judge to promise that few kept rows are bad, and draw them.

    Example:

    \b
        curate review plan scores.parquet --max-bad-rate 2%
        curate review plan scores.parquet --max-bad-rate 2% --keep 80% -o kept.audit.csv
        curate review plan checked.parquet --column label_quality --label label --max-bad-rate 5% -o right.audit.csv

    `curate review scores.parquet kept.audit.csv` shows the drawn images: take out the bad ones, and keep the rest. Then
    `curate filter scores.parquet --max-bad-rate 2% --audit kept.audit.csv -o kept.parquet` keeps the most rows of
    which the verdicts show it. What --keep leaves out cannot be kept, and need not be judged.
    """
    from curate.policies.audit.draw import review_plan

    plan = review_plan(
        table,
        out,
        column,
        max_bad_rate=max_bad_rate,
        confidence=confidence,
        keep=keep,
        expected=expected,
        images=images,
        label=label,
        seed=seed,
        overwrite=overwrite,
    )
    if json_:
        emit(plan.to_json())
    elif out is None or not quiet:
        print_lines(plan.lines(), *printers(requested=out is None))
