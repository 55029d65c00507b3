"""Run commands with what Windows lacks taken away: arguments are lines of the command line. Linux only, for tests.

Modules, functions and flags that Windows does not have are gone, and a file or folder that is open can be neither
renamed nor removed, as there.
"""

import os
import random  # noqa: F401 (registers itself at fork when it is loaded)
import shlex
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

MODULES = ("fcntl", "resource", "pwd", "grp", "termios")
LACKING = {
    os: ("memfd_create", "pread", "register_at_fork", "sched_getaffinity", "getuid", "statvfs", "O_DIRECTORY",
         "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY"),
    socket: ("send_fds", "recv_fds", "AF_UNIX"),
    signal: ("SIGPROF", "setitimer", "ITIMER_PROF", "pthread_sigmask"),
}  # fmt: skip


def take_away() -> None:
    """Make this process, from now on, lack what Windows lacks."""
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # importing it raises ImportError
    for module, names in LACKING.items():
        for name in names:
            delattr(module, name)
    for name in ("rename", "replace", "unlink", "remove"):
        setattr(os, name, refusing_open(getattr(os, name)))


def refusing_open(call):
    """Return a function of `os` that refuses a path which this process has open."""

    def refuse(path, *others, **options):
        if "dir_fd" not in options:
            for place in (path, *others[:1]):
                full = os.path.realpath(os.fsdecode(place))
                if any(one == full or one.startswith(full + os.sep) for one in open_paths()):
                    raise PermissionError(13, "open in this process", full)
        return call(path, *others, **options)

    return refuse


def open_paths():
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            yield str(handle.readlink())


if __name__ == "__main__":
    import pyarrow  # noqa: F401 (these three take what they need when they are loaded)

    if any(line.startswith(("score", "dedup", "round")) for line in sys.argv[1:]):
        import torch
        import torchvision  # noqa: F401

        torch.set_num_threads(1)
    take_away()
    from scoring import system

    system.PASSES_SOCKETS = system.RENAMES_OPEN_FILES = False
    from scoring.images import supervised

    here = str(Path(__file__).resolve().parent)
    supervised._SCRIPT = supervised._SCRIPT.replace(
        "from {module}", f"sys.path.append({here!r}); import as_windows; as_windows.take_away(); from {{module}}", 1
    )
    from typer.testing import CliRunner

    from curate.cli import app

    for line in sys.argv[1:]:
        got = CliRunner().invoke(app, shlex.split(line), catch_exceptions=False)
        print(f"$ {line}\n{got.output}", flush=True)
        if got.exit_code:
            sys.exit(f"exit {got.exit_code}: {line}")
