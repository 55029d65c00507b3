"""Marks of images being decoded, by which a repeated run finds the one that killed a process."""

from pathlib import Path
from typing import Self

from scoring.atomic import place_errors

DECODING = ".decoding-"  # and the number of a group of images


def decoding_path(folder: Path, number: int) -> Path:
    """Return the path of the mark for a group of images being decoded, in the folder of its run."""
    return folder / f"{DECODING}{number:06d}"


class Marks:
    """Files in the folder of a run, one per group of images being decoded: a context manager.

    Leaving the block in order removes its marks; one that is there before its group has begun is of a process
    that died, perhaps of an image in the group.

    Args:
        folder: of a run that one process holds.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._there: dict[int, bool] = {}  # number -> whether a process had died at it

    def begin(self, number: int) -> bool:
        """Mark a group; return whether each of its images must be decoded in a separate process.

        Raises:
            InputError: if the place refuses.
        """
        mark = decoding_path(self.folder, number)
        died = mark.exists()
        with place_errors(mark):
            mark.touch()
        self._there[number] = died
        return died

    def end(self, number: int) -> None:
        """Remove the mark of a group; one at which a process had died is kept, since it may be decoded again."""
        if not self._there[number]:
            decoding_path(self.folder, number).unlink(missing_ok=True)
            del self._there[number]

    def close(self) -> None:
        """Remove all marks of a run without crash."""
        for number in self._there:
            decoding_path(self.folder, number).unlink(missing_ok=True)
        self._there.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
