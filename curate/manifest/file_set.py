"""Files that belong together, here or in a store: made under no name, then named together, the last one last."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from curate.manifest.store_path import AnyPath, StorePath
from curate.manifest.store_set import StoreSet
from scoring.atomic import AtomicFile, commit_together, refuse_existing, require_folder, undo_unfinished


class LocalSet:
    """Files of this machine that get their names together: a context manager; `StoreSet` does the same in a store.

    Entering refuses what cannot be, before any work; what a dead process left of these files is taken back.

    Args:
        paths: of the files; the last stands for all of them. There may be none.
        overwrite: replace what is there.

    Raises:
        InputError: for a name that is taken, or a folder that is not there or cannot be written.
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
        """Return the path of this machine for which a file is to be made: the same one."""
        if not isinstance(path, Path):
            raise ValueError(f"{path} is none of these files")
        return path

    def commit(self, files: Sequence[AtomicFile]) -> None:
        """Give the files their names, in their order; see ``commit_together``."""
        commit_together(files)


class BothSets:
    """Files here and files in a store: each place gets its own together, that of the last file after the other.

    Args:
        local: those of this machine.
        stored: those of a store.
        here: the paths of the first.
        store_last: whether the last file of all is in the store.
    """

    def __init__(self, local: LocalSet, stored: StoreSet, here: Sequence[Path], *, store_last: bool) -> None:
        self._local, self._stored, self._here, self._store_last = local, stored, set(here), store_last
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as entering:
            entering.enter_context(self._local)
            entering.enter_context(self._stored)
            self._entered = entering.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.__exit__(*error)

    def draft(self, path: AnyPath) -> Path:
        """Return the path of this machine for which a file is to be made."""
        return self._local.draft(path) if isinstance(path, Path) else self._stored.draft(path)

    def commit(self, files: Sequence[AtomicFile]) -> None:
        """Give the files their names, in their order in each place."""
        here = [file for file in files if file.path in self._here]
        there = [file for file in files if file.path not in self._here]
        if self._store_last:
            self._local.commit(here)
            self._stored.commit(there)
        else:
            self._stored.commit(there)
            self._local.commit(here)


FileSet = LocalSet | StoreSet | BothSets


def file_set(paths: Sequence[AnyPath], *, overwrite: bool) -> FileSet:
    """Return what gives files their names together, where they are to be.

    Args:
        paths: of this machine, of one folder of a store, or of both; the last stands for all of them.
        overwrite: replace what is there.
    """
    stored = [path for path in paths if isinstance(path, StorePath)]
    local = [path for path in paths if isinstance(path, Path)]
    if not stored:
        return LocalSet(local, overwrite=overwrite)
    there = StoreSet(stored, overwrite=overwrite)
    if not local:
        return there
    here = LocalSet(local, overwrite=overwrite)
    return BothSets(here, there, local, store_last=isinstance(paths[-1], StorePath))
