"""URLs: the supported schemes and the packages that open them."""

import importlib
import logging
import os
import re
import threading
from types import MethodType
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from curate.manifest.contract import MOST_CONNECTIONS
from scoring.errors import InputError, MissingExtraError

CONNECT = 15.0  # seconds
HUB_KINDS = ("datasets", "spaces", "models", "buckets")
SILENCE = 60.0  # seconds without data after which a request fails
# scheme -> the extra of this package with its driver, or "" if another package has it.
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
# Required modules: fsspec imports some drivers only at the first request.
_MODULES = {"http": "aiohttp", "s3": "s3fs", "gcs": "gcsfs"}
GOOGLE = ("gs", "gcs")

# RFC 3986 allows one-letter schemes, but no driver has one and `C://x` is a drive.
URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.\-]+://")
URL_PATTERN = URL.pattern
CHAIN = re.compile(r"::[A-Za-z][A-Za-z0-9+.\-]+://")


def try_once(system: Any) -> None:
    """Disable a file system's own retries (six, half a minute in total), because its caller retries."""
    plain = getattr(type(system)._request, "__wrapped__", None)
    if plain is not None:
        system._request = MethodType(plain, system)


async def widen(system: Any, connections: int) -> None:
    """Create the client with enough connections for the requests; one with a certificate is unchanged."""
    from aiohttp import TCPConnector

    certified = getattr(system, "_use_client_cert", False)
    if "connector" not in system.session_kwargs and not certified:
        system.session_kwargs = {**system.session_kwargs, "connector": TCPConnector(limit=connections)}
    await system._set_session()


def check_hub() -> None:
    """Check that huggingface_hub can bound its requests; raises InputError if it is too old."""
    import huggingface_hub

    if not hasattr(huggingface_hub.get_session(), "stream"):
        raise InputError(
            f"opening hf:// URLs needs huggingface_hub 1.0 or later, got {huggingface_hub.__version__}; "
            "run: pip install -U huggingface_hub"
        )


def scheme_of(uri: str) -> str | None:
    """Return the lower-case scheme of a URL, or None for a path.

    >>> scheme_of("https://host/a.jpg"), scheme_of("photos/a.jpg")
    ('https', None)
    """
    return uri.split("://", 1)[0].lower() if URL.match(uri) else None


class UrlError(InputError):
    """An unsupported URL: an unknown scheme, a chain, or outside of a hub repository."""


class SchemeCheck:
    """Checks one URL of each scheme in a source.

    Unsupported URLs become rows with a status, if there are other rows.
    """

    def __init__(self) -> None:
        self._checked: set[str | None] = set()
        self._refused: UrlError | None = None
        self._others = False

    def add(self, uri: str) -> None:
        """Add a path or URL; raises as `check_scheme`, except for errors of this URL only."""
        scheme = scheme_of(uri)
        if scheme in self._checked:
            return
        self._checked.add(scheme)
        try:
            check_scheme(uri)
        except UrlError as error:
            self._refused = self._refused or error
        else:
            self._others = True

    def finish(self) -> None:
        """Raise UrlError if no added URL can be opened."""
        if self._refused is not None and not self._others:
            raise self._refused


def check_scheme(uri: str) -> None:
    """Check, without any request, that ``uri`` can be opened on this machine.

    Raises:
        UrlError: if its scheme is unsupported, or it is a chain of URLs.
        InputError: if a package is missing.
        MissingExtraError: if the driver of the scheme is not installed; contains the pip line.
    """
    scheme = scheme_of(uri)
    if scheme is None:
        return
    if scheme not in SCHEMES:
        raise UrlError(f"no way to open {scheme}:// URLs; expected one of {', '.join(SCHEMES)}")
    if CHAIN.search(uri):
        raise UrlError(f"expected a plain URL, got a chain of URLs ('::') in {shown(uri)!r}; download it first")
    parts = uri.partition("://")[2].strip("/").split("/")
    if scheme == "hf" and len(parts) < (3 if parts[0] in HUB_KINDS else 2):
        raise UrlError(f"expected a URL such as hf://datasets/OWNER/NAME/FOLDER, got {uri!r}; add a repository")
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
    if scheme in GOOGLE:
        # not gcsfs's default driver, which first requests the bucket's kind over gRPC: if that fails (an emulator, a
        # proxy, a missing permission), it waits a minute each time before it falls back to this one
        from gcsfs.core import GCSFileSystem

        return GCSFileSystem
    import fsspec

    return fsspec.get_filesystem_class(scheme)


