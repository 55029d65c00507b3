"""The command line: one visible list of commands, and what a mistake of the user's looks like."""

import errno
import functools
import gc
import inspect
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from curate.commands import (
    audit,
    audit_plan,
    balance,
    cache,
    calibrate,
    clean,
    compare,
    convert,
    dedup,
    diff,
    doctor,
    evaluate,
    explain,
    export,
    fit,
    info,
    issues,
    labels,
    merge,
    models,
    plot,
    retrieve,
    rounds,
    score,
    select,
    selftest,
    sheet,
    split,
    train,
    verify,
    view,
)
from curate.commands import filter as filter_command
from curate.commands import report as report_command
from curate.commands import run as run_command
from curate.commands.groups import grouped, plain_app
from curate.commands.methods import MethodCommand
from curate.commands.nested import with_subcommand
from curate.commands.options import refuse_urls
from curate.commands.order import OrderedCommand
from curate.commands.printing import say
from curate.version import __version__
from scoring.errors import InputError

EXIT_MISTAKE = 1
EXIT_INTERRUPTED = 130
ENDED = {"SIGTERM": "terminated", "SIGHUP": "the terminal is gone"}  # signals that end a command, but for Ctrl-C
AGAIN = "repeat the command to go on"
DISK_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EFBIG, errno.EIO, errno.ENAMETOOLONG}
)

# Headings of --help, in the order of a reviewer's work.
SCORE, CURATE, LOOK, TRAIN = "Score", "Curate", "Look", "Train"

app = plain_app(
    add_completion=True,
    name="curate",
    cls=grouped(SCORE, CURATE, LOOK, TRAIN),
    help="Turn a folder of images into the subset worth training on: score them, then filter, deduplicate, select.",
    no_args_is_help=True,
)


class Ended(SystemExit):
    """A signal asks the command to end: it unwinds, so that temporary files are removed."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = signal.Signals(number)


class NoPandas(MetaPathFinder):
    """A finder by which pandas is not there for pyarrow.

    pyarrow's compiled code imports it, which takes 0.4 s, to see whether what it is given is a Series. None is, for
    pandas is not used here. Other libraries find it.
    """

    USERS = frozenset({"curate", "scoring", "trainers", "pyarrow"})  # whose compiled calls are pyarrow's

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise ImportError for pandas where one of these asks, and leave all else to the next finder."""
        if name == "pandas":
            frame = inspect.currentframe()
            while frame is not None and (frame.f_code is self.find_spec.__code__ or _imports(frame)):
                frame = frame.f_back
            if frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in self.USERS:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _imports(frame: FrameType) -> bool:
    """Whether a frame is one of Python's own import system."""
    return str(frame.f_globals.get("__name__")).startswith("importlib")


def user_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn mistakes into one line on stderr and an exit code; bugs keep their traceback.

    ``InputError`` and a disk or folder that refuses: 1. Ctrl-C: 130. Other signals that ask for an end: 128 and their
    number. A reader that went away: 1, in silence.
    """

    @functools.wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            refuse_urls(kwargs)
            command(*args, **kwargs)
            sys.stdout.flush()
        except InputError as error:
            _stop(f"error: {error}", EXIT_MISTAKE)
        except KeyboardInterrupt:
            _stop(f"interrupted; {AGAIN}", EXIT_INTERRUPTED)
        except Ended as ended:
            with suppress(OSError):  # the terminal that it would be said on
                say(f"{ENDED[ended.number.name]}; {AGAIN}")
            raise typer.Exit(128 + ended.number) from None
        except BrokenPipeError:
            with suppress(OSError):  # or the interpreter complains when it flushes at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_MISTAKE) from None
        except OSError as error:
            if error.errno not in DISK_ERRORS:
                raise
            place = f" ({error.filename})" if error.filename else ""
            _stop(f"error: {error.strerror}{place}; nothing that was finished is lost", EXIT_MISTAKE)

    return guarded


def _stop(text: str, code: int) -> NoReturn:
    say(text)
    raise typer.Exit(code)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"curate {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Turn a folder of images into the subset worth training on: score them, then filter, deduplicate, select."""


