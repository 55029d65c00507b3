"""``curate clean``: from a folder of images to a reviewed dataset."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curate.commands import options
from curate.commands.complete import OFFERED
from curate.commands.printing import DRY_RUN, emit, say, show, show_table
from curate.commands.run import KILLED, Typed

if TYPE_CHECKING:
    from curate.cleaning.result import CleanResult


def run(
    ctx: typer.Context,
    source: Annotated[
        str, typer.Argument(help="Folder, list (.txt), CSV, JSONL, Parquet, WebDataset .tar, or URL (s3://...).")
    ],
    out: Annotated[Path, options.shared("--out", ": a folder, such as cleaned", parser=options.path_argument)],
    model: Annotated[str, options.shared("--model", " (see `curate models`)", show_default=True)] = "world",
    label: Annotated[
        str | None,
        options.shared("--label", ", to find wrong labels. [default: label, where there is one]", metavar="COLUMN"),
    ] = None,
    label_from_folder: Annotated[bool, options.shared("--label-from-folder", ", to find wrong labels")] = False,
    against: Annotated[
        str | None,
        options.shared("--against", ", or images: what is in both is kept, and listed as a leak", metavar="SOURCE"),
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="Also write the subset for another tool, as curate export --to does.",
            show_default=False,
            autocompletion=OFFERED["--to"],
        ),
    ] = None,
    dry_run: options.DryRun = False,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Drop unusable images and copies, and list what to review.

    Example:

    \b
        curate clean photos/ -o cleaned
        curate review cleaned
        curate clean photos/ -o cleaned
        curate clean photos/ -o cleaned --label-from-folder
        curate clean train.csv -o cleaned --label species --against test/
        curate clean photos/ -o cleaned --export imagefolder

    Dropped is only what is unusable in every domain (one colour, pure noise, enlarged from a few pixels, placeholders)
    and exact or near copies, of which the best is kept. All else is kept: junk, odd groups, wrong labels and leaks are
    listed for you to decide. The folder holds subset.parquet, report.html, review/ (findings by kind) and curate.toml:
    the steps, to edit and to repeat with `curate run`. Repeated, the command does what is not up to date, and applies
    what was decided in `curate review`; killed, it goes on. Nothing in the source is changed.
    """
    from curate.cleaning.run import CleanRequest, Stopped, run_cleaning

    arguments = dict(locals())
    commands = Typed(ctx.find_root().command, True, () if quiet or dry_run else ("score",))
    try:
        result = run_cleaning(
            CleanRequest(**options.accepted(CleanRequest, arguments)),
            commands,
            dry_run=dry_run,
            overwrite=overwrite,
            announce=(lambda text: None) if quiet else say,
        )
    except Stopped as stopped:
        if stopped.code < KILLED:
            say(str(stopped))
        raise typer.Exit(stopped.code) from None
    if json_:
        emit(result.to_json())
    elif dry_run or not quiet:
        _report(result)


def _report(result: "CleanResult") -> None:
    show_table(result.account(), right=1)
    if result.dry_run:
        for step in result.steps:
            if step.state == "to do":
                show(f"to do: {step.name}")
        say(DRY_RUN)
        return
    if not result.changed:
        show("nothing to do: all of it is up to date")
    for name in ("report", "review", "subset"):
        show(f"{name}: {getattr(result, name)}")
    subset = shlex.quote(str(result.subset))
    if result.to_review:
        show(f"next: curate review {shlex.quote(str(result.folder))}")
    else:
        show(f"next: curate export {subset} --to folder -o training")
