"""Decoder processes, which may crash, hang or grow without affecting others.

A process is started when a thread needs one and none is idle, decodes one image after another, and is replaced if it
dies. CPU time and memory per image are limited. It ends with this process: when its socket closes, or at the latest
when its CPU time is used up.
"""

import atexit
import hmac
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from scoring.errors import InputError
from scoring.images.child import LONGEST_FRAME, pixels_in, receive_bytes, send_frame
from scoring.images.geometry import Raster
from scoring.images.outcome import DecodeError
from scoring.images.pillow import check_size
from scoring.images.raster import DecodeOptions, Header
from scoring.system import PASSES_SOCKETS, SHARES_MEMORY

START_SECONDS = 120.0
PATIENCE = 3.0  # wall-clock seconds allowed per second of CPU time, but
LEAST_WAIT = 30.0  # at least this many seconds, since other programs use the CPU too
ENVIRONMENT = (
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PATH",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "SYSTEMROOT",
)  # of ours, that a decoder gets
T = TypeVar("T")
Place = int | bytearray | None  # pixels: a descriptor of shared memory, or the bytes themselves
_ROOT = str(Path(__file__).parents[2])
_SCRIPT = "import sys; sys.path[:] = {paths}; from {module} import serve; serve({fd})"


class Lost(Exception):
    """A decoder process died or was killed; ``status`` is ``timeout`` or ``crashed``."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class Child:
    """One decoder process; InputError if it cannot be started."""

    module = "scoring.images.child"  # module that the process runs

    def __init__(self) -> None:
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
        try:
            start = _start if PASSES_SOCKETS else _start_at_port
            self._socket, self._process = start(self.module, environment)
        except OSError as error:
            raise InputError(f"expected to start a decoder's process with {sys.executable!r}, got: {error}") from None
        try:
            self._receive(START_SECONDS)
        except Lost as lost:
            raise InputError(f"expected {sys.executable} to start a decoder's process, got: {lost}") from None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def ask(self, message: dict[str, Any], data: bytes, seconds: float) -> tuple[dict[str, Any], Place]:
        """Send a message and bytes; return the answer with its pixels.

        Raises ``Lost`` if the process died, or took longer than ``seconds`` allow.
        """
        wait = max(LEAST_WAIT, PATIENCE * seconds)
        self._socket.settimeout(wait)
        try:
            send_frame(self._socket, message)
            self._socket.sendall(data)
        except OSError:
            raise self._lost(f"no answer in {wait:g} s") from None
        return self._receive(wait)

    def end(self) -> None:
        """Kill the process, even while it decodes."""
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """Close this end of the socket, in a fork of the process that started the decoder."""
        self._socket.close()
        self._process.returncode = 0  # belongs to another process

    def _receive(self, wait: float) -> tuple[dict[str, Any], Place]:
        until = time.monotonic() + wait
        frame, places, length = b"", list[int](), 4
        try:
            while len(frame) < length:
                self._socket.settimeout(max(0.001, until - time.monotonic()))
                more, got = self._some(length - len(frame))
                places += got
                frame += more
                if not more or len(frame) > LONGEST_FRAME:
                    raise EOFError
                if len(frame) >= 4:
                    length = 4 + struct.unpack_from(">I", frame)[0]
            reply = json.loads(frame[4:])
            if "n_bytes" in reply:
                return reply, self._pixels(reply["n_bytes"], until)
            return reply, places[0] if places else None
        except (OSError, EOFError, ValueError):
            for place in places:
                os.close(place)
            raise self._lost(f"no answer in {wait:g} s") from None

    def _some(self, n_bytes: int) -> tuple[bytes, list[int]]:
        """Return up to ``n_bytes`` that have arrived, with the received file descriptors."""
        if not SHARES_MEMORY:
            return self._socket.recv(min(n_bytes, LONGEST_FRAME)), []
        more, places, _, _ = socket.recv_fds(self._socket, LONGEST_FRAME, 1)
        return more, places

    def _pixels(self, n_bytes: int, until: float) -> bytearray:
        """Return the pixels that follow a message; memory grows with the bytes received, not the announced size."""
        pixels = bytearray()
        while len(pixels) < n_bytes:
            self._socket.settimeout(max(0.001, until - time.monotonic()))
            more = self._socket.recv(min(n_bytes - len(pixels), 1 << 20))
            if not more:
                raise EOFError
            pixels += more
        return pixels

    def _lost(self, when_it_lives: str) -> Lost:
        """Kill the process if needed, and return why it was lost."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.poll()
        self.end()
        if code is None:
            return Lost("timeout", when_it_lives)
        if code == -getattr(signal, "SIGPROF", 0):
            return Lost("timeout", "the time for decoding one image is over")
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"exit code {code}"
        return Lost("crashed", f"the decoder's process ended by {name}")


def _script(module: str, fd: int | None) -> list[str]:
    paths = [os.path.abspath(path) for path in sys.path] + [_ROOT]  # noqa: PTH100 (sys.path holds text)
    return [sys.executable, "-I", "-S", "-c", _SCRIPT.format(paths=ascii(paths), module=module, fd=fd)]


