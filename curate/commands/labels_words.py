"""What ``curate labels`` says to annotators."""

from collections.abc import Mapping
from math import isnan
from typing import TYPE_CHECKING, Any

from curate.commands.printing import printers
from curate.counted import counted

if TYPE_CHECKING:
    from curate.policies.labels.result import LabelsResult
    from curate.policies.labels.verdicts import Share, Verdicts
    from scoring.metrics.resampling import Interval

N_CLASSES, N_PAIRS, N_ROWS, N_ANNOTATORS = 20, 10, 10, 20


def share_text(share: Mapping[str, Any]) -> str:
    """Return a share with its interval.

    >>> share_text({"value": 0.1, "low": 0.05, "high": 0.2})
    '10.0 % (5.0 to 20.0 %)'
    """
    if share["value"] is None:
        return "unknown"
    return f"{100 * share['value']:.1f} % ({100 * share['low']:.1f} to {100 * share['high']:.1f} %)"


def report(result: "LabelsResult", *, requested: bool, below: float) -> None:
    """Print what came of examining labels."""
    line, table = printers(requested=requested)
    line(f"wrong labels: {share_text(result.wrong)} of {counted(result.judged, 'judged label')}, estimated")
    by = ", ".join(f"{word} {n:,}" for word, n in result.contradicted_by.items())
    line(f"suspected: {counted(result.suspected, 'label')} of a quality below {below:g} (contradicted by {by})")
    for text in _notes(result):
        line(text)
    if result.annotators:
        worst = sorted(result.annotators, key=lambda annotator: annotator["accuracy"]["high"])[:N_ANNOTATORS]
        shown = [annotator for annotator in result.annotators if annotator in worst]
        table(
            [(column["column"], share_text(column["accuracy"])) for column in shown],
            header=("annotator", "right, by all the others and the images"),
        )
        _more(line, len(result.annotators) - len(shown), "annotator, more certain,", "annotators, more certain,")
    shown = result.of_class[:N_CLASSES]
    table(
        [(label["label"], label["rows"], label["suspected"], share_text(label["wrong"])) for label in shown],
        header=("label", "rows", "suspected", "wrong, estimated"),
    )
    _more(line, len(result.of_class) - len(shown), "class", "classes")
    if result.pairs:
        shown = result.pairs[:N_PAIRS]
        table(
            [(pair["given"], pair["true"], pair["rows"], share_text(pair["share"])) for pair in shown],
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


def _notes(result: "LabelsResult") -> list[str]:
    notes = [str(note) for note in result.notes]
    if result.suggestions:
        without = counted(result.suggestions, "row has", "rows have")
        notes.append(f"{without} no label; what is likeliest stands as suggested_label")
    notes += [f"not judged: {counted(n, 'row')}, {reason}" for reason, n in result.undecided_by.items()]
    notes += [f"failed: {counted(n, 'row')}, {status}" for status, n in result.failed_by.items()]
    if result.alike is not None:
        notes.append(f"two annotators of a row agree {result.alike:.1%} of the time")
    return notes


def _more(line: Any, n: int, singular: str, several: str) -> None:
    if n > 0:
        line(f"and {counted(n, singular, several)} more; --json has them")


def verdict_lines(verdicts: "Verdicts") -> list[str]:
    """Return what answers say, one sentence a line."""
    from curate.policies.sampled import NOT_COUNTED

    counts = verdicts.counts
    said = ", ".join(f"{n:,} {word}" for word, n in counts.items())
    lines = [f"{sum(counts.values()):,} rows drawn: {said}"]
    if counts["blank"]:
        lines.append(f"{counted(counts['blank'], 'row')} {NOT_COUNTED}")
    lines.append(f"wrong labels, of all {verdicts.wrong.rows:,} judged: {_readings(verdicts.wrong)}")
    for share, what in (
        (verdicts.suspected, "wrong, of the {n:,} suspected"),
        (verdicts.corrected, "suggested label right, of the {n:,} suspected"),
        (verdicts.trusted, "wrong, of the {n:,} others"),
    ):
        if share is not None:
            lines.append(f"{what.format(n=share.rows)}: {_readings(share)}")
    return lines


def _readings(share: "Share") -> str:
    """Both readings of unsure answers, or one where they are the same."""

    def of(interval: "Interval") -> str:
        value = "unknown" if isnan(interval.value) else f"{100 * interval.value:.1f} %"
        return f"{value} (95 %: {100 * interval.low:.1f} to {100 * interval.high:.1f} %)"

    if share.strict == share.lenient or of(share.strict) == of(share.lenient):
        return of(share.strict)
    return f"{of(share.strict)}; {of(share.lenient)} if unsure means wrong"
