"""The hub of Hugging Face: `HfFileSystem` resolves URLs and lists folders; this module requests bytes.

`HfFileSystem` would list the whole folder of a file before opening it, once per thread, cache it forever, and retry
without limit. Here a range of bytes is one request, and so are the facts of a file.
"""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from curate.manifest.failures import SLOW, AnswerError

CONNECT = 15.0  # seconds
LONGEST_PAUSE = 300.0  # maximum wait: the hub counts requests over five minutes
_PIECE = 1 << 20
_RESOLVING = threading.Lock()


def is_hub(system: Any) -> bool:
    """Return whether a file system is the one of the hub."""
    return getattr(system, "protocol", None) == "hf"


def read_range(system: Any, path: str, start: int, stop: int, seconds: float) -> bytes:
    """Return the bytes [start, stop) of a file, fewer at its end, and one more if the hub does not serve ranges.

    Args:
        system: of the hub.
        path: `datasets/OWNER/NAME[@REVISION]/PATH`.
        start: first byte.
        stop: the byte after the last.
        seconds: bound on the whole request.

    Raises:
        AnswerError, OSError: as handled by `failure_of`.
    """
    from huggingface_hub.utils import build_hf_headers, get_session

    url = _url(system, path)
    headers = {
        **build_hf_headers(token=system.token),
        "Range": f"bytes={start}-{stop - 1}",
        "Accept-Encoding": "identity",
    }
    ends, n_bytes, data = time.monotonic() + seconds, stop - start, bytearray()
    try:
        with get_session().stream("GET", url, headers=headers, timeout=(CONNECT, seconds, seconds, seconds)) as answer:
            _refuse(answer)
            for piece in answer.iter_bytes(_PIECE):
                data += piece
                if len(data) > n_bytes:
                    break
                if time.monotonic() > ends:
                    raise TimeoutError(SLOW.format(seconds))
    except Exception as error:  # an httpx class, which huggingface_hub imports under changing names
        if any(kind.__name__ == "TimeoutException" for kind in type(error).__mro__):
            raise TimeoutError(SLOW.format(seconds)) from error
        raise
    return bytes(data[: n_bytes + 1])


def facts_of(system: Any, path: str) -> dict[str, Any]:
    """Return name, type, size in bytes and version of a file, as `info` of fsspec; FileNotFoundError if absent."""
    from huggingface_hub import HfApi

    resolved = _resolved(system, path)
    if hasattr(resolved, "bucket_id"):
        return dict(system.info(path, refresh=True))
    if not resolved.path_in_repo:
        return {"name": path, "type": "directory", "size": 0}
    api = HfApi(endpoint=system.endpoint, token=system.token)
    known = api.get_paths_info(
        resolved.repo_id, [resolved.path_in_repo], revision=resolved.revision, repo_type=resolved.repo_type
    )
    if not known:
        raise FileNotFoundError(path)
    version = getattr(known[0], "blob_id", None)
    kind = "directory" if version is None else "file"
    return {"name": path, "type": kind, "size": getattr(known[0], "size", 0), "blob_id": version}


def folder_of(system: Any, path: str) -> list[dict[str, Any]]:
    """Return the files and folders of a folder with their facts, from its listing.

    Raises:
        FileNotFoundError: if absent.
    """
    with _forgetting(system):
        return list(system.ls(path, detail=True, refresh=True))


def tree_of(system: Any, path: str) -> dict[str, dict[str, Any]]:
    """Return the files at any depth below a folder with their facts, by name; raises as `folder_of`."""
    with _forgetting(system):
        return dict(system.find(path, detail=True, refresh=True))


def _url(system: Any, path: str) -> str:
    from huggingface_hub import hf_hub_url

    resolved = _resolved(system, path)
    if hasattr(resolved, "bucket_id"):
        return f"{system.endpoint}/buckets/{resolved.bucket_id}/resolve/{quote(resolved.path)}"
    url: str = hf_hub_url(
        resolved.repo_id,
        resolved.path_in_repo,
        repo_type=resolved.repo_type,
        revision=resolved.revision,
        endpoint=system.endpoint,
    )
    return url


def _resolved(system: Any, path: str) -> Any:
    """Return repository, revision and path; the first request for a repository is made once, for all threads."""
    with _RESOLVING, _forgetting(system):
        return system.resolve_path(path)


@contextmanager
def _forgetting(system: Any) -> Iterator[None]:
    """Clear a file system's cached absence of a repository, which would be permanent."""
    try:
        yield
    except FileNotFoundError:
        system.invalidate_cache()
        raise


def _refuse(answer: Any) -> None:
    """Raise for an invalid response."""
    if answer.status_code < 400:
        return
    if answer.status_code in (408, 429) or answer.status_code >= 500:
        resets = re.search(r"\bt=(\d+)", answer.headers.get("RateLimit", ""))
        wait = answer.headers.get("Retry-After", "") or (resets[1] if resets else "")
        raise AnswerError(answer.status_code, wait, LONGEST_PAUSE)
    from huggingface_hub.utils import hf_raise_for_status

    answer.read()
    hf_raise_for_status(answer)
