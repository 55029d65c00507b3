"""Atomic folders: filled under a temporary name, flushed, then renamed."""

import ctypes
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scoring.atomic import Atomic, place_errors, sync_folder
from scoring.errors import InputError
from scoring.system import open_folder
from scoring.temporaries import make_held


class AtomicFolder(Atomic):
    """A new folder that appears under its name complete or not at all.

    It is filled as ``.NAME.tmp.<pid>.<random>`` in the same parent folder. The next run removes the leftovers of killed
    processes.

    Args:
        path: the final name; missing folders above it are made.
        overwrite: swap an existing folder (never a file or a link) with the complete new one in one step. On disks
            without an atomic exchange, a kill between two steps leaves the old folder as ``.NAME.<random>.old``.

    Raises:
        InputError: if the path exists and may not be replaced, or cannot be written.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path = path
        self.overwrite = overwrite and path.is_dir() and not path.is_symlink()
        if os.path.lexists(path) and not self.overwrite:
            raise InputError(f"{path} exists already; choose another name")
        with place_errors(path):
            self.temporary, self._held = make_held(path, _create)

    def write(self, name: str, data: bytes) -> None:
        """Write one file of the folder, flushed to disk; ``name`` must be trusted."""
        target = self.temporary / name
        with place_errors(self.path):
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())

    def seal(self) -> None:
        """Flush the names in the folder to disk; its files are already."""
        with place_errors(self.path):
            for folder, _, _ in os.walk(self.temporary):
                sync_folder(Path(folder))

    def take_name(self) -> None:
        """Rename the folder, after ``seal``; a name taken in the meantime is refused."""
        with place_errors(self.path):
            if self.overwrite:
                replace_folder(self.path, self.temporary)
            elif os.path.lexists(self.path):
                raise InputError(f"{self.path} appeared while it was being written; choose another name")
            else:
                self.temporary.rename(self.path)

    def discard(self) -> None:
        """Remove the temporary folder; the final name is not touched."""
        self._let_go()
        shutil.rmtree(self.temporary, ignore_errors=True)


@contextmanager
def held_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder next to a path, and remove it at the end; InputError if it cannot be created."""
    with place_errors(path):
        folder, handle = make_held(path, _create)
    try:
        yield folder
    finally:
        os.close(handle)
        shutil.rmtree(folder, ignore_errors=True)


def _create(folder: Path) -> int:
    folder.mkdir()
    return open_folder(folder)


def exchange(path: Path, other: Path) -> bool:
    """Swap the names of two files or folders atomically; False if the system or disk cannot."""
    if os.name == "nt":
        return False
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    cwd, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return call is not None and call(cwd, os.fsencode(path), cwd, os.fsencode(other), swap) == 0


def replace_folder(path: Path, new: Path) -> None:
    """Replace an existing folder by a new one; the old one gets its name back on failure."""
    if exchange(path, new):
        sync_folder(path.parent)
        shutil.rmtree(new, ignore_errors=True)  # under its temporary name, so that leftovers are removed later
        return
    old = path.with_name(f".{path.name[:120]}.{secrets.token_hex(4)}.old")
    path.rename(old)
    try:
        new.rename(path)
    except BaseException:
        old.rename(path)
        raise
    sync_folder(path.parent)
    shutil.rmtree(old)