def shown(uri: str) -> str:
    """Return a path or URL for display, without user, password, query and fragment, which may be secrets.

    >>> shown("https://me:word@host:8000/a.jpg?signature=abc"), shown("s3://bucket/a#1.jpg"), shown("a?.jpg")
    ('https://host:8000/a.jpg', 's3://bucket/a#1.jpg', 'a?.jpg')
    """
    scheme = scheme_of(uri)
    if scheme is None:
        return uri
    if scheme not in ("http", "https"):  # in a store, `?` and `#` are part of a name, and names contain no secrets
        start, _, rest = uri.partition("://")
        host, slash, path = rest.partition("/")
        return f"{start}://{host.rpartition('@')[2]}{slash}{path}"
    try:
        parts = urlsplit(uri)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:  # such as an unfinished IPv6 address
        return f"{scheme}://..."


# Instances are shared by all threads: fsspec would make one for each, and a client of S3 takes megabytes and
# a tenth of a second. Those that wait on the one event loop of fsspec (asynchronous ones) can be shared, and so can
# the hub's, as `hub` uses it.
_SHARED: dict[tuple[Any, ...], Any] = {}
_SHARING = threading.Lock()


def file_system(uri: str, *, listing: bool = False, **more: Any) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path inside it.

    Args:
        uri: a plain URL.
        listing: for listing and writing: the driver retries, and caches nothing; else the caller retries
            (`remote.ask`).
        more: options of the driver.

    Raises:
        InputError, MissingExtraError: as `check_scheme`.
    """
    check_scheme(uri)
    scheme = scheme_of(uri) or "file"
    driver = _driver(scheme)
    shared = bool(getattr(driver, "async_impl", False)) or scheme == "hf"
    our_options = _options(scheme, listing=listing, shared=shared)
    options = {**our_options, **driver._get_kwargs_from_urls(uri), **more}  # as fsspec does, without chains
    key = (os.getpid(), scheme, listing, repr(sorted(options.items())))
    with _SHARING:
        system = _SHARED.get(key)
        if system is None:
            system = _connected(driver, scheme, options, shared=shared)
            if not listing and scheme in ("s3", "s3a"):
                system.retries = 1
            if not listing and scheme in GOOGLE:
                try_once(system)
            if shared:
                _SHARED[key] = system
    return system, driver._strip_protocol(uri)


def _connected(driver: Any, scheme: str, options: dict[str, Any], *, shared: bool) -> Any:
    """Return a file system with its client, created now, since concurrent requests would each create one."""
    from fsspec.asyn import sync

    # failures are reported by curate instead
    for name in ("fsspec", "s3fs", "gcsfs", "aiobotocore", "botocore", "huggingface_hub"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    try:
        system = driver(skip_instance_cache=shared, **options)
        if scheme == "hf":
            check_hub()
        elif scheme in GOOGLE:
            sync(system.loop, widen, system, MOST_CONNECTIONS)
        elif shared and hasattr(system, "set_session"):
            sync(system.loop, system.set_session)
    except InputError:
        raise
    except Exception as error:  # drivers of object stores share no base class for their errors
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"cannot open {scheme}:// URLs: {type(error).__name__}: {reason}") from None
    return system


def _options(scheme: str, *, listing: bool, shared: bool) -> dict[str, Any]:
    """Return the options of a driver: as many connections as requests, and no retries."""
    if scheme in GOOGLE:
        from aiohttp import ClientTimeout

        # by default it would wait forever for a silent server
        waits = ClientTimeout(total=None, sock_connect=CONNECT, sock_read=SILENCE)
        return {"requests_timeout": waits, "use_listings_cache": False}
    if listing:
        return {"use_listings_cache": False} if shared and scheme != "hf" else {}
    if scheme not in ("s3", "s3a"):
        return {}
    from fsspec.config import conf

    configured = conf.get(scheme, {}).get("config_kwargs", {})
    once = {"mode": "standard", "total_max_attempts": 1}
    ours = {"max_pool_connections": MOST_CONNECTIONS, "connect_timeout": CONNECT, "retries": once}
    return {"config_kwargs": {**ours, **configured}}
