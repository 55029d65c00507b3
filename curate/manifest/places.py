# Paths are bytes where names need not be UTF-8, and pathlib holds text.
# ruff: noqa: PTH100, PTH116, PTH119
"""A file read in parts or whole, locally or behind a URL, without trusting names, sizes or servers."""

import errno
import io
import os
import stat
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from curate.manifest.contract import MAX_FILE_BYTES, ReadError, too_large
from curate.manifest.failures import CredentialsError
from curate.manifest.local import local_path, read_local
from curate.manifest.names import key_of, uri_of
from curate.manifest.reach import Reach
from curate.manifest.remote import get, get_range
from curate.manifest.remote import stat as remote_stat
from curate.manifest.schemes import UrlError, scheme_of, shown
from scoring.errors import InputError
from scoring.images.budget import BODIES

BUFFER = 8 << 20  # bytes per request of a remote file


class MissingPlaceError(InputError):
    """The file does not exist, locally or remotely."""


def fetch(uri: str, max_bytes: int = MAX_FILE_BYTES, reach: Reach = Reach()) -> bytes:  # noqa: B008 (it is frozen)
    """Return the bytes behind a path, a `file://` URL (percent-decoded) or another URL; thread-safe.

    A path must lead to a regular file.

    Raises:
        ReadError: "missing", "io_error", "too_large", "denied" (by the server) or "refused" (beyond ``reach``, or an
            unsupported URL).
        CredentialsError: if the credentials of a store are missing or no longer valid.
    """
    if why := reach.bars(uri):
        raise ReadError("refused", why)
    scheme = scheme_of(uri)
    if scheme is None:
        return read_local(os.fsencode(uri), max_bytes)
    if scheme == "file":
        return read_local(local_path(uri), max_bytes)
    try:
        return get(uri, max_bytes, reach)
    except CredentialsError:
        raise
    except UrlError as error:
        raise ReadError("refused", str(error)) from None
    except InputError as error:  # a driver that is not installed
        raise ReadError("io_error", str(error)) from None


@dataclass(frozen=True)
class Place:
    """One list, table or shard.

    Args:
        uri: absolute path or URL.
        name: in keys and messages.
        size: in bytes.
        version: changes with the content: modification time, or the server's tag.
        reach: where it may lead.
    """

    uri: str
    name: str
    size: int
    version: str
    reach: Reach = Reach()  # noqa: RUF009 (it is frozen)

    @property
    def identity(self) -> str:
        """The text for a digest: name, size, version."""
        return f"{self.name} {self.size} {self.version}"

    @property
    def path(self) -> bytes | None:
        """Local path, or None for a URL."""
        scheme = scheme_of(self.uri)
        if scheme == "file":
            return local_path(self.uri)
        return None if scheme else os.fsencode(self.uri)

    def open(self) -> BinaryIO:
        """Open for reading at any position; the caller closes."""
        if self.path is not None:
            return cast(BinaryIO, open(self.path, "rb"))  # noqa: PTH123 (bytes path; the caller closes)
        if self.size < 0:
            raise InputError(f"expected a server that reports the size of {self.name}, got no size; download it first")
        return cast(BinaryIO, io.BufferedReader(RemoteFile(self), BUFFER))

    def read(self, offset: int, size: int, max_bytes: int) -> bytes:
        """Return ``size`` bytes from ``offset``.

        Raises:
            ReadError, CredentialsError: as `fetch`; "io_error" if the file changed since it was found.
        """
        if self.path is None:
            return self._read_remote(offset, size, max_bytes)
        self.check_unchanged()
        return read_local(self.path, max_bytes, offset, size)

    def check_unchanged(self) -> None:
        """Check that a local file has not changed; ReadError "missing" if it is gone, else "io_error"."""
        if self.path is None:
            return
        try:
            now = _local_version(os.stat(self.path))
        except OSError:
            raise ReadError("missing", f"{self.name} no longer exists") from None
        if now != (self.size, self.version):
            raise ReadError("io_error", f"{self.name} changed while it was being read")

    def _read_remote(self, offset: int, size: int, max_bytes: int) -> bytes:
        if size > max_bytes:
            raise too_large(size, max_bytes)
        if size == 0:
            return b""
        BODIES.take(size)
        data = get_range(self.uri, offset, offset + size, self.reach)
        if len(data) != size:
            raise ReadError("io_error", f"short read: {len(data):,} of {size:,} bytes")
        return data

    def read_all(self, max_bytes: int, advice: str) -> bytes:
        """Return the whole file; InputError, with ``advice``, if it cannot be read or is larger than ``max_bytes``."""
        try:
            return fetch(self.uri, max_bytes, self.reach)
        except ReadError as error:
            text = f"{str(error).partition(' an image;')[0]}; {advice}" if error.status == "too_large" else str(error)
            raise InputError(f"cannot read {self.name}: {text}") from None


def find_place(
    source: str | os.PathLike[str],
    name: str | None = None,
    reach: Reach = Reach(),  # noqa: B008 (it is frozen)
) -> Place:
    """Return the place of a regular file or a URL.

    Raises:
        MissingPlaceError: if the file does not exist.
        InputError: if it cannot be reached, or is not a regular file.
        MissingExtraError: if the driver of a URL's scheme is not installed.
    """
    text = os.fspath(source)
    if scheme_of(text) not in (None, "file"):
        return _remote_place(text, name, reach)
    path = local_path(text) if scheme_of(text) else os.path.abspath(os.fsencode(text))
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        absent = getattr(error, "errno", None) in (errno.ENOENT, errno.ENOTDIR)
        raise (MissingPlaceError if absent else InputError)(f"cannot open {text!r}: {reason}; check the path") from None
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"expected a file, got the folder {text!r}; pass a file, or files of one kind, or folders")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"expected a regular file, got something else at {text!r}; pass a file or a folder")
    return Place(uri_of(path), name or key_of(os.path.basename(path)), *_local_version(status))


def _local_version(status: os.stat_result) -> tuple[int, str]:
    return status.st_size, str(status.st_mtime_ns)


def _remote_place(url: str, name: str | None, reach: Reach) -> Place:
    try:
        size, version = remote_stat(url, reach)
    except ReadError as error:
        if error.status == "missing":
            raise MissingPlaceError(f"cannot open {shown(url)!r}: {error}; check the URL") from None
        raise InputError(
            f"cannot open {shown(url)!r}: {error}; check the URL, the network and the credentials"
        ) from None
    last = shown(url).rstrip("/").rpartition("/")[2]
    return Place(url, name or last, size, version, reach)


class RemoteFile(io.RawIOBase):
    """A file behind a URL, read in ranges; every range is one request with retries."""

    def __init__(self, place: Place) -> None:
        self._place, self._at = place, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position; no request is made."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._place.size}[whence]
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from the current position; return the number of bytes read."""
        stop = min(self._at + len(buffer), self._place.size)
        if stop <= self._at:
            return 0
        try:
            data = get_range(self._place.uri, self._at, stop, self._place.reach)
        except ReadError as error:
            raise InputError(f"cannot read {self._place.name}: {error}") from None
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
