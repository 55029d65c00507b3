"""Files that belong together, on disk or in a store: written under temporary names, then renamed in order.

    s3://bucket/kept.parquet, kept.decisions.parquet, ..., kept.receipt.json
    s3://bucket/.kept.parquet.work/   meanwhile: lock-*, beat-*, and files.json

`files.json`, with size and SHA-256 of each file, is written before the first upload. If a process dies between the
first and the last upload, the next one removes the recorded objects and starts again. A last file with the recorded
bytes shows that all are complete; another process's file of that name does not. When existing files are replaced,
`files.json` is not written; the old last file is removed first instead.
"""

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from curate.manifest.failures import TakenError
from curate.manifest.store_lock import StoreLock
from curate.manifest.store_path import AnyPath, StorePath, sha256_of
from scoring.atomic import AtomicFile, commit_together, place_errors, refuse_existing, require_folder, undo_unfinished
from scoring.errors import InputError

PIECE = 8 << 20
NOTE = "files.json"
Noted = tuple[int, str]  # size in bytes, SHA-256
OF_A_RUN = "run.json"  # file in the folder of a scoring run with the same output


def local_folder(place: StorePath) -> Path:
    """Return the local folder for a path in a store: always the same one."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"curate-{user}" / sha256(place.url.encode()).hexdigest()[:16]


def make_private(folder: Path) -> None:
    """Create a folder that other users cannot enter, or check an existing one.

    Raises:
        InputError: if an existing folder is open to others, or the file system refuses.
    """
    with place_errors(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    is_ours = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    if not stat.S_ISDIR(status.st_mode) or not is_ours or status.st_mode & 0o077:
        raise InputError(
            f"expected {folder} to be a folder that only you can access, got another; set TMPDIR to such a folder"
        )


@contextmanager
def local_copy(path: AnyPath) -> Iterator[Path]:
    """Yield a temporary local copy of an object; a local path unchanged.

    Raises:
        FileNotFoundError: if the object does not exist.
        InputError: if the store or the disk refuses.
    """
    if isinstance(path, Path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        with path.open() as source, place_errors(copy), copy.open("wb") as target:
            while piece := source.read(PIECE):
                target.write(piece)
        yield copy


class StoreSet:
    """Files of a store that appear together: a context manager that locks them against other processes.

    Args:
        paths: in one folder of a store, at least one. The first names the lock folder; the last shows that all are
            complete.
        overwrite: replace existing files.

    Raises:
        InputError: on entering, before anything is written, if a name is taken, another process writes there, or the
            store refuses.
    """

    def __init__(self, paths: Sequence[StorePath], *, overwrite: bool) -> None:
        self._paths, self._overwrite = list(paths), overwrite
        self._folder = paths[0].parent
        self._work = paths[0].with_name(f".{paths[0].name}.work")
        self._here = local_folder(self._work)
        self._lock = StoreLock(self._work, self._here)
        self._held = ExitStack()
        self._remains = False  # whether uploaded objects are still to be removed

    def __enter__(self) -> Self:
        from scoring.lock import HeldFolder  # imported here, since kernel locks are not available on every system

        names = self._work.names()
        self._refuse_run(names)
        if not names:
            self._refuse_taken()
        make_private(self._here.parent)
        with ExitStack() as held:
            held.enter_context(HeldFolder(self._here, known_as=self._paths[0]))
            held.enter_context(self._lock)
            held.push(self._clear)
            self._begin()
            if names:  # otherwise it is checked again by the conditional upload
                self._refuse_taken()
            self._held = held.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._held.__exit__(*error)

    def draft(self, path: AnyPath) -> Path:
        """Return the local path at which to write the file; it is uploaded from a temporary name."""
        if path not in self._paths:
            raise ValueError(f"{path} is not among these files")
        return self._here / path.name

    def commit(self, files: Sequence[AtomicFile]) -> None:
        """Upload the files, written at the paths of ``draft``, in order: the last one shows that all are complete.

        If an upload fails, earlier ones are removed; replaced files stay replaced.

        Raises:
            InputError: if the store refuses, an object appeared in the meantime, or another process has taken over.
        """
        for file in files:
            file.seal()
        last = files[-1].path.name
        self._lock.check()
        if self._overwrite:
            self._folder.remove([last])
        else:
            noted = {file.path.name: [file.n_bytes, file.sha256] for file in files}
            (self._work / NOTE).put(json.dumps({"files": noted, "last": last}, indent=1).encode())
        try:
            for file in files:
                self._lock.check()
                self._send(file)
        except BaseException:
            self._remains = not self._overwrite and not self._is_removed()
            raise

    def _send(self, file: AtomicFile) -> None:
        place = self._folder / file.path.name
        try:
            place.upload(file.temporary, overwrite=self._overwrite)
        except TakenError:
            if sha256_of(place) != file.sha256:  # otherwise our upload, whose response was lost
                raise

    def _begin(self) -> None:
        """Remove leftovers of killed processes, locally and in the store."""
        for path in self._here.glob(".*.tmp.*"):
            path.unlink()
        self._remains = True  # partial, so that the record survives a failure here
        names = self._work.names()
        self._remains = NOTE in names
        self._refuse_run(names)
        for place in self._paths:
            place.abort_uploads()
        if NOTE in names:
            self._remove_recorded()
            self._work.remove([NOTE])
            self._remains = False

    def _is_removed(self) -> bool:
        """Return whether the objects of this process were removed; otherwise the next process removes them."""
        try:
            self._lock.check()  # otherwise the object is another process's
            self._remove_recorded()
        except InputError:
            return False
        return True

    def _remove_recorded(self) -> None:
        """Remove the objects recorded in `files.json`, unless the last one is complete."""
        noted, last = self._recorded()
        if not noted or self._has(last, noted[last]):
            return
        self._folder.remove([name for name, noted_file in noted.items() if self._has(name, noted_file)])

    def _has(self, name: str, noted_file: Noted) -> bool:
        """Return whether an object exists with this size and SHA-256."""
        place = self._folder / name
        state = place.state()
        return state is not None and state[0] == noted_file[0] and sha256_of(place) == noted_file[1]

    def _recorded(self) -> tuple[dict[str, Noted], str]:
        """Return size and SHA-256 by name, and the name of the last; empty without `files.json`."""
        note = self._work / NOTE
        data = note.read()
        if data is None:
            return {}, ""
        try:
            value = json.loads(data)
            files = {str(name): (int(size), str(digest)) for name, (size, digest) in value["files"].items()}
            if value["last"] not in files or any("/" in name for name in files):
                raise ValueError("names")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise InputError(
                f"{note} is damaged: it should list the files of an interrupted run; remove it, and the files "
                f"left of {self._paths[0].name}"
            ) from None
        return files, value["last"]

    def _refuse_run(self, names: Sequence[str]) -> None:
        if OF_A_RUN in names:
            raise InputError(
                f"{self._work} belongs to a scoring run into {self._paths[0]} that is running or was "
                "interrupted; repeat that run, remove the folder, or choose another name"
            )

    def _refuse_taken(self) -> None:
        for path in self._paths:
            if not self._overwrite and path.is_file():
                raise InputError(f"{path} exists already; choose another name, or replace it with --overwrite")

    def _clear(self, kind: type[BaseException] | None, *_: object) -> None:
        """Remove the temporary files in the store and on disk; `files.json` is kept if some remain."""
        if self._remains:
            return
        try:
            self._lock.check()  # otherwise the folder is another process's
            names = self._work.names()
            if OF_A_RUN in names:
                return
            self._lock.end()
            self._work.remove(sorted(names, key=lambda name: name != NOTE))  # known leftovers are removed first
        except InputError:
            if kind is None:
                raise
            return  # the original error is reported; the next process cleans up
        shutil.rmtree(self._here, ignore_errors=True)


class LocalSet:
    """Local files that are renamed together: a context manager; `StoreSet` does the same in a store.

    Entering checks the paths before any work, and removes leftovers of a dead process.

    Args:
        paths: of the files, possibly none; the last shows that all are complete.
        overwrite: replace existing files.

    Raises:
        InputError: for a name that is taken, or a folder that is missing or cannot be written.
    """

    def __init__(self, paths: Sequence[Path], *, overwrite: bool) -> None:
        self._paths, self._overwrite = list(paths), overwrite

    def __enter__(self) -> Self:
        if self._paths and not self._overwrite:
            undo_unfinished(self._paths)
        for path in self._paths:
            refuse_existing(path, overwrite=self._overwrite)
        for path in self._paths:
            require_folder(path)
        return self

    def __exit__(self, *_: object) -> None:
        return

    def draft(self, path: AnyPath) -> Path:
        """Return the local path at which to write the file, which is the path itself."""
        if not isinstance(path, Path):
            raise ValueError(f"{path} is not among these files")
        return path

    def commit(self, files: Sequence[AtomicFile]) -> None:
        """Rename the files in order; see ``commit_together``."""
        commit_together(files)


FileSet = LocalSet | StoreSet


def file_set(paths: Sequence[AnyPath], *, overwrite: bool) -> FileSet:
    """Return a set of files that are renamed together: all local, or all in one folder of a store; see ``StoreSet``."""
    stored = [path for path in paths if isinstance(path, StorePath)]
    local = [path for path in paths if isinstance(path, Path)]
    if stored and local:
        raise ValueError(f"expected files of one store, got {local[0]} and {stored[0]}")
    return StoreSet(stored, overwrite=overwrite) if stored else LocalSet(local, overwrite=overwrite)


def refuse_two_places(out: AnyPath | None, apply: AnyPath | None, *, command: str) -> None:
    """Raise ``InputError`` if one path is local and the other in a store: such files cannot be renamed together.

    ``command`` applies the fit afterwards.
    """
    if isinstance(out, Path) and isinstance(apply, StorePath):
        raise InputError(
            f"-o and --apply are written together, which needs one store: got {out} and {apply}; leave out "
            "--apply, and "
            f"afterwards run {command} --fitted {out} --apply {apply}"
        )
