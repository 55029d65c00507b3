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
ADDED = "Of other packages"
BRIEF = (LOOK, MEASURE, TRACE, TRAIN, ADDED)  # headings whose commands are listed by name only


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


# To add a command, add a line: its name, also of its module, and its heading, in help order. Other packages add theirs
# by the entry point group ``curate.commands``. A module has a function ``run``, and may have PARSER, the class that
# parses the line, SUBCOMMANDS, further functions, and RUNS_ALONE or RUNS_OTHERS: without arguments, or other commands.
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
MODULES = {"round": "rounds"}  # of commands with a module of another name
LISTED = (["--help"], ["-h"], ["help"])  # command lines that request the list of commands


def command_line(names: Collection[str], *, listed: bool = False) -> typer.Typer:
    """Return the command line with only the named commands, so that the modules of others are not imported.

    ``listed`` leaves out what a list of commands does not show: options, which take half of the time, and brief
    commands.
    """
    known = dict(COMMANDS) if set(names) <= set(dict(COMMANDS)) else all_commands()
    brief = [heading for heading in BRIEF if heading in known.values()]
    line = plain_app(
        add_completion=True,
        name="curate",
        cls=grouped(START, CHOOSE, *brief, brief=brief),
        help="Turn a folder of images into the subset worth training on: score them, then filter, deduplicate, select.",
        no_args_is_help=True,
    )
    line.callback()(root)
    for name, heading in ((each, known[each]) for each in known if each in names):
        if listed and heading in BRIEF:
            line.command(name, rich_help_panel=heading)(lambda: None)
            continue
        module = module_of(name)
        if hasattr(module, "group"):
            line.add_typer(module.group(user_errors), rich_help_panel=heading, name=name)
        elif listed:
            line.command(name, rich_help_panel=heading, help=module.run.__doc__)(lambda: None)
        else:
            inner = {each: user_errors(getattr(module, each)) for each in getattr(module, "SUBCOMMANDS", ())}
            cls = with_subcommands(**inner) if inner else getattr(module, "PARSER", None)
            alone = getattr(module, "RUNS_ALONE", False)
            line.command(name, rich_help_panel=heading, cls=cls, no_args_is_help=not alone)(user_errors(module.run))
    return line


def all_commands() -> dict[str, str]:
    """Return name -> heading of all commands, also of other packages; InputError for a name that is taken."""
    from scoring import plugins

    known = dict(COMMANDS)
    added = plugins.plugins(plugins.COMMANDS)
    if taken := next((name for name in added if name in known), None):
        raise InputError(
            f"{plugins.package_of(added[taken])} adds a command {taken!r}, which curate already has; remove that "
            "package, or rename its command"
        )
    return known | dict.fromkeys(added, ADDED)


def module_of(name: str) -> Any:
    """Return the module of a command, imported; InputError for one of another package that cannot be used."""
    if name in dict(COMMANDS):
        return import_module(f"curate.commands.{MODULES.get(name, name)}")
    from scoring import plugins

    module = plugins.load_plugin(plugins.plugins(plugins.COMMANDS)[name])
    if not callable(getattr(module, "run", None)) or not (module.run.__doc__ or "").strip():
        raise InputError(
            f"the plug-in {name!r} is not a command: expected a module with a documented function run, got {module!r}"
        )
    return module


@functools.cache
def _full_command_line() -> typer.Typer:
    """Return the command line with all commands, except unusable ones of other packages."""
    usable = [name for name, _ in COMMANDS]
    for name in set(all_commands()) - {*usable}:
        with suppress(InputError):
            module_of(name)
            usable.append(name)
    return command_line(usable)


def _line_for(words: list[str]) -> typer.Typer:
    """Return the command line with the commands that a typed line needs."""
    first = words[0] if words else ""
    if first in dict(COMMANDS) and not getattr(module_of(first), "RUNS_OTHERS", False):
        return command_line([first])
    if first in dict(COMMANDS):
        return command_line([name for name, _ in COMMANDS])
    known = all_commands()
    if words in LISTED:
        return command_line(known, listed=True)
    return command_line([first]) if first in known else _full_command_line()


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
    try:
        line = _line_for(sys.argv[1:])
    except InputError as error:  # a package whose command cannot be used
        say(f"error: {error}")
        raise SystemExit(EXIT_MISTAKE) from None
    try:
        line()
    finally:
        with suppress(ValueError):
            for number in signal.valid_signals():  # at the exit, one ends the process without a traceback
                if signal.getsignal(number) is _on_signal:
                    signal.signal(number, signal.SIG_DFL)
