"""A folder that one process holds. The lock is the kernel's, on an open file: a dead process no longer holds it."""

import fcntl
import os
import socket
import stat
from pathlib import Path
from typing import Self

from scoring.atomic import place_errors
from scoring.errors import InputError

LOCK = "lock"


class HeldFolder:
    """A folder that is made if it is not there, and that at most one live process holds: a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = -1

    def __enter__(self) -> Self:
        self._lock = hold_folder(self.folder)
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def hold_folder(folder: Path) -> int:
    """Make a folder if it is not there, and return the descriptor that holds it until it is closed.

    A link in the lock's place is not followed: what it points at would be emptied.

    Raises:
        InputError: if the folder cannot be made or written to, another live process holds it, or the lock is no file.
    """
    path = folder / LOCK
    with place_errors(folder):
        folder.mkdir(exist_ok=True)
        if path.is_symlink():
            raise InputError(f"expected a file at {path}, got a link; it is left alone: choose another --out")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InputError(f"expected a file at {path}, got something else; it is left alone: choose another --out")
        _take(handle, folder)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _take(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
        raise InputError(f"{folder} is being written by {holder}; wait for it, or write elsewhere") from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
