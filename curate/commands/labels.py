"""``curate labels``: which labels are probably wrong."""

from curate.commands.declared import command_of
from curate.commands.labels_words import report
from curate.commands.printing import Output, emit, say_files
from curate.policies.labels.options import LabelsOptions


@command_of(LabelsOptions)
def run(request: LabelsOptions, output: Output) -> None:
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

    label_quality estimates how likely a label is right, from a probe trained on other folds and from the nearest rows.
    The share of wrong labels has an interval; --review draws a sample for a bound that does not depend on the probe.
    --out writes the table with label_quality, suggested_label and label_why. The input table is never changed.
    """
    from curate.policies.labels.policy import run_labels

    result = run_labels(request)
    if output.json:
        emit(result.to_json())
    elif request.out is None or not output.quiet:
        report(result, requested=request.out is None, below=request.below)
        say_files(result, dry_run=False)
