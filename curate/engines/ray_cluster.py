"""A connection to a Ray cluster, or to a private Ray started on this machine."""

import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from curate.counted import counted
from curate.engines.contract import Cluster
from scoring.errors import InputError, MissingExtraError

CONNECT_WITHIN = 10.0  # seconds
GREETED_WITHIN = 5.0  # seconds
SETTINGS = b"\0\0\0\4\0\0\0\0\0"  # empty SETTINGS frame: length (3 bytes), type, flags, stream
OBJECTS = 80 << 20  # bytes of Ray's object store, near its minimum, since objects are small
QUIET = {  # read when Ray is imported
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # otherwise its daemons print to stdout, which is for data
    "RAY_NUM_REDIS_GET_RETRIES": "1",  # attempts to reach the head, almost a minute each; default 20
}
TOKEN = secrets.token_hex(16)  # for a Ray started here: other users of the machine have no access


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, and yield the package ``ray``.

    Args:
        address: ``auto``, ``HOST:PORT`` or ``ray://HOST:PORT``. None uses ``RAY_ADDRESS`` or an existing connection;
            else it starts Ray on this machine, which also ends here.

    Raises:
        InputError: if Ray is not installed, or the cluster is missing or cannot be used.
    """
    address = address or os.environ.get("RAY_ADDRESS")
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    before = sys.modules.get("ray")
    if before is not None and before.is_initialized():
        if address is not None:
            raise InputError(f"this process is connected to a Ray cluster already; leave out the address {address}")
        yield before
        return
    if address not in (None, "auto", "local"):
        require_listener(str(address))
    alone = address in (None, "local")
    ray = _imported(alone=alone)
    with tempfile.TemporaryDirectory(prefix="curate-ray-", ignore_cleanup_errors=True) as logs:
        try:
            with _signals_kept():
                _connect(ray, "local" if alone else str(address), logs)
            yield ray
        finally:
            ray.shutdown()


def _imported(*, alone: bool) -> Any:
    """Import the package with the settings that bind a private Ray to this machine."""
    if alone:
        os.environ |= {
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # makes Ray bind to loopback on any system
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": TOKEN,
            "RAY_worker_niceness": "0",  # as the local engine runs
        }
    try:
        import ray
    except ImportError:
        raise MissingExtraError("--engine ray", "ray") from None
    return ray


def _connect(ray: Any, address: str, logs: str) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    local_options = {"include_dashboard": False, "_temp_dir": logs, "object_store_memory": OBJECTS}
    try:
        with warnings.catch_warnings(action="ignore"):
            ray.init(address=address, **quiet, **(local_options if address == "local" else {}))
    except (ray.exceptions.RayError, RuntimeError, ValueError, OSError) as error:  # such as a missing token
        message = " ".join(str(error).split())
        raise InputError(
            f"expected a Ray cluster at {address} that this process can join, got: {message[:300]}"
        ) from None
    if address == "local" and not ray.util.get_node_ip_address().startswith(("127.", "::1")):
        raise InputError(
            "ray was imported before curate could bind it to this machine alone; call ray.init() first, or "
            "pass the cluster's address"
        )


def require_listener(address: str) -> None:
    """Raise InputError unless a gRPC server answers at ``HOST:PORT`` or ``ray://HOST:PORT``; Ray would wait long.

    gRPC uses HTTP/2, whose server sends its settings first (RFC 9113, 3.4). With TLS, nothing can be determined.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InputError(f"expected --engine ray:auto, ray:HOST:PORT or ray:ray://HOST:PORT, got {address!r}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_WITHIN) as heard:
            if os.environ.get("RAY_USE_TLS") != "1" and not _greets(heard):
                raise OSError("the server there is not Ray")
    except OSError as error:
        raise InputError(
            f"no Ray cluster answers at {address} ({error}); start one with `ray start`, "
            "or leave the address out: --engine ray"
        ) from None


def _greets(heard: socket.socket) -> bool:
    """Send an HTTP/2 client preface; return whether the server's settings frame (nine-byte header) comes back."""
    heard.settimeout(GREETED_WITHIN)
    try:
        heard.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS)
        head = heard.recv(len(SETTINGS), socket.MSG_WAITALL)
    except (TimeoutError, ConnectionError):
        return False
    return len(head) == len(SETTINGS) and head[3] == SETTINGS[3]


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM: Ray replaces it at its start."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as stop:
        if stop.code == signal.SIGTERM and callable(before):  # how Ray accepts it
            before(signal.SIGTERM, None)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class Share:
    """The resources of each actor in a cluster, and the number of actors.

    Attributes:
        cores: reserved for each.
        gpus: reserved for each, or 0.
        room: number of actors that fit.
        nodes: number of nodes with room for one.
    """

    cores: int
    gpus: float
    room: int
    nodes: int


def share_of(nodes: Sequence[Mapping[str, float]], cluster: Cluster, threads: int) -> Share:
    """Return the resources of each actor.

    Args:
        nodes: resources of each, ``CPU`` and ``GPU``.
        cluster: the request.
        threads: of the model on a CPU: the cores of an actor, unless a node has fewer. With GPUs, the cores of a node
            are divided among them.

    Raises:
        InputError: if no node has room for one.
    """
    gpus = cluster.num_gpus or 0.0
    able = [node for node in nodes if node.get("GPU", 0) >= gpus and node.get("CPU", 0) >= 1]
    if not able:
        need = f"{gpus:g} GPU and a core" if gpus else "a core"
        most = [max((node.get(kind, 0) for node in nodes), default=0) for kind in ("GPU", "CPU")]
        raise InputError(
            f"expected a node of the Ray cluster with {need} for an actor, got {counted(len(nodes), 'node')} with at "
            f"most {most[0]:g} GPUs and {most[1]:g} cores each"
        )
    if gpus:
        cores = max(1, min(int(node["CPU"] / int(node["GPU"] / gpus)) for node in able))
    else:
        cores = min(threads, int(max(node["CPU"] for node in able)))
    rooms = [int(node["CPU"] // cores) for node in able]
    if gpus:
        rooms = [min(room, int(node["GPU"] / gpus)) for room, node in zip(rooms, able, strict=True)]
    return Share(cores, gpus, sum(rooms), sum(room > 0 for room in rooms))
