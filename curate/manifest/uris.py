"""A uri of a manifest -> its bytes, or a named failure."""

from curate.manifest.contract import MAX_FILE_BYTES
from curate.manifest.fetch import fetch
from curate.manifest.tar_index import read_member


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
        shard, _, member = uri.partition(".tar::")
        return read_member(shard + ".tar", member, max_bytes)
    return fetch(uri, max_bytes)
