"""The folder of a training run, next to its model: lock and state."""

import errno
from contextlib import suppress
from pathlib import Path
from typing import Self

from scoring.atomic import AtomicFile, place_errors, sync_folder
from scoring.cards import read_header
from scoring.errors import InputError
from scoring.lock import LOCK, HeldFolder

STATE = "state.safetensors"
FINISHED = "finished"  # file: digest of the model saved from the state


class TrainingFolder(HeldFolder):
    """Context manager of ``.NAME.work`` next to the model NAME, locked by one live process.

    The folder stays while it has a state to resume from, and is removed otherwise. A state whose model was already
    saved cannot be resumed: the next process that locks the folder removes it.

    Args:
        out: the model; missing parent folders are created.
        keep: keep the state of a finished run, to add epochs later.

    Attributes:
        state: file of the run's state.

    Raises:
        InputError: on entering, if another live process holds the folder, or it cannot be created.
    """

    def __init__(self, out: Path, *, keep: bool = False) -> None:
        super().__init__(out.with_name(f".{out.name}.work"))
        self.out, self.state, self.keep = out, self.folder / STATE, keep

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            with place_errors(self.folder):
                if self._is_finished():
                    self._remove_state()
                if not self.state.exists():
                    _unlink(self.folder / FINISHED)
        except BaseException:
            super().__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            with suppress(OSError) if any(error) else place_errors(self.folder):  # an earlier error is reported instead
                self._remove_unused()
        finally:
            super().__exit__(*error)

    def record_outcome(self, digest: str) -> None:
        """Record which model the state has become, before the model is renamed; not for a kept state."""
        if self.keep:
            return
        with AtomicFile(self.folder / FINISHED, overwrite=True) as file:
            file.write(digest.encode())

    def finish(self) -> None:
        """Remove the state of a finished run, unless it is to be kept."""
        if not self.keep:
            self._remove_state()

    def _remove_state(self) -> None:
        """Remove the state from the disk, before the record that says it is finished."""
        self.state.unlink(missing_ok=True)
        sync_folder(self.folder)

    def _is_finished(self) -> bool:
        note = self.folder / FINISHED
        if not note.is_file():
            return False
        try:
            digest = str(read_header(self.out)["digest"])
        except InputError:  # no model, or another file
            return False
        return note.read_bytes() == digest.encode()

    def _remove_unused(self) -> None:
        """Remove the folder, the lock last, unless there is a state to resume; never removes sub-folders."""
        if self.state.exists():
            return
        for path in self.folder.iterdir():
            if path.name != LOCK:
                _unlink(path)
        (self.folder / LOCK).unlink(missing_ok=True)
        try:
            self.folder.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another process uses it again
                raise


def _unlink(path: Path) -> None:
    """Remove a file if it exists and is a file."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)


def sweep_finished(out: Path) -> None:
    """Remove leftovers of a killed run whose model was finished.

    Raises:
        InputError: if a live process uses the folder of that model.
    """
    if (folder := TrainingFolder(out)).folder.is_dir():
        with folder:
            pass
