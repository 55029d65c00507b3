"""``curate evaluate``: the quality of score columns."""

from dataclasses import replace
from typing import TYPE_CHECKING

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import (
    NextCommand,
    Output,
    check_report,
    emit,
    print_lines,
    show,
    show_in_parts,
    suggest,
    to_export,
    unused,
    write_json,
)
from curate.evaluation.options import EvaluateOptions
from curate.options import fields

if TYPE_CHECKING:
    from curate.evaluation.results import Evaluation


@command_of(EvaluateOptions)
def run(
    request: EvaluateOptions, output: Output, out: options.Everything = None, overwrite: fields.Overwrite = False
) -> NextCommand:
    """Measure how good scores or a subset are, with intervals.

    With --subset, models are trained on the subset, on all rows and on as many random rows, and tested on held-out
    rows.

    Otherwise, every score is measured. Against labels: R-AUROC, AUROC of kNN and linear classifier, abstained accuracy.
    On request, also against votes, another table, and corrupted images. Every number has a 95 % bootstrap interval.

    Example:

        curate evaluate scores.parquet --label label
        curate evaluate test.parquet --train train.parquet --label label
        curate evaluate test.parquet --train train.parquet --label label --probe knn,mlp,gmm --set k=200
        curate evaluate scores.parquet --labelled voted.parquet --label class --votes counts -o report.json
        curate evaluate scores.parquet --label label --degrade 2000 --source photos/
        curate evaluate scores.parquet --against other.parquet
        curate evaluate scores.parquet --subset kept.parquet --label label --group camera
    """
    from curate.evaluation.results import Evaluation
    from curate.evaluation.run import run_evaluate
    from scoring.errors import InputError

    check_report(out, overwrite=overwrite)
    unread = [name for name, value in (("source", request.source), ("model", request.model)) if value is not None]
    reader = "degrade" if request.subset is None else "network"
    if unread and not (request.network if request.subset is not None else request.degrade):
        raise InputError(f"--{unread[0]} needs --{reader}; add --{reader} N, or leave it out")
    evaluation = run_evaluate(replace(request, announce=output.note))
    facts = {**evaluation.to_json(), "notes": evaluation.notes(), "verdict": evaluation.verdict()}
    if out is not None:
        write_json(facts, out, overwrite=overwrite)
    if output.json:
        emit(facts)
    else:
        print_lines(evaluation.lines(), show, show_in_parts)
    output.written(report=out)
    return _next(request, evaluation) if isinstance(evaluation, Evaluation) else to_export(request.subset)


def _next(request: EvaluateOptions, evaluation: "Evaluation") -> NextCommand:
    """Return the fit to labels if no score predicts errors, else a report, which shows images by score."""
    from scoring.relative.learn import LEAST_LABELS

    if not evaluation.no_score_predicts or evaluation.used - evaluation.caveats.n_twins < LEAST_LABELS:
        return suggest("report", request.table, "-o", unused("report.html"))
    names = ("label", "labelled", "embedding")
    words = [word for name in names if (value := getattr(request, name)) is not None for word in (f"--{name}", value)]
    return suggest("fit", request.table, *words, "--apply", unused("fitted.parquet"))
