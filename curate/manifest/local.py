"""Local files: paths or file:// URLs, and their bytes."""

import errno
import os
import stat
from pathlib import Path
from urllib.parse import unquote_to_bytes

from curate.manifest.contract import MAX_FILE_BYTES, ReadError, too_large
from scoring.errors import InputError
from scoring.images.budget import BODIES
from scoring.system import READ, read_at


def local_path(uri: str) -> bytes:
    """Return the path of a `file://` URL: percent-decoded bytes, host ignored.

    >>> local_path("file:///data/a%20b.jpg")
    b'/data/a b.jpg'
    """
    rest = uri.split("://", 1)[1]
    return unquote_to_bytes(rest if rest.startswith("/") else "/" + rest.partition("/")[2])


def refuse_inside(out: Path, source: str | Path) -> None:
    """Raise ``InputError`` for an output that is a scored path, or inside a scored folder."""
    path, resolved = Path(source).resolve(), out.resolve()
    if path == resolved or (path.is_dir() and resolved.is_relative_to(path)):
        place = "the source itself" if path == resolved else f"inside {source}"
        raise InputError(
            f"{out} is {place}, so what is written would be scored as images next time; choose a folder outside of it "
            "with -o"
        )


def read_local(path: bytes, max_bytes: int = MAX_FILE_BYTES, offset: int = 0, size: int | None = None) -> bytes:
    """Return a regular file's bytes, or ``size`` of them from ``offset``.

    Raises:
        ReadError: "missing" if there is no such file; "too_large" above ``max_bytes``; "io_error" if it is
            not a regular file, cannot be read, or is shorter than its stated size.
    """
    try:
        handle = os.open(path, READ)
    except ValueError:
        raise ReadError("io_error", "the path holds a NUL byte") from None
    except OSError as error:
        raise _failure(error) from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ReadError("io_error", "not a regular file")
        n_bytes = status.st_size if size is None else size
        if n_bytes > max_bytes:
            raise too_large(n_bytes, max_bytes)
        if offset + n_bytes > status.st_size:
            raise ReadError("io_error", f"the file ends {offset + n_bytes - status.st_size:,} bytes too early")
        BODIES.take(n_bytes)
        return _read_exactly(handle, offset, n_bytes)
    except OSError as error:
        raise _failure(error) from None
    finally:
        os.close(handle)


def _read_exactly(handle: int, offset: int, n_bytes: int) -> bytes:
    """Read ``n_bytes`` bytes; one call in the common case, so no copy."""
    data = read_at(handle, n_bytes, offset)
    if len(data) == n_bytes:
        return data
    pieces, have = [data], len(data)
    while data and have < n_bytes:
        data = read_at(handle, n_bytes - have, offset + have)
        pieces.append(data)
        have += len(data)
    if have < n_bytes:
        raise ReadError("io_error", f"short read: {have:,} of {n_bytes:,} bytes")
    return b"".join(pieces)


def fail(status: str, text: str) -> bytes:
    """Raise `ReadError`; with `functools.partial`, the reader of a row without bytes."""
    raise ReadError(status, text)


def _failure(error: OSError) -> ReadError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return ReadError("missing", "no such file")
    if error.errno in (errno.ENXIO, errno.ENODEV):
        return ReadError("io_error", "not a regular file")
    return ReadError("io_error", f"cannot be read: {error.strerror or type(error).__name__}")
