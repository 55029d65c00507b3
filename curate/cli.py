"""The command line: one visible list of commands, and the exit codes of user errors."""

import atexit
import errno
import functools
import gc
import inspect
import io
import os
import signal
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from curate.commands.elapsed import elapsed
from curate.commands.groups import grouped, plain_app, with_subcommands
from curate.commands.options import refuse_urls
from curate.commands.printing import say
from curate.version import __version__
from scoring.errors import InputError

EXIT_MISTAKE = 1
EXIT_INTERRUPTED = 130
ENDED = {"SIGTERM": "terminated", "SIGHUP": "the terminal is gone"}  # signals that end a command, except Ctrl-C
TRACEBACK = "CURATE_TRACEBACK"
AGAIN = "repeat the command to resume"
DISK_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EFBIG, errno.EIO, errno.ENAMETOOLONG}
)

# Headings of --help, in their order.
START, CHOOSE, LOOK = "Start here", "Choose images", "Look at tables and images"
MEASURE, TRACE, TRAIN = "Measure", "Trace and repeat", "Models"
BRIEF = (LOOK, MEASURE, TRACE, TRAIN)  # headings whose commands are listed by name only


class Ended(SystemExit):
    """A signal requests the end of the command: the stack unwinds, so that temporary files are removed."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = signal.Signals(number)


class NoPandas(MetaPathFinder):
    """A finder that hides pandas from pyarrow.

    pyarrow's compiled code imports pandas (0.4 s) to check whether a value is a Series. None is, since curate does not
    use pandas. Other libraries still find it.
    """

    USERS = frozenset({"curate", "scoring", "trainers", "pyarrow"})  # called by compiled code of pyarrow

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise ImportError for pandas if pyarrow imports it; return None otherwise."""
        if name == "pandas":
            frame = inspect.currentframe()
            while frame is not None and (frame.f_code is self.find_spec.__code__ or _imports(frame)):
                frame = frame.f_back
            if frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in self.USERS:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _imports(frame: FrameType) -> bool:
    """Return whether a frame belongs to Python's import system."""
    return str(frame.f_globals.get("__name__")).startswith("importlib")


def user_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn errors into one line on stderr and an exit code; bugs keep their traceback, unless they are in a plug-in.

    ``InputError`` or an OSError: 1. Ctrl-C: 130. Other terminating signals: 128 plus their number. A closed output
    pipe: 1, silently.
    """

    @functools.wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            refuse_urls(kwargs)
            with elapsed(quiet=bool(kwargs.get("quiet") or kwargs.get("json_"))):
                command(*args, **kwargs)
            sys.stdout.flush()
        except InputError as error:
            if not str(error):
                _stop_for_package(error)
                raise
            _stop(f"error: {error}", EXIT_MISTAKE)
        except KeyboardInterrupt:
            _stop(f"interrupted; {AGAIN}", EXIT_INTERRUPTED)
        except Ended as ended:
            with suppress(OSError):  # the terminal for the message is gone
                say(f"{ENDED[ended.number.name]}; {AGAIN}")
            raise typer.Exit(128 + ended.number) from None
        except SystemExit as stop:  # another process reported the reason, or a plug-in exits
            _stop_for_package(stop)
            raise
        except BrokenPipeError:
            with suppress(OSError):  # otherwise the interpreter prints an error when it flushes at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_MISTAKE) from None
        except OSError as error:
            if error.errno not in DISK_ERRORS:
                _stop_for_package(error)
                raise
            place = f" ({error.filename})" if error.filename else ""
            _stop(f"error: {error.strerror}{place}; nothing that was finished is lost", EXIT_MISTAKE)
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            _stop_for_package(error)
            raise

    return guarded


def _stop_for_package(error: BaseException) -> None:
    """Stop with one line if a plug-in package raised an exception."""
    from scoring.plugins import package_in

    if not os.environ.get(TRACEBACK) and (package := package_in(error)):
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        _stop(f"error: {package} raised {what}; repair or remove it ({TRACEBACK}=1 shows where)", EXIT_MISTAKE)


def _stop(text: str, code: int) -> NoReturn:
    say(text)
    raise typer.Exit(code)


def _show_version(show: bool) -> None:
    if show:
        typer.echo(f"curate {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Turn a folder of images into the subset worth training on: score them, then filter, deduplicate, select."""


