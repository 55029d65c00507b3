"""A path or URL -> its bytes, or a named failure. Nothing here trusts a name, a size or a server."""

import os
import time
from typing import Any

from curate.manifest.contract import MAX_FILE_BYTES, ReadError
from curate.manifest.local import local_path, read_local
from curate.manifest.schemes import file_system, scheme_of
from scoring.errors import InputError

_PIECE = 1 << 20
RETRY_AFTER = (0.5, 2.0)  # seconds before the second and third try of a URL


def fetch(uri: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the bytes behind a path, a `file://` URL (percent-decoded) or another URL.

    Safe to call from several threads. A path must lead to a regular file.

    Raises:
        ReadError: "missing", "io_error" or "too_large".
    """
    scheme = scheme_of(uri)
    if scheme is None:
        return read_local(os.fsencode(uri), max_bytes)
    if scheme == "file":
        return read_local(local_path(uri), max_bytes)
    return _read_remote(uri, max_bytes)


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
