"""The local folder through which an output in a store passes."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from curate.manifest.store_path import AnyPath, StorePath
from scoring.atomic import place_errors
from scoring.errors import InputError

PIECE = 8 << 20


def local_folder(place: StorePath) -> Path:
    """Return the folder of this machine for a place in a store: always the same one."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"curate-{user}" / sha256(place.url.encode()).hexdigest()[:16]


def make_private(folder: Path) -> None:
    """Make a folder that no other user may enter, or check that an existing one is closed to them.

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
    """Yield a file of this machine with the bytes of an object, while it is needed; a path unchanged.

    Raises:
        FileNotFoundError: if there is no such object.
        InputError: if the store refuses, or a disk does.
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
