"""``curate review verdicts``: what verdicts show about images, pairs or labels."""

from math import isnan
from typing import TYPE_CHECKING

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.labels_words import readings, verdict_lines
from curate.commands.printing import emit, print_lines, show, show_table
from curate.counted import counted
from curate.policies.audit.options import ReviewVerdictsOptions

if TYPE_CHECKING:
    from curate.policies.dedup.quality.precision import Precision, Suggestion
    from curate.policies.sampled import Share


@command_of(ReviewVerdictsOptions)
def run(request: ReviewVerdictsOptions, json_: options.Json = False) -> None:
    """Report what verdicts show about images, pairs or labels.

    Example:

    \b
        curate review plan scores.parquet --max-bad-rate 2% -o kept.audit.csv
        curate review verdicts kept.audit.csv
        curate review verdicts unique.audit.csv --target-precision 0.98
        curate review verdicts clean.review.csv

    For images drawn by `review plan`: the share of bad ones, and how many rows a filter could keep with at most 1, 2, 5
    or 10 % bad. For pairs drawn by `curate dedup scores.parquet --audit 200 -o unique.parquet`: how many are correct.
    For labels drawn by curate labels with --review: how many are wrong. Intervals are exact (no normal approximation),
    and suggestions are valid at the given confidence.
    """
    from curate.policies.audit.examine import PairReading, run_review_verdicts
    from curate.policies.labels.review import Verdicts

    read = run_review_verdicts(request)
    if json_:
        emit(read.to_json())
    elif isinstance(read, PairReading):
        for line in [*precision_lines(read.precision), *map(suggestion_line, read.suggestions)]:
            show(line)
    elif isinstance(read, Verdicts):
        for line in verdict_lines(read):
            show(line)
    else:
        print_lines(read.lines(), show, show_table)


def precision_lines(measured: "Precision") -> list[str]:
    """Return the measured precision, one sentence per line; the counts add up to the pairs drawn."""
    from curate.policies.sampled import NOT_COUNTED

    count = {
        name: sum(getattr(stratum, name) for stratum in measured.strata)
        for name in ("drawn", "same", "different", "unsure", "blank")
    }
    lines = [
        f"{count['drawn']:,} pairs drawn: {count['same']:,} same, {count['different']:,} different, "
        f"{count['unsure']:,} unsure, {count['blank']:,} without an answer"
    ]
    if count["blank"]:
        lines.append(f"{counted(count['blank'], 'pair')} {NOT_COUNTED}")
    if measured.dropped is not None:
        lines.append(f"share of {measured.dropped.of:,} dropped pairs that are the same: {_readings(measured.dropped)}")
    if len(measured.by_finder) > 1:
        lines += [f"  by {name}, of {part.of:,}: {_readings(part)}" for name, part in measured.by_finder.items()]
    if measured.near is not None:
        lines.append(
            f"share of {measured.near.of:,} pairs just below the threshold that are the same: "
            f"{_readings(measured.near)}"
        )
    return lines


def _readings(share: "Share") -> str:
    return readings(share, "{:.3f}".format, "different", "the same")


def suggestion_line(each: "Suggestion") -> str:
    """Return a suggested threshold, or why there is none, in one sentence."""
    goal = f"precision {each.target_precision:g} with confidence {each.confidence:g}"
    if each.threshold is not None:
        low = max(test.low for test in each.tested if test.passed and test.threshold == each.threshold)
        return f"{each.finder}: threshold {each.threshold:g} reaches {goal} (lower bound {low:.3f})"
    if each.more is not None:
        return f"{each.finder}: no threshold is shown to reach {goal}; about {each.more:,} more answers would be needed"
    seen = "unknown" if isnan(each.share) else f"{each.share:.3f}"
    return f"{each.finder}: no threshold reaches {goal}: the answers show {seen}; use a stricter threshold"
