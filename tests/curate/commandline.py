"""The command line as a reviewer types it."""

from typer.testing import CliRunner

from curate.cli import app


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])
