"""URLs: which schemes are opened, by which package, and how."""

import importlib
import re
from typing import Any

from scoring.errors import InputError, MissingExtraError

# scheme -> the extra of this package that brings its driver, or "" where fsspec or another package does.
# Wrappers (`zip`, `reference`, `simplecache`, chains with `::`) are not here: a row of a manifest names one
# file, and a wrapper would let it name caches, archives and further URLs.
SCHEMES: dict[str, str] = {
    "file": "",
    "memory": "",
    "http": "http",
    "https": "http",
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "abfs": "",
    "abfss": "",
    "az": "",
    "hf": "",
    "ftp": "",
    "sftp": "",
    "hdfs": "",
    "webhdfs": "",
    "oss": "",
}
# What has to be importable: fsspec itself imports some drivers only at the first request.
_MODULES = {"http": "aiohttp", "s3": "s3fs", "gcs": "gcsfs"}

# RFC 3986 allows one-letter schemes, but no driver has one and `C://x` is a drive.
URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.\-]+://")
URL_PATTERN = URL.pattern


def scheme_of(uri: str) -> str | None:
    """Return the lower-case scheme of a URL, or None for a path.

    >>> scheme_of("https://host/a.jpg"), scheme_of("photos/a.jpg")
    ('https', None)
    """
    return uri.split("://", 1)[0].lower() if URL.match(uri) else None


def check_scheme(uri: str) -> None:
    """Make sure that ``uri`` can be opened on this machine, without any request.

    Raises:
        InputError: if its scheme is not one that curate opens, or it is a chain of URLs.
        MissingExtraError: if the driver of the scheme is not installed; names the pip line.
    """
    scheme = scheme_of(uri)
    if scheme is None:
        return
    if scheme not in SCHEMES:
        raise InputError(f"no way to open {scheme}:// URLs; expected one of {', '.join(SCHEMES)}")
    if "::" in uri and ".tar::" not in uri:
        raise InputError(f"expected a plain URL, got a chain of URLs ('::') in {uri!r}; download it first")
    extra = SCHEMES[scheme]
    try:
        if extra:
            importlib.import_module(_MODULES[extra])
        _driver(scheme)
    except ImportError as error:
        if extra:
            raise MissingExtraError(f"opening {scheme}:// URLs", extra) from None
        raise InputError(f"opening {scheme}:// URLs needs a package that is missing: {error}") from None


def _driver(scheme: str) -> Any:
    import fsspec

    return fsspec.get_filesystem_class(scheme)


def file_system(uri: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path inside it; cached by fsspec per thread.

    Raises:
        InputError, MissingExtraError: as `check_scheme`.
    """
    check_scheme(uri)
    import fsspec

    system, path = fsspec.core.url_to_fs(uri)
    return system, path
