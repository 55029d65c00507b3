"""A uri of a manifest -> its bytes, or a named failure."""

from functools import partial

from curate.manifest.contract import MAX_FILE_BYTES, Reader, RemoteReader
from curate.manifest.local import fail
from curate.manifest.places import fetch
from curate.manifest.reach import Reach
from curate.manifest.schemes import scheme_of
from curate.manifest.tar_index import read_member


def read_uri(uri: str, max_bytes: int = MAX_FILE_BYTES, reach: Reach = Reach()) -> bytes:  # noqa: B008 (it is frozen)
    """Return the bytes behind a uri: a path, `file://` (percent-decoded), another URL, or `x.tar::member`.

    Safe to call from several threads. A path must lead to a regular file.

    Args:
        uri: as in the `uri` column of a manifest.
        max_bytes: bound on the size.
        reach: how far it may lead; by default to any file of this machine, and to no private network.

    Raises:
        ReadError, CredentialsError: as `fetch`.
    """
    if ".tar::" in uri:
        shard, _, member = uri.partition(".tar::")
        return read_member(shard + ".tar", member, max_bytes, reach)
    return fetch(uri, max_bytes, reach)


def uri_reader(uri: str | None, max_bytes: int = MAX_FILE_BYTES, reach: Reach = Reach()) -> Reader:  # noqa: B008
    """Return a reader of a uri; for None, one that reports that the row names no file."""
    if uri is None:
        return partial(fail, "missing", "the row names no file")
    if scheme_of(uri) in (None, "file"):
        return partial(read_uri, uri, max_bytes, reach)
    return RemoteReader(partial(read_uri, uri, reach=reach), max_bytes)
