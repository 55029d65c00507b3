"""Atomic files: written under a temporary name, flushed, then renamed."""

import errno
import glob
import hashlib
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from scoring.errors import InputError
from scoring.system import CREATE, RENAMES_OPEN_FILES
from scoring.temporaries import folder_lock, hold_if_free, make_held, sweep, temporary_stem

# Errors of the system due to the path or disk; other errors are bugs.
PLACE_ERRORS: dict[int, str] = {
    errno.ENOSPC: "the disk is full; free some space or choose another folder",
    errno.EDQUOT: "the disk quota is used up; free some space or choose another folder",
    errno.EFBIG: "the file would be larger than the system allows here; choose another folder",
    errno.EACCES: "permission denied; choose a writable folder",
    errno.EPERM: "permission denied; choose a writable folder",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.ENOENT: "the folder is gone, or accepts no files, like /proc; choose another folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder; choose another path",
    errno.EISDIR: "it is a folder; pass the path of a file",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.EIO: "the disk reports an input/output error; choose another disk",
}


@contextmanager
def place_errors(path: str | Path) -> Iterator[None]:
    """Turn file system errors into a one-line ``InputError``; others pass unchanged."""
    try:
        yield
    except OSError as error:
        reason = PLACE_ERRORS.get(error.errno or 0)
        if reason is None:
            raise
        raise InputError(f"cannot write {path}: {reason}") from None


def refuse_existing(path: Path, *, overwrite: bool = False) -> None:
    """Raise ``InputError`` if no file can be written to a path: it is a folder, or exists without ``overwrite``.

    Call it before the work; ``AtomicFile`` checks again when it is created and published. Temporary files that killed
    processes left for this path are removed.
    """
    with place_errors(path):
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return
    if stat.S_ISDIR(mode):
        raise InputError(f"cannot write {path}: it is a folder; pass the path of a file")
    if not overwrite:
        _refuse_finished([path])
        raise InputError(f"{path} exists already; choose another name, or replace it with --overwrite")


def _published_leftovers(path: Path) -> Iterator[Path]:
    """Yield each leftover temporary file of a path that is a hard link of the file at that path, while locking it."""
    for temporary in path.parent.glob(f"{glob.escape(temporary_stem(path))}*"):
        with suppress(FileNotFoundError), hold_if_free(temporary) as free:
            if free and path.is_file() and not path.is_symlink() and temporary.samefile(path):
                yield temporary


def _refuse_finished(paths: Sequence[Path]) -> None:
    """Remove leftovers; report finished files if the process that wrote them was killed just after the rename."""
    finished = False
    for path in paths:
        for temporary in _published_leftovers(path):
            temporary.unlink(missing_ok=True)
            finished = True
    sweep_outputs(paths)
    if finished:
        raise InputError(
            f"{paths[-1]} exists already and is complete: the run that wrote it was interrupted later; "
            "nothing is left to do (--overwrite writes it again)"
        )


def require_folder(out: Path) -> None:
    """Raise ``InputError`` unless the folder of ``out`` is writable or can be created; creates nothing."""
    folder = out.absolute().parent
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    problem = 0
    if not folder.is_dir():
        problem = errno.ENOTDIR
    elif not os.access(folder, os.W_OK):
        flags = os.statvfs(folder).f_flag if hasattr(os, "statvfs") else 0
        problem = errno.EROFS if flags & getattr(os, "ST_RDONLY", 0) else errno.EACCES
    if problem:
        raise InputError(f"cannot write {out}: {PLACE_ERRORS[problem]}")


