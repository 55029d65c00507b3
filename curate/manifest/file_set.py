"""Files that belong together, here or in a store: written under temporary names, then renamed in order."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from curate.manifest.store_path import AnyPath, StorePath
from curate.manifest.store_set import StoreSet
from scoring.atomic import AtomicFile, commit_together, refuse_existing, require_folder, undo_unfinished
from scoring.errors import InputError


class LocalSet:
    """Local files that are renamed together: a context manager; `StoreSet` does the same in a store.

    Entering refuses what cannot be, before any work; what a dead process left of these files is taken back.

    Args:
        paths: of the files; the last represents all of them. There may be none.
        overwrite: replace what is there.

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
        """Return the local path of a file to be written: the same one."""
        if not isinstance(path, Path):
            raise ValueError(f"{path} is not among these files")
        return path

    def commit(self, files: Sequence[AtomicFile]) -> None:
        """Give the files their names, in their order; see ``commit_together``."""
        commit_together(files)


FileSet = LocalSet | StoreSet


def file_set(paths: Sequence[AnyPath], *, overwrite: bool) -> FileSet:
    """Return a set of files that get their names together.

    Args:
        paths: all of this machine, or all of one folder of a store; the last represents all of them.
        overwrite: replace what is there.
    """
    stored = [path for path in paths if isinstance(path, StorePath)]
    local = [path for path in paths if isinstance(path, Path)]
    if stored and local:
        raise ValueError(f"expected files of one store, got {local[0]} and {stored[0]}")
    return StoreSet(stored, overwrite=overwrite) if stored else LocalSet(local, overwrite=overwrite)


def refuse_two_places(out: AnyPath | None, apply: AnyPath | None, *, command: str) -> None:
    """Refuse a local model with a table in a store: files in two places cannot be renamed together.

    Args:
        out: what is fitted.
        apply: the table with its columns.
        command: that applies afterwards what was fitted.

    Raises:
        InputError: if one is of this machine and the other is not.
    """
    if isinstance(out, Path) and isinstance(apply, StorePath):
        raise InputError(
            f"-o and --apply are written together, which needs one store: got {out} and {apply}; leave out "
            "--apply, and "
            f"afterwards run {command} --fitted {out} --apply {apply}"
        )
