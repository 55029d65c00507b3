"""``curate audit``: what a person's answers say of a deduplication."""

from pathlib import Path
from typing import Annotated

import typer

from curate.commands import options
from curate.commands.report import emit, show


def run(
    answers: Annotated[
        Path, typer.Argument(help="NAME.audit.csv of curate dedup --audit, with the answers filled in.")
    ],
    target_precision: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Also suggest the loosest threshold that keeps it.", show_default=False),
    ] = None,
    confidence: Annotated[float, typer.Option(help="That the suggested threshold keeps the precision.")] = 0.95,
    json_: options.Json = False,
) -> None:
    """Tell the precision of a deduplication from a person's answers.

    Example:

    \b
        curate audit unique.audit.csv
        curate audit unique.audit.csv --target-precision 0.98

    `curate dedup scores.parquet --audit 200 -o unique.parquet` draws the pairs: unique.audit.html is a
    page to judge them on, which saves the answers; or write yes, no or unsure into unique.audit.csv.
    Intervals hold for every population (no normal approximation), and a suggested threshold keeps the
    precision with the confidence named.
    """
    from curate.policies.dedup.quality.answers import read_answers
    from curate.policies.dedup.quality.precision import precision, suggest_threshold

    read = read_answers(answers)
    found = precision(read)
    suggestions = [] if target_precision is None else suggest_threshold(read, target_precision, confidence)
    if json_:
        emit({**found.to_json(), "suggestions": [each.to_json() for each in suggestions]})
        return
    for line in found.lines():
        show(line)
    for each in suggestions:
        for line in each.lines():
            show(line)
