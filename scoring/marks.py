"""Marks of images that are being decoded: by them a run that is repeated finds the one at which a process died."""

from pathlib import Path
from typing import Self

from scoring.atomic import place_errors

DECODING = "decoding-"  # and the number of a group of images


def decoding_path(folder: Path, number: int) -> Path:
    """Return the mark of a group of images that are being decoded, in the folder of its run."""
    return folder / f"{DECODING}{number:06d}"


class Marks:
    """Files in the folder of a run, one for each group of images that is being decoded: a context manager.

    Leaving the block in order removes its marks; one that is there before its group has begun is of a process
    that died, perhaps of an image in the group.

    Args:
        folder: of a run that one process holds.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._there: dict[int, bool] = {}  # number -> whether a process had died at it

    def begin(self, number: int) -> bool:
        """Mark a group; return whether each of its images is to be decoded in its own process.

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
        """Take the mark of a group away; one at which a process had died keeps it, for it may be decoded again."""
        if not self._there[number]:
            decoding_path(self.folder, number).unlink(missing_ok=True)
            del self._there[number]

    def close(self) -> None:
        """Remove all marks: no process died."""
        for number in self._there:
            decoding_path(self.folder, number).unlink(missing_ok=True)
        self._there.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
