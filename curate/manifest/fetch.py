"""A uri -> its bytes, or a named failure. Nothing here trusts a name, a size or a server."""

import errno
import os
import stat
import time
from typing import Any
from urllib.parse import unquote_to_bytes

from curate.manifest.contract import MAX_FILE_BYTES, ReadError
from curate.manifest.schemes import file_system, scheme_of
from scoring.errors import InputError

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY  # a FIFO must not make us wait
_PIECE = 1 << 20
RETRY_AFTER = (0.5, 2.0)  # seconds before the second and third try of a URL


def read_uri(uri: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the bytes behind a uri: a path, `file://` (percent-decoded), another URL, or `x.tar::member`.

    Safe to call from several threads. A path must lead to a regular file.

    Args:
        uri: as in the `uri` column of a manifest.
        max_bytes: bound on the size.

    Raises:
        ReadError: "missing", "io_error" or "too_large".
    """
    if ".tar::" in uri:
        from curate.manifest.tar import read_member

        shard, _, member = uri.partition(".tar::")
        return read_member(shard + ".tar", member, max_bytes)
    scheme = scheme_of(uri)
    if scheme is None:
        return read_local(os.fsencode(uri), max_bytes)
    if scheme == "file":
        return read_local(local_path(uri), max_bytes)
    return _read_remote(uri, max_bytes)


def local_path(uri: str) -> bytes:
    """Return the path that a `file://` URL names: percent-decoded bytes, host ignored.

    >>> local_path("file:///data/a%20b.jpg")
    b'/data/a b.jpg'
    """
    rest = uri.split("://", 1)[1]
    return unquote_to_bytes(rest if rest.startswith("/") else "/" + rest.partition("/")[2])


def read_local(path: bytes, max_bytes: int = MAX_FILE_BYTES, offset: int = 0, size: int | None = None) -> bytes:
    """Return a regular file's bytes, or ``size`` of them from ``offset``.

    Raises:
        ReadError: "missing" if there is no such file; "too_large" above ``max_bytes``; "io_error" if it is
            not a regular file, cannot be read, or ends before its size says.
    """
    try:
        handle = os.open(path, _FLAGS)
    except ValueError:
        raise ReadError("io_error", "the path holds a NUL byte") from None
    except OSError as error:
        raise _failure(error) from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise ReadError("io_error", "not a regular file")
        wanted = found.st_size if size is None else size
        if wanted > max_bytes:
            raise ReadError("too_large", f"{wanted:,} bytes, more than the bound of {max_bytes:,}")
        if offset + wanted > found.st_size:
            raise ReadError("io_error", f"the file ends {offset + wanted - found.st_size:,} bytes too early")
        return _read_exactly(handle, offset, wanted)
    except OSError as error:
        raise _failure(error) from None
    finally:
        os.close(handle)


def _read_exactly(handle: int, offset: int, wanted: int) -> bytes:
    """Read ``wanted`` bytes; one call in the common case, so no copy."""
    data = os.pread(handle, wanted, offset)
    if len(data) == wanted:
        return data
    pieces, have = [data], len(data)
    while data and have < wanted:
        data = os.pread(handle, wanted - have, offset + have)
        pieces.append(data)
        have += len(data)
    if have < wanted:
        raise ReadError("io_error", f"short read: {have:,} of {wanted:,} bytes")
    return b"".join(pieces)


def _failure(error: OSError) -> ReadError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return ReadError("missing", "no such file")
    if error.errno in (errno.ENXIO, errno.ENODEV):
        return ReadError("io_error", "not a regular file")
    return ReadError("io_error", f"cannot be read: {error.strerror or type(error).__name__}")


def _read_remote(uri: str, max_bytes: int) -> bytes:
    """Fetch a URL, trying again after failures that may pass. Error texts hold no URL: it may be signed."""
    for pause in (*RETRY_AFTER, None):
        try:
            return _fetch(uri, max_bytes)
        except (ReadError, InputError) as error:
            if isinstance(error, ReadError):
                raise
            raise ReadError("io_error", str(error)) from None
        except (FileNotFoundError, NotADirectoryError):
            raise ReadError("missing", "no such file at the other end") from None
        except Exception as error:  # drivers of object stores share no base class for their errors
            lasting = isinstance(error, PermissionError) or getattr(error, "status", 500) in (400, 401, 403, 410)
            if pause is None or lasting:
                raise ReadError("io_error", f"fetching failed: {_reason(error)}") from None
        time.sleep(pause)
    raise ValueError("the loop above always returns or raises")


def _reason(error: Exception) -> str:
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return f"HTTP status {status}"
    return getattr(error, "strerror", None) or type(error).__name__


def _fetch(uri: str, max_bytes: int) -> bytes:
    system, path = file_system(uri)
    protocols = (system.protocol,) if isinstance(system.protocol, str) else system.protocol
    if "http" in protocols:
        # A block size of 0 and a stated size mean one GET, streamed, and no HEAD before it.
        with system.open(path, mode="rb", block_size=0, size=1) as stream:
            return _read_bounded(stream, max_bytes)
    size = system.size(path)
    if size is not None and size > max_bytes:
        raise _too_large(max_bytes)
    return bytes(system.cat_file(path))


def _read_bounded(stream: Any, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    have = 0
    while piece := stream.read(min(_PIECE, max_bytes + 1 - have)):
        pieces.append(piece)
        have += len(piece)
        if have > max_bytes:
            raise _too_large(max_bytes)
    return b"".join(pieces)


def _too_large(max_bytes: int) -> ReadError:
    return ReadError("too_large", f"more bytes than the bound of {max_bytes:,}")
