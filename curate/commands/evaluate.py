"""``curate evaluate``: how good the score columns are."""

import os
from pathlib import Path
from typing import Annotated

import typer

from curate.commands import options
from curate.commands.printing import check_report, emit, print_lines, say, show, show_in_parts, write_json


def run(
    table: options.Table,
    label: Annotated[str | None, options.shared("--label", ", in --labelled or in the table")] = None,
    labelled: options.Labelled = None,
    train: Annotated[
        Path | None,
        options.read_from("--train", ": the images of another scored table, with --label", metavar="TABLE"),
    ] = None,
    probe: Annotated[
        list[str] | None,
        options.shared(
            "--probe",
            " of --train: linear, knn, few (labels), mlp, gmm (repeatable). [default: linear,knn,few]",
            metavar="NAME,...",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        options.shared(
            "--set", " of --probe: k, temperature, c, labels, draws, hidden, passes, starts", metavar="NAME=VALUE"
        ),
    ] = None,
    subset: Annotated[
        Path | None,
        options.shared("--subset", ": its subset or decisions, or a file of keys; measure how good that is"),
    ] = None,
    test: Annotated[
        str | None,
        options.shared(
            "--test",
            " with --subset, of each class; or COLUMN=VALUE, or a table of rows to measure on. [default: 0.2]",
            metavar="SHARE",
        ),
    ] = None,
    seeds: Annotated[
        int, options.shared("--seeds", ": random subsets, and a network's trainings, with --subset", show_default=True)
    ] = 5,
    group: Annotated[
        list[str] | None,
        options.shared("--group", ", which --subset should keep alike (repeatable)", metavar="COLUMN"),
    ] = None,
    network: Annotated[
        int,
        typer.Option(min=0, help="With --subset: steps of a small network on pixels, 128 images each; 400 is usual."),
    ] = 0,
    column: Annotated[
        list[str] | None, options.shared("--column", " to measure (repeatable). [default: every kappa_* and unc_*]")
    ] = None,
    votes: Annotated[
        str | None,
        typer.Option(
            help="Column of lists, in --labelled or in the table: how many annotators chose each class.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        Path | None, options.read_from("--against", ", to be separated from this one", metavar="TABLE")
    ] = None,
    degrade: Annotated[int, typer.Option(min=0, help="Images to read again, make worse and score.")] = 0,
    strengths: Annotated[
        bool, typer.Option("--strengths", help="At five strengths of each change, too: for curate plot strengths.")
    ] = False,
    source: options.Source = None,
    model: Annotated[
        str | None, options.shared("--model", ", for --degrade; by default the shipped one that scored the table")
    ] = None,
    device: Annotated[str, options.shared("--device", ", for --degrade and --network", show_default=True)] = "auto",
    repeats: Annotated[
        int, options.shared("--repeats", ": bootstrap resamples, shuffles of permutation tests", show_default=True)
    ] = 1000,
    embedding: options.Embedding = None,
    seed: options.Seed = 0,
    sample: Annotated[
        int | None,
        options.shared("--sample"),
    ] = None,
    out: Annotated[Path | None, options.shared("--out", ": everything, NAME.json")] = None,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure how good scores or a subset are, with intervals.

    With --subset: does it help? Models are trained on it, on everything and on random rows of the same size, and tested
    on rows that none of them saw.

    Else, of every score. Against labels: R-AUROC, AUROC of kNN and linear classifier, abstained accuracy. Against
    votes, another table, and corrupted versions of the images where you ask for them. Every number has a 95 % bootstrap
    interval.

    Example:

    \b
        curate evaluate scores.parquet --label label
        curate evaluate test.parquet --train train.parquet --label label
        curate evaluate test.parquet --train train.parquet --label label --probe knn,mlp,gmm --set k=200
        curate evaluate scores.parquet --labelled voted.parquet --label class --votes counts -o report.json
        curate evaluate scores.parquet --label label --degrade 2000 --source photos/
        curate evaluate scores.parquet --against other.parquet
        curate evaluate scores.parquet --subset kept.parquet --label label --group camera
    """
    arguments = dict(locals())
    os.environ.setdefault("GOMP_SPINCOUNT", "0")  # threads that wait must not spin where others want the core
    from curate.evaluation.run import evaluate
    from scoring.errors import InputError
    from scoring.settings import parse_settings

    check_report(out, overwrite=overwrite)
    unread = [name for name, value in (("source", source), ("model", model)) if value is not None]
    reader = "degrade" if subset is None else "network"
    if unread and not (network if subset is not None else degrade):
        raise InputError(f"--{unread[0]} is for --{reader}, which is missing; give --{reader} N, or leave it out")
    arguments["set"] = parse_settings(set_ or [], example="k=200") or None
    evaluation = evaluate(**options.accepted(evaluate, arguments), announce=(lambda text: None) if quiet else say)
    facts = {**evaluation.to_json(), "notes": evaluation.notes(), "verdict": evaluation.verdict()}
    if out is not None:
        write_json(facts, out, overwrite=overwrite)
    if json_:
        emit(facts)
    else:
        print_lines(evaluation.lines(), show, show_in_parts)
    if out is not None and not quiet:
        say(f"report: {out}")
