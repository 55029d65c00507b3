"""A path or URL -> its bytes, or a named failure. Nothing here trusts a name, a size or a server."""

import os

from curate.manifest.contract import MAX_FILE_BYTES, ReadError
from curate.manifest.failures import CredentialsError
from curate.manifest.local import local_path, read_local
from curate.manifest.reach import Reach
from curate.manifest.remote import get
from curate.manifest.schemes import UrlError, scheme_of
from scoring.errors import InputError


def fetch(uri: str, max_bytes: int = MAX_FILE_BYTES, reach: Reach = Reach()) -> bytes:  # noqa: B008 (it is frozen)
    """Return the bytes behind a path, a `file://` URL (percent-decoded) or another URL.

    Safe to call from several threads. A path must lead to a regular file.

    Raises:
        ReadError: "missing", "io_error", "too_large", "denied" (the other end refuses) or "refused" (beyond
            ``reach``, or a URL that is opened nowhere).
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
