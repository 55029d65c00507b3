"""A decoder process: receives encoded images over a socket and returns pixels, one at a time.

Protocol: a message is 4 bytes of length, then JSON. The parent sends a request and the encoded bytes; the child answers
with the size of the image; the parent waits until there is memory for it, then requests the pixels or nothing more; the
child answers. Any answer may be a failure. Pixels are in shared memory on Linux; elsewhere they follow the header
through the socket.
"""

import io
import json
import mmap
import os
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from PIL import AvifImagePlugin

from scoring.images.geometry import Pixels
from scoring.images.outcome import DecodeError
from scoring.images.raster import DecodeOptions, LocalImage
from scoring.system import SHARES_MEMORY, limit_memory, seal_size, write_no_core

MEMORY = 512 << 20  # bytes of a decoder in addition to those for the image
MEMORY_PER_PIXEL = 24  # bytes per pixel of the largest allowed image
MEMORY_PER_BYTE = 4  # bytes per byte of the encoded image
LONGEST_FRAME = 1 << 16
_EXPENDABLE = "500"  # when memory runs out, the system kills this process instead of the run


Answer = Callable[[socket.socket, dict[str, Any]], None]


def serve(fd: int | None) -> None:
    """Answer requests until the other end closes; ``fd`` as in ``answer_all``."""
    answer_all(fd, _answer)


def _connected() -> socket.socket:
    """Connect to the local port named on standard input, and send the token that follows it."""
    port, word = sys.stdin.readline().split()
    parent = socket.create_connection(("127.0.0.1", int(port)))
    parent.sendall(word.encode())
    parent.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return parent


def answer_all(fd: int | None, answer: Answer) -> None:
    """Answer requests from an inherited socket, or without one from a local port, until the other end closes."""
    with _connected() if fd is None else socket.socket(fileno=fd) as parent:
        _limit_resources()
        send_frame(parent, {"ready": True})
        while request := receive_frame(parent):
            try:
                answer(parent, request)
            except MemoryError:
                send_frame(parent, {"memory": True})
            except Exception:  # a bug, reported to the parent process
                send_frame(parent, {"bug": traceback.format_exc()[-LONGEST_FRAME // 4 :]})


def _limit_resources() -> None:
    """Limit this process's memory and output, and end it when its parent ends."""
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # C libraries print warnings on files there
        os.dup2(silent, stream)
    os.close(silent)
    if hasattr(signal, "SIGPROF"):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    write_no_core()
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    expendable = Path("/proc/self/oom_score_adj")
    if expendable.exists():
        expendable.write_text(_EXPENDABLE)


def _answer(parent: socket.socket, request: dict[str, Any]) -> None:
    data = receive_bytes(parent, request["n_bytes"])
    options = DecodeOptions(**request["options"])
    need = MEMORY + MEMORY_PER_PIXEL * options.max_pixels + MEMORY_PER_BYTE * len(data)
    limit_memory(need)
    _limit_time(options.seconds)
    try:
        image = LocalImage(data, request["name"], options)
        send_frame(parent, {"header": asdict(image.header)})
        task = receive_frame(parent)
        if task is None:
            raise SystemExit(0)
        if task["what"] == "nothing":
            send_frame(parent, {"done": True})
        else:
            _send_raster(parent, image, task["short_side"])
    except DecodeError as failure:
        details = {"status": failure.status, "message": str(failure), "n_frames": failure.n_frames}
        send_frame(parent, {"failure": {**details, "width": failure.width, "height": failure.height}})
    finally:
        _limit_time(0)


def _limit_time(seconds: float) -> None:
    """End this process after this much CPU time, if the system supports such a limit."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _send_raster(parent: socket.socket, image: LocalImage, short_side: int | None) -> None:
    raster, warning = image.raster(short_side)
    pixels = np.ascontiguousarray(raster.pixels)
    reply = {name: getattr(raster, name) for name in ("width", "height", "orientation", "highest")}
    reply |= {"shape": pixels.shape, "warning": warning}
    if not SHARES_MEMORY:
        send_frame(parent, {**reply, "n_bytes": pixels.nbytes})
        parent.sendall(pixels.data.cast("B"))
        return
    place = os.memfd_create("pixels", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        rest = pixels.data.cast("B")
        while rest:
            rest = rest[os.write(place, rest) :]
        send_frame(parent, reply, place)
    finally:
        os.close(place)


def pixels_in(place: int, shape: tuple[int, int, int]) -> Pixels:
    """Return the pixels (H, W, 3) in shared memory, without a copy; ValueError if it has fewer bytes.

    The descriptor ``place`` may be closed afterwards.
    """
    seal_size(place)
    n_bytes = shape[0] * shape[1] * shape[2]
    if os.fstat(place).st_size != n_bytes:
        raise ValueError(f"expected {n_bytes} bytes of pixels, got {os.fstat(place).st_size}")
    memory = mmap.mmap(place, n_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    return np.frombuffer(memory, np.uint8).reshape(shape)


def send_frame(peer: socket.socket, value: dict[str, Any], place: int | None = None) -> None:
    """Send a JSON value, optionally with a file descriptor."""
    text = json.dumps(value).encode()
    frame = struct.pack(">I", len(text)) + text
    sent = 0 if place is None else socket.send_fds(peer, [frame], [place])
    peer.sendall(frame[sent:])


def receive_frame(peer: socket.socket) -> dict[str, Any] | None:
    """Return the next JSON value; None if the other end closed."""
    try:
        head = receive_bytes(peer, 4)
    except EOFError:
        return None
    value: dict[str, Any] = json.loads(receive_bytes(peer, struct.unpack(">I", head)[0]))
    return value


def receive_bytes(peer: socket.socket, n_bytes: int) -> bytes:
    """Return exactly that many bytes; raises EOFError if the other end closes before."""
    buffer = io.BytesIO(bytes(n_bytes))  # its buffer is returned without another copy
    with buffer.getbuffer() as view:
        receive_into(peer, view)
    return buffer.getvalue()


def receive_into(peer: socket.socket, view: memoryview) -> None:
    """Fill a buffer of bytes; raises EOFError if the other end closes before."""
    while view:
        got = peer.recv_into(view)
        if not got:
            raise EOFError("the other end is closed")
        view = view[got:]
