"""Files that mark images being decoded, so that a repeated run finds the image that killed the process."""

from pathlib import Path
from typing import Self

from scoring.atomic import place_errors

DECODING = ".decoding-"  # followed by the number of a group of images


def decoding_path(folder: Path, number: int) -> Path:
    """Return the path of the mark of a group of images, in the folder of its run."""
    return folder / f"{DECODING}{number:06d}"


class Marks:
    """A context manager for the marks in the folder of a run, one per group of images being decoded.

    Leaving the block normally removes the marks. A mark that exists before its group begins comes from a killed
    process.

    Args:
        folder: of a run that one process holds.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._there: dict[int, bool] = {}  # number -> whether an earlier process died in that group

    def begin(self, number: int) -> bool:
        """Mark a group; return whether its images must be decoded in separate processes. May raise InputError."""
        mark = decoding_path(self.folder, number)
        died = mark.exists()
        with place_errors(mark):
            mark.touch()
        self._there[number] = died
        return died

    def end(self, number: int) -> None:
        """Remove the mark of a group, but keep marks of killed processes, since the group may be decoded again."""
        if not self._there[number]:
            decoding_path(self.folder, number).unlink(missing_ok=True)
            del self._there[number]

    def close(self) -> None:
        """Remove all marks, after a run without a crash."""
        for number in self._there:
            decoding_path(self.folder, number).unlink(missing_ok=True)
        self._there.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
