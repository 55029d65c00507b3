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
    """Run the steps of a file, each on what the one before it wrote; what is up to date is not done again.

    A call that was stopped continues when it is repeated. The steps print nothing but errors.

    Returns:
        What became of each step; its ``code`` is not 0 where one stopped.

    Raises:
        InputError: for a file or step that cannot be used.
    """
    return run_file(options, Typed(typer.main.get_command(app), quiet=True))


run = callable_of(RunOptions, run_run)


def run_clean(options: CleanOptions) -> CleanResult:
    """Score images, drop what is unusable and copies, and write a subset, a report and findings to review.

    Only what is unusable in every domain and exact or near copies are dropped. A call that was stopped continues when
    it is repeated; one where all is up to date does nothing.

    Returns:
        How many images came in, were dropped and why, and are to be reviewed; and where all lies.

    Raises:
        InputError: for a source, folder or option that cannot be used, or a step that stopped.
    """
    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            return run_cleaning(options, Typed(typer.main.get_command(app), quiet=True))
    except Stopped as stopped:
        errors = [line for line in printed.getvalue().splitlines() if line.startswith("error: ")]
        raise InputError("; ".join([*(line.removeprefix("error: ") for line in errors), str(stopped)])) from None


clean = callable_of(CleanOptions, run_clean)
