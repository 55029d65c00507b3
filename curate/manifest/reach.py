"""Where paths and URLs in a source may lead: not into private networks, nor from a remote source to local files."""

import ipaddress
import os
import posixpath
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from curate.manifest.local import local_path
from curate.manifest.schemes import scheme_of

VARIABLE = "CURATE_ALLOW_PRIVATE_HOSTS"
PRIVATE = "the address is on a private network"
HOW_TO_ALLOW = f"allow it with {VARIABLE}=1"
# Their drivers connect to the host in the URL, and cannot be restricted.
_NAMES_A_HOST = {"ftp", "sftp", "hdfs", "webhdfs"}
_PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True)
class Reach:
    """The places to which the URIs of a manifest may lead.

    Stores (`s3`, `gs`, `hf`, ...) are requested at the address in the user's configuration, so they are always allowed.

    Args:
        private: allow addresses of private networks.
        addresses: (address, port) of hosts that the user typed; always allowed.
        hosts: `scheme://host:port` of URLs that the user typed.
        folder: allowed root of local paths; None allows none, as in a source from another machine.
    """

    private: bool = False
    addresses: frozenset[tuple[str, int]] = frozenset()
    hosts: frozenset[str] = frozenset()
    folder: str | None = "/"

    @property
    def everywhere(self) -> bool:
        """Whether addresses of private networks are allowed."""
        return self.private or os.environ.get(VARIABLE, "") not in ("", "0")

    def bars(self, uri: str) -> str:
        """Return why a path or URL of a row is not allowed; empty if it is."""
        scheme = scheme_of(uri)
        if scheme in (None, "file"):
            if self.folder is None:
                return "a source from elsewhere refers to a local file; copy the source here, or set --root"
            path = os.fsdecode(local_path(uri)) if scheme else uri
            inside = self.folder == "/" or posixpath.normpath(path).startswith(self.folder.rstrip("/") + "/")
            return "" if inside else "a source from elsewhere refers to a file outside of --root"
        if scheme in _NAMES_A_HOST and not self.everywhere and _host(uri) not in self.hosts:
            return f"{scheme}:// may lead into a private network; {HOW_TO_ALLOW}"
        return ""

    def open_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Return the socket of a new connection; every request of aiohttp uses this function.

        Raises:
            OSError: if the address is not allowed. It is the actual address of the connection, so name servers and
                redirects cannot circumvent the check.
        """
        family, kind, protocol, _, place = info
        if not self.everywhere and not is_public(place[0]) and (place[0], place[1]) not in self.addresses:
            raise OSError(None, f"{PRIVATE}; {HOW_TO_ALLOW}")
        return socket.socket(family=family, type=kind, proto=protocol)


def is_public(address: str) -> bool:
    """Return whether an IP address is public, including IPv4 inside IPv6.

    >>> [is_public(text) for text in ("93.184.216.34", "10.0.0.1", "::ffff:127.0.0.1", "169.254.169.254", "224.0.0.1")]
    [True, False, False, False, False]
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and (ip in _NAT64 or int(ip) >> 32 == 0):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast


def reach_of(typed: Iterable[str], root: str | None, *, private: bool) -> Reach:
    """Return the allowed reach of a source.

    A URL that the user typed is allowed at a private address, and so are all URLs at that address.

    Args:
        typed: paths and URLs of the source.
        root: base of relative paths, as typed; a remote source may name local files under it.
        private: whether the user allows private networks.
    """
    typed = list(typed)
    urls = [text for text in (*typed, *([root] if root else [])) if scheme_of(text) not in (None, "file")]
    addresses: set[tuple[str, int]] = set()
    for url in urls:
        addresses |= _addresses(url)
    far = any(scheme_of(text) not in (None, "file") for text in typed)
    local_root = os.path.abspath(root) if root and scheme_of(root) is None else None  # noqa: PTH100 (text, not Path)
    return Reach(private, frozenset(addresses), frozenset(map(_host, urls)), local_root if far else "/")


def _host(url: str) -> str:
    try:
        return f"{scheme_of(url)}://{urlsplit(url).netloc.rpartition('@')[2].lower()}"
    except ValueError:
        return ""


def _addresses(url: str) -> set[tuple[str, int]]:
    """Return the addresses of the host of an HTTP URL; empty if there are none, which the request will report."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme.lower()]
        resolved = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError, KeyError):
        return set()
    return {(str(each[4][0]), port) for each in resolved}


class Client:
    """Makes HTTP clients restricted to the reach; equal ones share one fsspec file system."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def __repr__(self) -> str:
        return repr(self._reach)

    async def __call__(self, **named: Any) -> Any:
        """Return a session of aiohttp."""
        import aiohttp

        connector = aiohttp.TCPConnector(limit=0, socket_factory=self._reach.open_socket)
        return aiohttp.ClientSession(connector=connector, **named)
