"""`curate.run` and `curate.clean`: steps of a pipeline, as the command line runs them."""

import io
from contextlib import redirect_stderr

import typer

from curate.cleaning.options import CleanOptions
from curate.cleaning.result import CleanResult
from curate.cleaning.run import Stopped, run_cleaning
from curate.cli import app
from curate.commands.run import Typed
from curate.options.function import callable_of
from curate.pipeline.options import RunOptions
from curate.pipeline.run import PipelineResult, run_file
from scoring.errors import InputError


def run_run(options: RunOptions) -> PipelineResult:
    """Run the steps of a file in order; skip those that are up to date. Repeat an interrupted call to resume.

    Returns:
        The outcome of each step; its ``code`` is not 0 if a step failed.

    Raises:
        InputError: for a file or step that cannot be used.
    """
    return run_file(options, Typed(typer.main.get_command(app), quiet=True))


run = callable_of(RunOptions, run_run)


def run_clean(options: CleanOptions) -> CleanResult:
    """Score images, drop unusable ones and copies, and write a subset, a report and findings to review.

    Only images that are unusable in every domain and exact or near copies are dropped. Repeat an interrupted call to
    resume; if all is up to date, nothing is done.

    Returns:
        Numbers of images, of dropped ones by reason, and of those to review; and the output paths.

    Raises:
        InputError: for a source, folder or option that cannot be used, or a step that failed.
    """
    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            return run_cleaning(options, Typed(typer.main.get_command(app), quiet=True))
    except Stopped as stopped:
        errors = [line for line in printed.getvalue().splitlines() if line.startswith("error: ")]
        raise InputError("; ".join([*(line.removeprefix("error: ") for line in errors), str(stopped)])) from None


clean = callable_of(CleanOptions, run_clean)
