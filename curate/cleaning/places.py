"""The source and the folder of a cleaning: checked before anything is written."""

import os
from pathlib import Path

from curate.columns import KEY, STATUS
from curate.manifest.schemes import scheme_of
from curate.tables.table import PART_FILES, open_table
from scoring.atomic import place_errors, require_folder
from scoring.errors import InputError
from scoring.temporaries import temporary_stem

FILE = "curate.toml"
STEPS_FOLDER = "steps"
SHA256 = "sha256"


def is_scored(place: str) -> bool:
    """Return whether a path is a table of scores, or a subset of one."""
    path = Path(place)
    if scheme_of(place) is not None or not (path.is_file() or any(path.glob(PART_FILES))):
        return False
    try:
        names = set(open_table(path).schema.names)
    except InputError:
        return False
    return {KEY, STATUS, SHA256} <= names


def check_source(source: str, out: Path) -> None:
    """Refuse a source that is scored already, or that overlaps with the output folder.

    Raises:
        InputError: naming both, and what to do.
    """
    if not source:
        raise InputError("expected the images to clean, got an empty text; pass a folder")
    if scheme_of(source) is not None:
        return
    if is_scored(source):
        raise InputError(
            f"expected images, got the scored table {source}; clean it with curate issues {source} --drop "
            "unusable and curate dedup, or pass the images that were scored"
        )
    path, folder = Path(source).resolve(), out.resolve()
    if path == folder or (path.is_dir() and folder.is_relative_to(path)):
        place = "the source itself" if path == folder else f"inside {source}"
        raise InputError(
            f"{out} is {place}, so what is written would be scored as images next time; choose a folder outside of it "
            "with -o"
        )
    if path.exists() and path.is_relative_to(folder):
        raise InputError(f"{source} is inside {out}, which is for results only; choose another folder with -o")


def check_out(out: Path) -> None:
    """Refuse a place where no folder can be made or written to, or one that holds something else.

    Raises:
        InputError: naming what is there, and what to do.
    """
    if not out.exists() and not out.is_symlink():
        require_folder(out)
        return
    if not out.is_dir():
        raise InputError(f"expected a folder at {out}, or nothing, got a file; choose another name with -o")
    require_folder(out / FILE)
    if (out / FILE).is_file():
        return
    names = sorted(each.name for each in out.iterdir())
    other = next((name for name in names if not name.startswith(temporary_stem(out / FILE))), None)
    if other is not None:
        raise InputError(
            f"{out} holds {other!r}, which curate clean did not write; choose an empty folder, or a new one, with -o"
        )


def from_folder(place: str, folder: Path) -> str:
    """Return a path, relative as typed or absolute, relative to another folder; a URL unchanged.

    Args:
        place: from the folder one is in.
        folder: that is written.
    """
    if scheme_of(place) is not None or Path(place).is_absolute():
        return place
    try:
        return os.path.relpath(os.path.abspath(place), folder.resolve())  # noqa: PTH100 (a pattern is no path)
    except ValueError:  # another drive of Windows
        return os.path.abspath(place)  # noqa: PTH100


def from_current(place: str, folder: Path) -> str:
    """Return a path from ``from_folder`` relative to the current folder; a URL unchanged."""
    if scheme_of(place) is not None or Path(place).is_absolute():
        return place
    return os.path.relpath(folder / place)


def make_folder(out: Path) -> None:
    """Make the folder, unless it exists."""
    with place_errors(out):
        out.mkdir(parents=True, exist_ok=True)
