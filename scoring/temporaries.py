"""Temporary files and folders: locked by the process that created them; unlocked ones are leftovers, and removed."""

import errno
import glob
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scoring.system import HAS_FLOCK, open_folder, try_flock

SETTLED = 2.0  # seconds after which the creator of a temporary has locked it, if the folder cannot be locked
PATIENCE = 1.0  # seconds to wait for the lock of a folder


def temporary_stem(path: Path) -> str:
    """Return the prefix of the names of all temporary files of a path."""
    return f".{path.name[:120]}.tmp."


def make_folder(folder: Path) -> None:
    """Create a folder and its parents if missing; may raise OSError, NotADirectoryError if a parent is a file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None


def make_held(path: Path, make: Callable[[Path], int]) -> tuple[Path, int]:
    """Remove leftovers of killed processes for a path, and create a temporary that this process locks.

    Args:
        path: the final name; the temporary is ``.NAME.tmp.<pid>.<random>`` next to it. Missing folders are created.
        make: creates the temporary, and returns its descriptor.

    Returns:
        The temporary, and a descriptor that locks it until it and all its duplicates are closed.
    """
    make_folder(path.parent)
    sweep(path.parent, temporary_stem(path))
    temporary = path.with_name(f"{temporary_stem(path)}{os.getpid()}.{secrets.token_hex(4)}")
    with folder_lock(path.parent, shared=True):  # so that no sweep sees it before it is locked
        handle = make(temporary)
        try_flock(handle)  # where nothing can be locked (Windows), files of dead processes stay
    return temporary, handle


@contextmanager
def folder_lock(folder: Path, *, shared: bool = False, patience: float = PATIENCE) -> Iterator[bool]:
    """Lock a folder briefly against other processes that create, rename or remove files in it.

    Yields whether it is locked: False if folders cannot be locked, or another process holds it for longer than
    ``patience`` seconds. Without the lock everything still works, except in a race with another process.
    """
    if f".tmp.{os.getpid()}." in folder.name:  # a temporary folder of this process, already locked
        yield True
        return
    try:
        handle = open_folder(folder)
    except OSError:  # creating a file there reports the error
        yield False
        return
    try:
        until = time.monotonic() + patience
        while not (held := try_flock(handle, shared=shared)) and HAS_FLOCK and time.monotonic() < until:
            time.sleep(0.005)
        yield held
    finally:
        os.close(handle)


def sweep(folder: Path, stem: str) -> None:
    """Remove the temporary files of an output that no living process locks.

    If the folder cannot be locked meanwhile, recent ones are kept, since they may be about to be locked.
    """
    with suppress(OSError):  # errors are reported when the output is created
        leftovers = [path for path in folder.glob(f"{glob.escape(stem)}*") if _removable(path)]
        if not leftovers:
            return
        with folder_lock(folder, patience=0) as held:
            for leftover in leftovers:
                if held or time.time() - leftover.lstat().st_mtime >= SETTLED:
                    _remove_if_free(leftover)


def _removable(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _remove_if_free(leftover: Path) -> None:
    with hold_if_free(leftover) as free:
        if free and leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        elif free:
            leftover.unlink()


@contextmanager
def hold_if_free(path: Path) -> Iterator[bool]:
    """Lock a temporary if no living process does; yields whether that succeeded. Links are never locked."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP, errno.EACCES):
            raise
        yield False
        return
    try:
        yield try_flock(handle)
    finally:
        os.close(handle)
