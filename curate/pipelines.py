"""`curate.run`: the steps of a file, as the command line runs them."""

from collections.abc import Callable
from pathlib import Path

import typer

from curate.cli import app
from curate.commands.run import Typed
from curate.pipeline.file import read_pipeline
from curate.pipeline.run import PipelineResult, run_pipeline


def run(
    file: str | Path,
    *,
    until: str | None = None,
    again: str | None = None,
    dry_run: bool = False,
    allow_outside: bool = False,
    announce: Callable[[str], None] = lambda text: None,
) -> PipelineResult:
    """Run the steps of a file, each on what the one before it wrote; what is up to date is not done again.

    A call that was stopped continues when it is repeated. The steps print nothing but errors.

    Args:
        file: the pipeline, such as ``curate.toml``.
        until: step to stop after.
        again: step to do again, with what follows from it.
        dry_run: write nothing.
        allow_outside: let steps write outside of the folder that holds the file.
        announce: called with what the user should know, in words.

    Returns:
        What became of each step; its ``code`` is not 0 where one stopped.

    Raises:
        InputError: for a file or step that cannot be used.
    """
    group = typer.main.get_command(app)
    return run_pipeline(
        read_pipeline(Path(file)),
        Typed(group, quiet=True),
        until=until,
        again=again,
        dry_run=dry_run,
        allow_outside=allow_outside,
        announce=announce,
    )
