"""A folder locked by one process: a kernel lock on an open file, released when the process ends."""

import os
import socket
import stat
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from scoring.atomic import place_errors
from scoring.errors import InputError
from scoring.system import HAS_FLOCK, try_flock
from scoring.temporaries import make_folder

if TYPE_CHECKING:
    from filelock import BaseFileLock

LOCK = "lock"


class HeldFolder:
    """A context manager for a folder, created if missing, that only one live process holds.

    Args:
        folder: to lock.
        known_as: name in messages if another process holds it; by default the folder.
    """

    def __init__(self, folder: Path, *, known_as: object = None) -> None:
        self.folder, self._known_as = folder, known_as
        self._lock = ExitStack()

    def __enter__(self) -> Self:
        if HAS_FLOCK:
            self._lock.callback(os.close, hold_folder(self.folder, known_as=self._known_as))
        else:
            self._lock.callback(hold_beside(self.folder, known_as=self._known_as).release)
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()


def hold_folder(folder: Path, *, known_as: object = None) -> int:
    """Create a folder if missing, and return the descriptor that locks it until closed.

    The lock file is opened without following links: their target would be truncated. Raises InputError if the folder
    cannot be created or written to, another live process holds it, or folder or lock are something else.
    """
    while True:
        handle = _open_lock(folder)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise InputError(
                    f"expected a file at {folder / LOCK}, got something else; it was not changed: choose another --out"
                )
            _take(handle, folder, folder if known_as is None else known_as)
            if _is_at(handle, folder / LOCK):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # the previous holder removed the file between opening and locking


def hold_beside(folder: Path, *, known_as: object = None) -> "BaseFileLock":
    """Create a folder if missing, and lock it by a file ``.NAME.lock`` next to it, on systems without flock.

    Windows cannot rename or remove a folder with an open file, so the lock is outside. Raises InputError if the folder
    cannot be created or written to, or another live process holds it.
    """
    from filelock import FileLock, Timeout

    held = FileLock(folder.with_name(f".{folder.name}.lock"), is_singleton=False)
    with place_errors(folder):
        _create(folder)
        try:
            held.acquire(blocking=False)
        except Timeout:
            raise _lock_error(folder if known_as is None else known_as, "another process") from None
        _create(folder)  # the previous holder may have renamed or removed the folder
    return held


def _lock_error(folder: object, holder: str) -> InputError:
    return InputError(f"{folder} is being written by {holder}; wait for it, or write elsewhere")


def _open_lock(folder: Path) -> int:
    path = folder / LOCK
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with place_errors(folder):
        _create(folder)
        if path.is_symlink():
            raise InputError(f"expected a file at {path}, got a link; it was not changed: choose another --out")
        try:
            return os.open(path, flags, 0o666)
        except FileNotFoundError:  # the folder was removed meanwhile
            _create(folder)
            return os.open(path, flags, 0o666)


def _create(folder: Path) -> None:
    try:
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    except FileExistsError:
        raise InputError(
            f"expected a folder at {folder}, or nothing, got something else; it was not changed: remove it, or choose "
            "another --out"
        ) from None


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _take(handle: int, folder: Path, known_as: object) -> None:
    if not try_flock(handle):
        holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
        raise _lock_error(known_as, holder)
    with place_errors(folder):
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
