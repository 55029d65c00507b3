"""``curate labels``: which labels are probably wrong."""

from collections.abc import Callable
from math import isnan
from typing import TYPE_CHECKING, Any

from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, Output, after_policy, emit, printers, say_files, suggest
from curate.counted import counted
from curate.policies.labels.options import LabelsOptions

if TYPE_CHECKING:
    from curate.policies.labels.explain import LabelsResult
    from curate.policies.labels.review import Verdicts
    from curate.policies.sampled import Share
    from scoring.metrics.resampling import Interval

FEWEST = 20  # suspected labels that are worth a sample
FEW = 0.25  # share of the suspected labels that are wrong at least, below which a sample should be judged
N_CLASSES, N_PAIRS, N_ROWS, N_ANNOTATORS = 20, 10, 10, 20


@command_of(LabelsOptions)
def run(request: LabelsOptions, output: Output) -> NextCommand:
    """Find likely label errors from out-of-fold predictions.

    Example:

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
        _report(result, requested=request.out is None, below=request.below)
        say_files(result, dry_run=False)
    if result.review is not None:
        return suggest("review", request.table, result.review)
    return after_policy(request, result, "checked.parquet")


def _report(result: "LabelsResult", *, requested: bool, below: float) -> None:
    """Print the result of checking labels."""
    from curate.policies.decided import uneven_notes
    from curate.policies.labels.explain import bounds_text, share_text

    line, table = printers(requested=requested)
    for text in result.summary(below):
        line(text)
    for text in _notes(result):
        line(text)
    if result.annotators:
        worst = sorted(result.annotators, key=lambda annotator: annotator["accuracy"]["high"])[:N_ANNOTATORS]
        shown = [annotator for annotator in result.annotators if annotator in worst]
        table(
            [(column["column"], share_text(column["accuracy"])) for column in shown],
            header=("annotator", "agrees with the consensus of votes and images"),
        )
        _more(line, len(result.annotators) - len(shown), "annotator, more certain,", "annotators, more certain,")
    shown = result.of_class[:N_CLASSES]
    table(
        [(label["label"], label["rows"], label["suspected"], bounds_text(label["wrong"])) for label in shown],
        header=("label", "rows", "suspected", "wrong, estimated"),
    )
    _more(line, len(result.of_class) - len(shown), "class", "classes")
    if result.pairs:
        shown = result.pairs[:N_PAIRS]
        table(
            [(pair["given"], pair["true"], pair["rows"], bounds_text(pair["share"])) for pair in shown],
            header=("labelled", "but rather", "rows", "share of the label"),
        )
        _more(line, len(result.pairs) - len(shown), "pair", "pairs")
    if result.worst:
        shown = result.worst[:N_ROWS]
        table(
            [(f"{row['quality']:.3f}", row["given"], row["suggested"], row["key"], row["why"]) for row in shown],
            header=("quality", "labelled", "suggested", "key", "contradicted by"),
        )
    if not requested:
        rows = [("rows in", result.n_rows), ("kept", result.kept), ("dropped", result.dropped)]
        table([*rows, ("undecided", result.undecided), ("failed", result.failed)], right=1)
        for text in uneven_notes(result):
            line(text)


def _notes(result: "LabelsResult") -> list[str]:
    notes = [str(note) for note in result.notes]
    none_trusted = [each["label"] for each in result.of_class if 0 < each["rows"] == each["suspected"]]
    if none_trusted:
        of = f"{counted(len(none_trusted), 'class', 'classes')} ({', '.join(none_trusted[:N_PAIRS])})"
        notes.append(
            f"every label of {of} is suspected: check these first, because a rare class looks like a wrong label"
        )
    low = result.wrong["low"]
    many = result.suspected >= FEWEST and result.review is None
    if many and low is not None and low * result.judged < FEW * result.suspected:
        notes.append(
            f"perhaps only {100 * low:.1f} % are wrong: suspected labels can be of images that are hard to recognise; "
            "judge a sample with --review"
        )
    if result.suggestions:
        without = counted(result.suggestions, "row has", "rows have")
        notes.append(f"{without} no label; the most likely class is in suggested_label")
    notes += [f"not judged: {counted(n, 'row')}, {reason}" for reason, n in result.undecided_by.items()]
    notes += [f"failed: {counted(n, 'row')}, {status}" for status, n in result.failed_by.items()]
    if result.alike is not None:
        notes.append(f"two annotators of a row agree {result.alike:.1%} of the time")
    return notes


def _more(line: Any, n: int, singular: str, several: str) -> None:
    if n > 0:
        line(f"and {counted(n, singular, several)} more; --json has them")


def verdict_lines(verdicts: "Verdicts") -> list[str]:
    """Return the results of verdicts, one sentence per line."""
    from curate.policies.sampled import NOT_COUNTED

    counts = verdicts.counts
    parts = ", ".join(f"{n:,} {word}" for word, n in counts.items())
    lines = [f"{sum(counts.values()):,} rows drawn: {parts}"]
    if counts["blank"]:
        lines.append(f"{counted(counts['blank'], 'row')} {NOT_COUNTED}")
    lines.append(f"wrong labels, of all {verdicts.wrong.of:,} judged: {_readings(verdicts.wrong)}")
    for share, what in (
        (verdicts.suspected, "wrong, of the {n:,} suspected"),
        (verdicts.corrected, "suggested label right, of the {n:,} suspected"),
        (verdicts.trusted, "wrong, of the {n:,} others"),
    ):
        if share is not None:
            lines.append(f"{what.format(n=share.of)}: {_readings(share)}")
    return lines


def _readings(share: "Share") -> str:
    return readings(share, lambda value: f"{100 * value:.1f} %", "right", "wrong")


def readings(share: "Share", show: Callable[[float], str], strict_sense: str, lenient_sense: str) -> str:
    """Return a share for both senses in which unsure verdicts may count, or one value if both are equal."""

    def of(interval: "Interval") -> str:
        value = "unknown" if isnan(interval.value) else show(interval.value)
        return f"{value} (95 %: {show(interval.low)} to {show(interval.high)})"

    strict, lenient = of(share.strict), of(share.lenient)
    if strict == lenient:
        return strict
    return f"{strict} if unsure counts as {strict_sense}; {lenient} if it counts as {lenient_sense}"
