"""``curate score``: an embedding and a certainty for every image."""

from dataclasses import asdict, replace
from typing import Any

import typer

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import BRIEF, NextCommand, Output, emit, say, say_table, suggest
from curate.commands.progress import ScoreBar
from curate.engines.options import ScoreOptions
from curate.options.values import several


@command_of(ScoreOptions, scorer="dtype", dtype="workers", workers="batch_size", embedding="quality")
def run(request: ScoreOptions, output: Output, ctx: typer.Context) -> NextCommand:
    """Score every image: certainty, embedding, hashes, image quality.

    Every image becomes a row of the table; an unreadable one has a status and an error instead of scores. Repeat the
    command to resume a killed run, and to retry rows with status missing, io_error or timeout. The source is never
    changed.

    Example:

        curate score photos/ -o scores.parquet
        curate score 'shards-{000..099}.tar' -o scores/ --device cuda
        curate score images.csv --path-column file --root /data -o scores.parquet
        curate score photos/ --model timm:convnext_nano.in12k_ft_in1k -o scores.parquet
        curate score /nfs/photos -o /nfs/scores --engine ray:auto --num-gpus 1
    """
    from curate.engines.score import run_score
    from scoring.errors import InputError

    source = list(several(request.source))
    with ScoreBar("images", quiet=output.quiet) as bar:
        result = run_score(
            replace(
                request,
                source=source[0] if len(source) == 1 else source,
                explicit=options.typed(ctx, ctx.params),
                report=bar.update,
                announce=output.note,
            )
        )
    if not output.quiet and ctx.obj == BRIEF:
        for note in result.notes:
            say(note)
    elif not output.quiet:
        _report(result)
    if output.json:
        emit({**asdict(result), "path": str(result.path), "failed": result.failed})
    if result.failed == result.rows:
        kinds = ", ".join(f"{n:,} {status}" for status, n in sorted(result.statuses.items()))
        start = "; relative paths start in the folder of a list, or where --root says" if "missing" in kinds else ""
        raise InputError(
            f"none of {result.rows:,} images could be scored ({kinds}); {result.path} has the reasons in its "
            "column `error`"
            f"{start}"
        )
    return suggest("issues", result.path)


def _report(result: Any) -> None:
    say(result.summary())
    say_table(result.by_status(), header=("status", "rows"), right=1)
    for note in result.notes:
        say(note)
    say(f"scores: {result.path}")
