"""``curate run``: the steps of a file in order, with one receipt."""

import sys
from collections.abc import Container
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from curate.commands.declared import command_of
from curate.commands.groups import USAGE
from curate.commands.printing import BRIEF, DRY_RUN, NextCommand, Output, emit, rerun, say, show, show_table, suggest
from curate.pipeline.options import RunOptions
from scoring.errors import InputError

if TYPE_CHECKING:
    from curate.pipeline.run import PipelineResult

RUNS_OTHERS = True  # commands as steps
KILLED = 128  # exit codes from here mean interrupted, which the command has reported


@command_of(RunOptions)
def run(request: RunOptions, output: Output, ctx: typer.Context) -> NextCommand:
    """Run a pipeline of steps from a file.

    Example:

        curate run curate.toml --dry-run
        curate run curate.toml
        curate run curate.toml --again dedup

    A step is a table of the file, in order, with the options of its command:

        [score]
        source = "photos"
        [dedup]
        [best]
        run = "filter"
        keep-top = "80%"

    Each step writes curated/STEP.parquet next to the file (folder = "..." names another folder). A step is skipped if
    its options and the files that it read and wrote are unchanged, so a killed run resumes. pipeline.receipt.json
    covers all steps, and `curate verify` checks it. --dry-run shows how many rows each step keeps, up to the first step
    that must score images.
    """
    from curate.pipeline.run import run_file

    dry_run = request.dry_run
    commands = Typed(ctx.find_root().command, output.quiet or dry_run)
    result = run_file(replace(request, announce=output.note), commands)
    if output.json:
        emit(_plain(result, dry_run))
    elif dry_run or not output.quiet:
        _report(result, dry_run)
    if result.code:
        stopped = result.steps[-1].name
        if result.code < KILLED:
            say(f"stopped at step {stopped}; fix it and repeat the command, or repeat that step with --again {stopped}")
        raise typer.Exit(result.code)
    if dry_run:
        return rerun()
    return suggest("run", request.file) if result.receipt is None else suggest("verify", result.receipt)


class Typed:
    """Runs command lines in this process; their output goes to stderr, with ``quiet`` only errors.

    Commands in ``heard`` print their progress, not their result, even if quiet.
    """

    def __init__(self, group: Any, quiet: bool, heard: Container[str] = ()) -> None:
        self.group, self.quiet, self.heard = group, quiet, heard

    def parameters(self, command: str) -> list[Any]:
        """Return the parameters of a command."""
        return list(self.group.commands[command].params)

    def check(self, command: str, words: list[str]) -> None:
        """Raise ``InputError`` if the command cannot parse the line."""
        try:
            self.group.commands[command].make_context(command, list(words))
        except USAGE as error:
            raise InputError(f"curate {command}: {error.format_message()}") from None

    def run(self, command: str, words: list[str]) -> int:
        """Run a command and return its exit code; in a cleaned folder, update keys of renamed images in verdicts."""
        from curate.cleaning.changes import note_renamed

        called = self.group.commands[command]
        quiet = self.quiet and command not in self.heard
        words = [*(["--quiet"] if quiet else []), *words]
        with redirect_stdout(sys.stderr):
            try:
                brief = BRIEF if self.quiet and not quiet else None
                with called.make_context(f"curate {command}", words, obj=brief) as context:
                    called.invoke(context)
            except typer.Exit as stop:
                return int(stop.exit_code)
        if command == "score":
            note_renamed(Path())  # steps run in the folder of their file
        return 0


def _report(result: "PipelineResult", dry_run: bool) -> None:
    rows: list[tuple[object, ...]] = []
    for step in result.steps:
        stage = step.stage
        rows.append((step.name, stage.rows_in if stage else "", stage.rows_out if stage else "", step.state))
        rows += [("", "", -lost, why) for why, lost in (stage.lost.items() if stage else ())]
    show_table(rows, header=("step", "rows in", "rows out", ""), right=2)
    for step in result.steps:
        if dry_run and step.state == "to do":
            show(f"to do: {step.command}")
    if dry_run:
        say(DRY_RUN)
    if result.receipt is not None:
        say(f"receipt: {result.receipt}")


def _plain(result: "PipelineResult", dry_run: bool) -> dict[str, Any]:
    from dataclasses import asdict

    places = {name: str(path) if (path := getattr(result, name)) else None for name in ("folder", "receipt")}
    return {**asdict(result), **places, "dry_run": dry_run}