# Every command in help order: its name (also of its module, whose PARSER, if any, parses the line) and its heading.
COMMANDS = (
    ("clean", START),
    ("score", START),
    ("issues", START),
    ("dedup", START),
    ("labels", START),
    ("review", START),
    ("split", START),
    ("report", START),
    ("export", START),
    ("filter", CHOOSE),
    ("select", CHOOSE),
    ("balance", CHOOSE),
    ("fit", CHOOSE),
    ("calibrate", CHOOSE),
    ("round", CHOOSE),
    ("info", LOOK),
    ("sheet", LOOK),
    ("retrieve", LOOK),
    ("plot", LOOK),
    ("merge", LOOK),
    ("evaluate", MEASURE),
    ("compare", MEASURE),
    ("selftest", MEASURE),
    ("doctor", MEASURE),
    ("run", TRACE),
    ("verify", TRACE),
    ("explain", TRACE),
    ("diff", TRACE),
    ("train", TRAIN),
    ("cache", TRAIN),
    ("models", TRAIN),
)
SUBCOMMANDS = {"review": ("plan", "verdicts"), "models": ("convert",)}  # further functions of the module
RUN_ALONE = {"doctor", "models"}  # can be run without arguments; other commands show their help
RUN_OTHERS = {"clean", "run"}  # runs commands as steps
LISTED = (["--help"], ["-h"], ["help"])  # command lines that request the list of commands


def command_line(names: Collection[str], *, listed: bool = False) -> typer.Typer:
    """Return the command line with only the named commands, so that the modules of others are not imported.

    ``listed`` leaves out what a list of commands does not show: options, which take half of the time, and brief
    commands.
    """
    line = plain_app(
        add_completion=True,
        name="curate",
        cls=grouped(START, CHOOSE, LOOK, MEASURE, TRACE, TRAIN, brief=BRIEF),
        help="Turn a folder of images into the subset worth training on: score them, then filter, deduplicate, select.",
        no_args_is_help=True,
    )
    line.callback()(root)
    for name, heading in (each for each in COMMANDS if each[0] in names):
        if name == "round":
            from curate.commands import rounds

            line.add_typer(rounds.group(user_errors), rich_help_panel=heading, name=name)
        elif listed:
            words = "" if heading in BRIEF else import_module(f"curate.commands.{name}").run.__doc__
            line.command(name, rich_help_panel=heading, help=words)(lambda: None)
        else:
            inner = {each: _run(name, each) for each in SUBCOMMANDS.get(name, ())}
            parser = getattr(import_module(f"curate.commands.{name}"), "PARSER", None)
            cls = with_subcommands(**inner) if inner else parser
            line.command(name, rich_help_panel=heading, cls=cls, no_args_is_help=name not in RUN_ALONE)(_run(name))
    return line


def _run(module: str, function: str = "run") -> Callable[..., None]:
    return user_errors(getattr(import_module(f"curate.commands.{module}"), function))


@functools.cache
def _full_command_line() -> typer.Typer:
    return command_line([name for name, *_ in COMMANDS])


def __getattr__(name: str) -> Any:
    """Return ``app``, the command line with all commands, created on first use."""
    if name == "app":
        return _full_command_line()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _on_signal(number: int, frame: FrameType | None) -> NoReturn:
    """End the command; the same signal again ends the process at once, without a traceback."""
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt if number == signal.SIGINT else Ended(number)


def _prepare_streams() -> None:
    """Open closed outputs to the null device, and escape characters that an output cannot encode."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if (encoding := sys.getfilesystemencoding()) != "utf-8":
        say(f"error: expected file names in UTF-8, got {encoding}; set PYTHONUTF8=1")
        raise SystemExit(EXIT_MISTAKE)


def main() -> None:
    """Run the command line; the entry point of ``curate``."""
    _prepare_streams()
    with suppress(ValueError):  # only the main thread handles signals
        for number in (getattr(signal, name) for name in ("SIGINT", *ENDED) if hasattr(signal, name)):
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):  # nohup ignores some
                signal.signal(number, _on_signal)
    os.environ.setdefault("GOMP_SPINCOUNT", "0")  # waiting threads sleep, which saves a sixth of the time of `clean`
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's threads wait busily, a third of `labels`
    sys.meta_path.insert(0, NoPandas())
    gc.set_threshold(50_000)  # no garbage collection of modules, which takes a twentieth of the start
    atexit.register(gc.freeze)  # and a tenth of a second at the end
    typed = {name for name, *_ in COMMANDS if name not in RUN_OTHERS}.intersection(sys.argv[1:2])
    if sys.argv[1:] in LISTED:
        line = command_line([name for name, *_ in COMMANDS], listed=True)
    else:
        line = command_line(typed) if typed else _full_command_line()
    try:
        line()
    finally:
        with suppress(ValueError):
            for number in signal.valid_signals():  # at the exit, one ends the process without a traceback
                if signal.getsignal(number) is _on_signal:
                    signal.signal(number, signal.SIG_DFL)