# In the order that --help lists them.
app.command("score", rich_help_panel=SCORE, no_args_is_help=True)(user_errors(score.run))
app.command("fit", rich_help_panel=SCORE, no_args_is_help=True)(user_errors(fit.run))
app.command("merge", rich_help_panel=SCORE, no_args_is_help=True)(user_errors(merge.run))
app.command("clean", rich_help_panel=CURATE, no_args_is_help=True)(user_errors(clean.run))
app.command("filter", rich_help_panel=CURATE, cls=OrderedCommand, no_args_is_help=True)(user_errors(filter_command.run))
app.command("issues", rich_help_panel=CURATE, no_args_is_help=True)(user_errors(issues.run))
app.command("dedup", rich_help_panel=CURATE, cls=OrderedCommand, no_args_is_help=True)(user_errors(dedup.run))
app.command("labels", rich_help_panel=CURATE, no_args_is_help=True)(user_errors(labels.run))
app.command(
    "audit", cls=with_subcommand("plan", user_errors(audit_plan.run)), rich_help_panel=CURATE, no_args_is_help=True
)(user_errors(audit.run))
app.command("calibrate", rich_help_panel=CURATE, no_args_is_help=True)(user_errors(calibrate.run))
app.command("select", rich_help_panel=CURATE, no_args_is_help=True)(user_errors(select.run))
app.command("balance", rich_help_panel=CURATE, no_args_is_help=True)(user_errors(balance.run))
app.command("split", rich_help_panel=CURATE, cls=OrderedCommand, no_args_is_help=True)(user_errors(split.run))
app.add_typer(rounds.group(user_errors), rich_help_panel=CURATE, name="round")
app.command("run", rich_help_panel=CURATE, no_args_is_help=True)(user_errors(run_command.run))
app.command("info", rich_help_panel=LOOK, no_args_is_help=True)(user_errors(info.run))
app.command("sheet", rich_help_panel=LOOK, no_args_is_help=True)(user_errors(sheet.run))
app.command("retrieve", rich_help_panel=LOOK, no_args_is_help=True)(user_errors(retrieve.run))
app.command("report", rich_help_panel=LOOK, no_args_is_help=True)(user_errors(report_command.run))
app.command("view", rich_help_panel=LOOK, no_args_is_help=True)(user_errors(view.run))
app.command("plot", rich_help_panel=LOOK, no_args_is_help=True)(user_errors(plot.run))
app.command("evaluate", rich_help_panel=LOOK, no_args_is_help=True)(user_errors(evaluate.run))
app.command("compare", rich_help_panel=LOOK, no_args_is_help=True)(user_errors(compare.run))
app.command("selftest", rich_help_panel=LOOK, no_args_is_help=True)(user_errors(selftest.run))
app.command("verify", rich_help_panel=LOOK, no_args_is_help=True)(user_errors(verify.run))
app.command("explain", rich_help_panel=LOOK, no_args_is_help=True)(user_errors(explain.run))
app.command("diff", rich_help_panel=LOOK, no_args_is_help=True)(user_errors(diff.run))
app.command("export", rich_help_panel=LOOK, no_args_is_help=True)(user_errors(export.run))
app.command("train", rich_help_panel=TRAIN, cls=MethodCommand, no_args_is_help=True)(user_errors(train.run))
app.command("cache", rich_help_panel=TRAIN, no_args_is_help=True)(user_errors(cache.run))
app.command("doctor", rich_help_panel=LOOK)(user_errors(doctor.run))
app.command("models", rich_help_panel=TRAIN, cls=with_subcommand("convert", user_errors(convert.run)))(
    user_errors(models.run)
)


def _on_signal(number: int, frame: FrameType | None) -> NoReturn:
    raise Ended(number)


def main() -> None:
    """Run the command line; the entry point of ``curate``."""
    with suppress(ValueError):  # not in the main thread: the main thread handles signals
        for name in ENDED:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores one
                signal.signal(number, _on_signal)
    sys.meta_path.insert(0, NoPandas())
    gc.set_threshold(50_000)  # modules are no garbage: looking for it takes a twentieth of the start
    app()
