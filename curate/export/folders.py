"""A folder that appears under its name complete or not at all, and the images in it."""

import fcntl
import glob
import os
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from curate.columns import KEY, URI
from curate.export.batch import Item
from curate.export.contract import Going, ImageReader
from curate.export.names import file_name, with_suffix
from curate.manifest.contract import ReadError
from curate.manifest.local import read_local
from curate.manifest.uris import read_uri
from scoring.atomic import SETTLED, place_error, sync_folder
from scoring.errors import InputError
from scoring.images.sniff import sniff

_SUFFIXES = {"jpeg": "jpg", "tiff": "tif", "heif": "heic", "netpbm": "pnm"}


class NewFolder:
    """A new folder, made as `.NAME.tmp.<pid>.<random>` beside its place: a context manager.

    Leaving it cleanly gives it its name, leaving it by an exception removes it. What a dead process left behind is
    removed by the next one.

    Args:
        path: the final name; nothing may be there, and its parent must exist.

    Raises:
        InputError: if something is there, or the place refuses.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if os.path.lexists(path):
            raise InputError(f"{path} exists already; choose another name (folders are never replaced)")
        stem = f".{path.name[:120]}.tmp."
        _sweep(path.parent, stem)
        self.temporary = path.with_name(f"{stem}{os.getpid()}.{secrets.token_hex(4)}")

    def __enter__(self) -> Self:
        try:
            self.temporary.mkdir()
            self._handle = os.open(self.temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise place_error(error, self.path) from None
        with suppress(OSError):  # where folders cannot be locked, those of dead processes stay
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self

    def write(self, name: str, data: bytes) -> None:
        """Write one file of the folder, flushed to the disk; ``name`` is ours, never a stranger's."""
        target = self.temporary / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise place_error(error, self.path) from None

    def add_image(self, item: Item, folder: str, how: Going) -> str:
        """Copy or link an item's image into a sub-folder; return its name there.

        Raises:
            InputError: if it cannot be had; names the key.
        """
        path = item.path
        data = None if how.link and path is not None else image_bytes(item, how)
        kind = sniff(_head(item) if data is None else data) or "jpg"
        try:
            name = with_suffix(file_name(item.key), item.key, _SUFFIXES.get(kind, kind))
            if data is not None:
                self.write(f"{folder}/{name}", data)
            elif path is not None:
                (self.temporary / folder).mkdir(exist_ok=True)
                (self.temporary / folder / name).symlink_to(os.fsdecode(path))
        except OSError as error:
            raise place_error(error, self.path) from None
        return name

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._publish()
        finally:
            os.close(self._handle)
            shutil.rmtree(self.temporary, ignore_errors=True)

    def _publish(self) -> None:
        try:
            for folder, _, _ in os.walk(self.temporary):
                sync_folder(Path(folder))
            if os.path.lexists(self.path):
                raise InputError(f"{self.path} appeared while it was being written; choose another name")
            self.temporary.rename(self.path)
            sync_folder(self.path.parent)
        except OSError as failed:
            raise place_error(failed, self.path) from None


def _sweep(parent: Path, stem: str) -> None:
    with suppress(OSError):  # a folder that cannot be listed says so when the new one is made
        for leftover in parent.glob(f"{glob.escape(stem)}*"):
            if leftover.is_symlink() or not leftover.is_dir() or time.time() - leftover.stat().st_mtime < SETTLED:
                continue
            handle = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            finally:
                os.close(handle)
            shutil.rmtree(leftover, ignore_errors=True)


def image_bytes(item: Item, how: Going) -> bytes:
    """Return the encoded image of an item: by the reader where there is one, else the local file.

    Raises:
        InputError: if it cannot be had; names the key.
    """
    try:
        if how.images is not None:
            return how.images(item.key)
        if item.path is not None:
            return read_local(item.path)
    except ReadError as error:
        hint = "name what was scored with --source" if item.uri is None else "take it out of the batch"
        raise InputError(f"cannot read the image of {item.key!r}: {error}; {hint}") from None
    got = "none" if item.uri is None else "a URL" if item.url else "a member of a tar file"  # a URL may be signed
    raise InputError(f"expected a local file for {item.key!r}, got {got}; give a reader of its bytes")


def uri_reader(table: pa.Table) -> ImageReader:
    """Return a reader for `Going.images` that opens what the column `uri` names: files, URLs and members of tar files.

    Args:
        table: with the columns `key` and `uri`.
    """
    uris = dict(zip(table[KEY].to_pylist(), table[URI].to_pylist(), strict=True))

    def read(key: str) -> bytes:
        if uris.get(key) is None:
            raise ReadError("missing", "the table names no file for it")
        return read_uri(uris[key])

    return read


def _head(item: Item) -> bytes:
    """Return the first bytes of an item's local file, so that no link points nowhere."""
    path = item.path or b""
    try:
        return read_local(path, offset=0, size=min(4096, os.stat(path).st_size))  # noqa: PTH116 (a bytes path)
    except (OSError, ValueError, ReadError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot link to the image of {item.key!r}: {reason}; take it out of the batch") from None
