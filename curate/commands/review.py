"""``curate review``: decide on suspected images in the browser; samples to judge, and what the verdicts show."""

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.elapsed import replace_elapsed
from curate.commands.labels import readings, verdict_lines
from curate.commands.printing import (
    NextCommand,
    Output,
    emit,
    print_lines,
    printers,
    rerun,
    show,
    show_table,
    suggest,
    unused,
)
from curate.counted import counted
from curate.options.option import Option
from curate.options.values import several
from curate.policies.audit.options import ReviewPlanOptions, ReviewVerdictsOptions
from curate.reviewing.options import ReviewOptions

if TYPE_CHECKING:
    from curate.policies.audit.examine import PairReading
    from curate.policies.audit.results import AuditReading
    from curate.policies.dedup.quality.precision import Precision, Suggestion
    from curate.policies.labels.review import Verdicts
    from curate.policies.sampled import Share
    from curate.reporting.served.server import Server


SUBCOMMANDS = ("plan", "verdicts")


@command_of(ReviewOptions)
def run(
    request: ReviewOptions, output: Output, no_open: Annotated[bool, Option("Do not open a browser.")] = False
) -> NextCommand:
    """Review suspected images in groups, or browse a table.

    Example:

        curate review cleaned
        curate review scores.parquet kept.parquet
        curate review scores.parquet --browse
        curate review scores.parquet unique.audit.csv
        curate review plan scores.parquet --max-bad-rate 2% -o kept.audit.csv
        curate review verdicts kept.audit.csv
        curate filter cleaned/subset.parquet --verdicts cleaned/subset.verdicts.jsonl -o final.parquet

    Shows suspected images (junk, issues, near copies, suspected labels, leaks, undecided rows) in groups of similar
    ones, those with the most expected bad images first. One key keeps, drops, relabels or splits a group. The page is
    served on 127.0.0.1 under a random path until Ctrl-C, and needs no network. Each decision is on disk before the page
    continues.

    `review plan` draws a random sample to judge, and `review verdicts` reports the result.
    """
    from curate.reviewing.serve import ReviewSite, run_review

    server = run_review(request)
    if output.json:
        emit({"url": server.url, "port": server.server_port})
    else:
        show(server.url)
    for note in (*server.site.notes, "Ctrl-C ends it"):
        output.note(note)
    replace_elapsed(lambda: None)
    _serve(server, browser=not no_open)
    site = server.site
    if isinstance(site, ReviewSite) and site.review.file.path.is_file():
        return NextCommand(site.next_command)
    return suggest("issues", request.table)


def _serve(server: "Server", *, browser: bool) -> None:
    """Serve until Ctrl-C, which is the normal end."""
    import sys
    import threading
    import webbrowser
    from contextlib import closing, suppress

    if browser and sys.stdout.isatty():
        threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
    with closing(server), suppress(KeyboardInterrupt):
        server.serve_forever(poll_interval=0.2)


@command_of(ReviewPlanOptions)
def plan(request: ReviewPlanOptions, output: Output) -> NextCommand:
    """Plan how many images to judge for a guarantee, and draw them.

    Example:

        curate review plan scores.parquet --max-bad-rate 2%
        curate review plan scores.parquet --max-bad-rate 2% --keep 80% -o kept.audit.csv
        curate review plan checked.parquet --column label_quality --label label --max-bad-rate 5% -o right.audit.csv

    `curate review scores.parquet kept.audit.csv` shows the drawn images: exclude the bad ones, and keep the rest. Then
    `curate filter scores.parquet --max-bad-rate 2% --audit kept.audit.csv -o kept.parquet` keeps as many rows as the
    verdicts allow. With --keep, only the most certain rows are drawn, and the others cannot be kept.
    """
    from curate.policies.audit.draw import run_review_plan

    planned = run_review_plan(request)
    requested = request.out is None
    output.result(planned, lambda: print_lines(planned.lines(), *printers(requested=requested)), requested=requested)
    return rerun("-o", unused("kept.audit.csv")) if requested else suggest("review", request.table, request.out)


@command_of(ReviewVerdictsOptions)
def verdicts(request: ReviewVerdictsOptions, json_: options.Json = False) -> NextCommand:
    """Report what verdicts show about images, pairs or labels.

    Example:

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
    return _after_verdicts(Path(several(request.answers)[0]), read)


def _after_verdicts(sample: Path, read: "AuditReading | PairReading | Verdicts") -> NextCommand:
    """Return the command that uses the verdicts on a sample of the reviewed table."""
    from curate.policies.audit.examine import PairReading
    from curate.policies.audit.results import AuditReading
    from curate.policies.sampled import verdicts_beside
    from curate.policies.verdicts import BEGIN, read_verdicts

    file = Path(str(verdicts_beside(sample)))
    table = (
        next((line.table for line in read_verdicts(file).all if line.verdict == BEGIN), "") if file.is_file() else ""
    )
    if not table:
        return suggest("review", "--help")
    if isinstance(read, AuditReading):
        rate = next((f"{share:.0%}" for share, kept in read.kept.items() if kept), "")
        words = ("filter", table, "--max-bad-rate", rate) if rate else ("calibrate", table)
        return suggest(*words, "--audit", sample, "-o", unused("kept.parquet" if rate else "calibration.json"))
    suggestions = read.suggestions if isinstance(read, PairReading) else ()
    limits = [
        f"--finder={each.finder} --threshold={each.threshold}" for each in suggestions if each.threshold is not None
    ]
    if limits:
        return suggest("dedup", table, *" ".join(limits).split(), "-o", unused("unique.parquet"))
    return suggest("report", table, "-o", unused("report.html"))


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
