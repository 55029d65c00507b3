"""``curate labels``: which labels are wrong."""

from pathlib import Path
from typing import Annotated

import typer

from curate.commands import options
from curate.commands.labels_words import report
from curate.commands.printing import emit, say_files


def run(
    table: options.Table,
    label: Annotated[
        list[str] | None,
        options.shared("--label", "; again for the columns of several annotators", metavar="COLUMN"),
    ] = None,
    labelled: Annotated[
        Path | None, options.shared("--labelled", ", or a folder of rounds: instead of a column of the table")
    ] = None,
    out: Annotated[
        Path | None, options.written_to("--out", ": the table with label_quality and suggestions, NAME.parquet")
    ] = None,
    drop_suspected: Annotated[
        bool, typer.Option("--drop-suspected", help="Drop the rows whose label is suspected.")
    ] = False,
    relabel: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="New column: the suggested label instead of a suspected one.", show_default=False
        ),
    ] = None,
    below: Annotated[float, typer.Option(metavar="X", help="A label of a lower quality is suspected.")] = 0.5,
    review: Annotated[
        int | None,
        typer.Option(metavar="N", help="Write N rows for a reviewer to judge.", show_default=False),
    ] = None,
    verdicts: options.Verdicts = None,
    embedding: options.Embedding = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find likely label errors from out-of-fold predictions.

    Example:

    \b
        curate labels scores.parquet --label label
        curate labels scores.parquet --label label --relabel checked -o checked.parquet
        curate labels scores.parquet --label label --drop-suspected --review 200 -o clean.parquet
        curate review scores.parquet clean.review.csv
        curate review verdicts clean.review.csv
        curate labels scores.parquet --label label --verdicts scores.verdicts.jsonl -o checked.parquet
        curate labels scores.parquet --label ann --label bob --label eve -o agreed.parquet
        curate labels scores.parquet --labelled rounds/ -o checked.parquet

    Every label is judged by a probe of other folds and by the nearest rows: label_quality is how surely
    it is right. The share of wrong labels has an interval; --review draws rows whose answers bound it
    whatever the probe predicts. With --out, the table that is written has label_quality, suggested_label
    and label_why as well. The table itself is never changed.
    """
    from curate.policies.labels.policy import labels

    result = labels(
        table,
        out,
        label,
        labelled=labelled,
        drop_suspected=drop_suspected,
        relabel=relabel,
        below=below,
        review=review,
        verdicts=verdicts,
        embedding=embedding,
        seed=seed,
        overwrite=overwrite,
    )
    if json_:
        emit(result.to_json())
    elif out is None or not quiet:
        report(result, requested=out is None, below=below)
        say_files(result, dry_run=False)