class Atomic(ABC):
    """A file or folder that appears under its name complete or not at all: a context manager.

    Leaving a ``with`` block cleanly seals and publishes it, leaving it by an exception removes it; or call ``seal``,
    ``publish`` and ``discard``.

    Attributes:
        path: the final name.
        overwrite: whether it replaces what is there.
        temporary: its name until it is published.
    """

    path: Path
    overwrite: bool
    temporary: Path
    _held: int  # closed last, which unlocks the temporary

    @abstractmethod
    def seal(self) -> None:
        """Flush to disk and close; what is complete keeps its temporary name."""

    @abstractmethod
    def take_name(self) -> None:
        """Take the final name, after ``seal``."""

    @abstractmethod
    def discard(self) -> None:
        """Remove the temporary name; the final name is not touched."""

    def publish(self) -> None:
        """Seal and rename; a name taken in the meantime is refused unless ``overwrite``."""
        commit_together([self])

    def _let_go(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.publish()
        finally:
            self.discard()


class AtomicFile(Atomic):
    """A new file that appears under its name complete or not at all.

    The bytes go to ``.NAME.tmp.<pid>.<random>`` in the same folder.

    Args:
        path: the final name; missing folders above it are made.
        overwrite: replace an existing file, when publishing.

    Attributes:
        sha256: hex digest of the bytes written; set by ``seal``.
        n_bytes: how many bytes were written so far.

    Raises:
        InputError: if the path exists and may not be replaced, is a folder, or cannot be written (full disk, no
            permission, a file where a folder is needed).
    """

    def __init__(self, path: str | Path, *, overwrite: bool = False) -> None:
        self.path = Path(path)
        self.overwrite = overwrite
        self.n_bytes = 0
        self.sha256 = ""
        self._hash = hashlib.sha256()
        refuse_existing(self.path, overwrite=overwrite)
        with place_errors(self.path):
            self.temporary, handle = make_held(self.path, lambda path: os.open(path, CREATE, 0o666))
        self._file = os.fdopen(handle, "wb")
        self._held = os.dup(handle)

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._file.closed

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes; return how many were written."""
        self._hash.update(data)
        with place_errors(self.path):
            n = self._file.write(data)
        self.n_bytes += n
        return n

    def flush(self) -> None:
        """Flush buffered bytes to the system."""
        with place_errors(self.path):
            self._file.flush()

    def tell(self) -> int:
        """Return the position, which is always the end."""
        return self.n_bytes

    def seal(self) -> None:
        """Flush to disk and close; the complete file keeps its temporary name."""
        if self._file.closed:
            return
        with place_errors(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        self.sha256 = self._hash.hexdigest()

    def take_name(self) -> None:
        """Rename the sealed file; if the name was free, keep the temporary name too until ``discard``."""
        if not RENAMES_OPEN_FILES:
            self._let_go()
        with place_errors(self.path):
            if self.overwrite:
                self.temporary.replace(self.path)
            else:
                _name_if_free(self.temporary, self.path)

    def discard(self) -> None:
        """Remove the temporary file; the final name is not touched."""
        with suppress(OSError):  # closing flushes, which may fail again on a full disk
            self._file.close()
        if not RENAMES_OPEN_FILES:
            self._let_go()
        try:
            self.temporary.unlink(missing_ok=True)
        finally:
            self._let_go()


def _name_if_free(temporary: Path, path: Path) -> None:
    """Rename without replacing: by a hard link, or, without links, after a check."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise InputError(f"{path} appeared while it was being written; choose another name") from None
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        if os.path.lexists(path):
            raise InputError(f"{path} appeared while it was being written; choose another name") from None
        temporary.replace(path)


def sync_folder(folder: Path) -> None:
    """Make renames in ``folder`` survive a power loss, if the system can sync folders."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def commit_together(files: Sequence[Atomic]) -> None:
    """Seal all files, then rename them in the given order; the last marks the set as complete.

    The last file is renamed when the others are on the disk, and is removed first when files are replaced: if it
    exists, all files come from the same run, even after a crash. ``undo_unfinished`` renames an incomplete set back. If
    a rename fails, earlier new names are removed (a replaced file stays replaced), all temporaries are removed and the
    error is raised. Processes that rename files in the same folder take turns. The last may be a folder, which replaces
    another in one step. Raises ``InputError`` as ``AtomicFile``.
    """
    named: list[Atomic] = []
    *others, last = files
    try:
        for file in files:
            file.seal()
        with folder_lock(last.path.parent), place_errors(last.path):
            if others and last.overwrite and not last.path.is_dir():
                last.path.unlink(missing_ok=True)
                sync_folder(last.path.parent)
            for file in others:
                file.take_name()
                named.append(file)
            for folder in {file.path.parent for file in others}:
                sync_folder(folder)
            last.take_name()
            named.append(last)
            sync_folder(last.path.parent)
    except BaseException:
        with place_errors(last.path):
            for file in named:
                if not file.overwrite and file.path.is_dir():
                    file.path.rename(file.temporary)
                elif not file.overwrite:
                    file.path.unlink(missing_ok=True)
        raise
    finally:
        for file in files:
            file.discard()
    with place_errors(last.path):
        for folder in {file.path.parent for file in files} if others else ():
            sync_folder(folder)  # else temporaries could reappear after a power failure


def sweep_outputs(paths: Sequence[Path]) -> None:
    """Remove leftovers of killed processes for several outputs, before existing ones are refused."""
    for path in paths:
        sweep(path.parent, temporary_stem(path))


def undo_unfinished(paths: Sequence[Path]) -> None:
    """Undo the renames of a process that was killed in the middle of a set, so that the set can be written again.

    Only if the last file is missing, and only for files that are hard links of their unlocked temporary, so that no
    file of the user is removed. If the last file exists, only temporaries are removed.

    Args:
        paths: in the order of ``commit_together``.

    Raises:
        InputError: if that process had renamed all files.
    """
    if os.path.lexists(paths[-1]):
        _refuse_finished(paths)
        return
    for path in paths[:-1]:
        for temporary in _published_leftovers(path):
            with place_errors(path):
                path.unlink(missing_ok=True)
                temporary.unlink(missing_ok=True)