def _start(module: str, environment: dict[str, str]) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    """Start a decoder that inherits its end of a socket."""
    ours, its = socket.socketpair()
    try:
        with its:
            process = subprocess.Popen(  # noqa: S603 (our own interpreter and script)
                _script(module, its.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                env=environment,
                start_new_session=True,  # Ctrl-C only reaches the run, which then closes the socket
            )
    except OSError:
        ours.close()
        raise
    return ours, process


def _start_at_port(module: str, environment: dict[str, str]) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    """Start a decoder that connects to a local port, for systems where sockets are not inherited (Windows).

    Raises OSError if it cannot be started or does not connect.
    """
    word = secrets.token_hex(16)  # authenticates the process
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = subprocess.Popen(  # noqa: S603 (our own interpreter and script)
            _script(module, None),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environment,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # Ctrl-C is for the run
        )
        if process.stdin is not None:
            with process.stdin as pipe:
                pipe.write(f"{server.getsockname()[1]} {word}\n".encode())
        until = time.monotonic() + START_SECONDS
        server.settimeout(1.0)
        while process.poll() is None and time.monotonic() < until:
            with suppress(TimeoutError, EOFError, ConnectionError):
                ours, _ = server.accept()
                ours.settimeout(1.0)
                if hmac.compare_digest(receive_bytes(ours, len(word)), word.encode()):
                    ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    return ours, process
                ours.close()
    process.kill()
    process.wait()
    raise OSError(f"it did not connect to its port; exit code {process.returncode}")


C = TypeVar("C", bound=Child)


class Children(Generic[C]):
    """The idle decoder processes of this process.

    Args:
        start: starts a new one.
    """

    def __init__(self, start: Callable[[], C]) -> None:
        self._lock, self._start = threading.Lock(), start
        self._idle: list[C] = []
        atexit.register(self.end)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def take(self, *, fresh: bool) -> C:
        """Return a decoder for one thread; a new one if ``fresh``, or if none is idle."""
        with self._lock:
            while self._idle and not fresh:
                child = self._idle.pop()
                if child.is_alive:
                    return child
                child.end()
        return self._start()

    def give_back(self, child: C) -> None:
        """Add a decoder that has answered to the idle ones."""
        with self._lock:
            self._idle.append(child)

    def pids(self) -> list[int]:
        """Return the ids of idle processes."""
        with self._lock:
            return [child.pid for child in self._idle]

    def end(self) -> None:
        """End all idle processes."""
        with self._lock:
            while self._idle:
                self._idle.pop().end()

    def _forget(self) -> None:
        """Forget all decoders, in a fork: they belong to the parent process."""
        self._lock = threading.Lock()
        for child in self._idle:
            child.forget()
        self._idle.clear()


CHILDREN = Children(Child)


class ChildImage:
    """An image whose header was read in a decoder process; as ``LocalImage``.

    After a crash the image is tried once more in a new process, since the first may have been killed from outside.
    """

    def __init__(self, data: bytes, name: str, options: DecodeOptions) -> None:
        self._data, self._options = data, options
        self._request = {"name": name, "n_bytes": len(data), "options": vars(options)}
        self._child: Child | None = None
        self.header = self._retried(self._open)

    def raster(self, short_side: int | None) -> tuple[Raster, str | None]:
        """Decode the image; return it and a warning or None."""
        reply, place = self._retried(self._get, {"what": "raster", "short_side": short_side})
        if place is None:
            raise ValueError(f"expected a place of pixels, got {sorted(reply)}")
        if isinstance(place, bytearray):
            pixels = np.frombuffer(place, np.uint8).reshape(reply["shape"])
        else:
            try:
                pixels = pixels_in(place, tuple(reply["shape"]))
            finally:
                os.close(place)
        raster = Raster(pixels, reply["width"], reply["height"], reply["orientation"], reply["highest"])
        return raster, reply["warning"]

    def close(self) -> None:
        """Inform the decoder that the pixels are not needed, if it still waits."""
        if self._child is not None:
            with suppress(Lost):
                self._ask({"what": "nothing"})

    def _retried(self, step: Callable[..., T], *arguments: object) -> T:
        try:
            try:
                return step(*arguments, fresh=False)
            except Lost as lost:
                if lost.status != "crashed":
                    raise
            return step(*arguments, fresh=True)
        except Lost as lost:
            raise DecodeError(lost.status, f"{self._request['name']}: {lost}") from None

    def _open(self, *, fresh: bool) -> Header:
        self._child = CHILDREN.take(fresh=fresh)
        header = Header(**self._ask(self._request, self._data)[0]["header"])
        check_size(header.width, header.height, self._options.max_pixels)
        return header

    def _get(self, request: dict[str, Any], *, fresh: bool) -> tuple[dict[str, Any], Place]:
        if fresh:
            self._open(fresh=True)
        return self._ask(request)

    def _ask(self, message: dict[str, Any], data: bytes = b"") -> tuple[dict[str, Any], Place]:
        child = self._child
        if child is None:
            raise ValueError("the decoder has answered all that it was requested")
        self._child = None
        try:
            reply, place = child.ask(message, data, self._options.seconds)
        except BaseException:
            child.end()
            raise
        if "header" in reply:
            self._child = child  # the process waits for the next request
        else:
            CHILDREN.give_back(child)
        raise_failure(reply)
        return reply, place


def raise_failure(reply: dict[str, Any]) -> None:
    """Raise the decoder's exception, if any; RuntimeError for a bug."""
    if "memory" in reply:
        raise MemoryError
    if "bug" in reply:
        raise RuntimeError(f"in a decoder's process: {reply['bug']}")
    if "failure" in reply:
        failure = reply["failure"]
        error = DecodeError(failure["status"], failure["message"])
        error.width, error.height, error.n_frames = failure["width"], failure["height"], failure["n_frames"]
        raise error


@contextmanager
def opened_in_child(data: bytes, name: str, options: DecodeOptions) -> Iterator[ChildImage]:
    """Read the header of an image in a decoder process; its pixels can be read inside the block.

    Raises:
        DecodeError: as ``LocalImage``; also ``timeout`` and ``crashed``.
        MemoryError: the image needs more memory than the limit.
        InputError: no process can be started.
    """
    image = ChildImage(data, name, options)
    try:
        yield image
    finally:
        image.close()
