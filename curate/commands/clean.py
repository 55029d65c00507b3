"""``curate clean``: from a folder of images to a reviewed dataset."""

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from curate.cleaning.options import CleanOptions
from curate.commands.declared import command_of
from curate.commands.printing import (
    DRY_RUN,
    NextCommand,
    Output,
    print_lines,
    rerun,
    say,
    show,
    show_table,
    suggest,
    unused,
)
from curate.commands.run import KILLED, Typed

if TYPE_CHECKING:
    from curate.cleaning.result import CleanResult


RUNS_OTHERS = True  # commands as steps


@command_of(CleanOptions)
def run(request: CleanOptions, output: Output, ctx: typer.Context) -> NextCommand:
    """Drop unusable images and copies, and list what to review.

    Example:

        curate clean photos/ -o cleaned
        curate review cleaned
        curate clean photos/ -o cleaned
        curate clean cats/ dogs/ -o cleaned --label-from-folder
        curate clean train.csv -o cleaned --label species --against test/
        curate clean photos/ -o cleaned --export imagefolder

    Drops only images that are unusable in every domain (one colour, pure noise, enlarged from a few pixels,
    placeholders) and copies, of which it keeps the best. Junk, unusual groups, wrong labels and leaks are kept and
    listed for you to decide. Writes subset.parquet, report.html, review/ (findings by kind) and curate.toml, the steps,
    which you can edit and repeat with `curate run`. Repeat the command to score new images, to apply your decisions
    from `curate review`, or to resume after a kill. The source is never changed.
    """
    from curate.cleaning.run import Stopped, run_cleaning

    commands = Typed(ctx.find_root().command, True, () if output.quiet or request.dry_run else ("score",))
    try:
        result = run_cleaning(replace(request, announce=output.note), commands)
    except Stopped as stopped:
        if stopped.code < KILLED:
            say(str(stopped))
        raise typer.Exit(stopped.code) from None
    output.result(result, lambda: _report(result), requested=request.dry_run)
    if request.dry_run:
        return rerun()
    if words := _next(result):
        return replace(suggest(*words), printer=show)
    return suggest("report", request.out, "-o", unused("report.html"))


def _report(result: "CleanResult") -> None:
    from curate.cleaning.changes import BEFORE, NOW

    print_lines(result.lines(), show, show_table)
    if result.changes is not None:
        before, now = (shlex.quote(str(result.folder / name)) for name in (BEFORE, NOW))
        show(f"all that changed: curate diff {before} {now}")
    if result.dry_run:
        for step in result.steps:
            if step.state == "to do":
                show(f"to do: {step.name}")
        say(DRY_RUN)
        return
    if not result.changed:
        show("nothing to do: everything is up to date")
    for name in ("report", "review", "subset", "export"):
        if (path := getattr(result, name)) is not None:
            show(f"{name}: {path}")


def _next(result: "CleanResult") -> list[str]:
    """Return the words of the usual next command; empty if nothing is left to do."""
    from curate.cleaning.steps import SCORES

    if result.to_review:
        return ["review", str(result.folder)]
    if not result.kept:
        return ["issues", str(result.folder / SCORES)]
    if result.export is not None:
        return []
    source = [] if result.source is None else ["--source", result.source]
    return ["export", str(result.folder), "--to", "folder", *source, "-o", unused("training")]
