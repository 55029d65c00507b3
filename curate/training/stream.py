"""Readers of a source's rows in training order, in bounded memory."""

import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import IO

import numpy as np
from torch import Tensor

from curate.manifest.ahead import ahead
from curate.manifest.contract import HeldReader, Manifest, Reader, ReadError
from curate.tables.images import readers_in_order
from scoring.atomic import place_errors
from scoring.images.budget import BODIES
from scoring.system import read_at

HELD_BYTES = 512 << 20  # encoded images of a table in memory for one window of rows; more of them are in a file
AT_ONCE = 2  # windows: while images of one are used, the next one is read


def stream_readers(manifest: Manifest, windows: Iterable[Tensor]) -> Iterator[Reader]:
    """Yield a reader of each row, window by window, prefetching from stores and servers.

    Images inside a table are read a window ahead, in the order of the table.

    Args:
        manifest: the rows.
        windows: rows in the order of use, one shuffle window at a time.
    """
    return ahead(_readers(manifest, windows), manifest.connections)


def _readers(manifest: Manifest, windows: Iterable[Tensor]) -> Iterator[Reader]:
    waiting: deque[Future[list[Reader]]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="window") as pool:
        for rows in windows:
            waiting.append(pool.submit(_window, manifest, rows.numpy()))
            if len(waiting) == AT_ONCE:
                yield from _emptied(waiting.popleft().result())
        while waiting:
            yield from _emptied(waiting.popleft().result())


def _emptied(readers: list[Reader]) -> Iterator[Reader]:
    readers.reverse()
    while readers:
        yield readers.pop()


def _window(manifest: Manifest, rows: np.ndarray) -> list[Reader]:
    """Return readers of the given rows, in order; bytes in shared memory are copied."""
    order = np.argsort(rows)
    readers: list[Reader | None] = [None] * len(rows)
    held = _HeldBytes()
    for place, reader in zip(order.tolist(), readers_in_order(manifest, rows[order]), strict=True):
        readers[place] = held.keep(reader) if isinstance(reader, HeldReader) else reader
    return [reader for reader in readers if reader is not None]


class _HeldBytes:
    """A buffer of encoded images: some in memory, the rest in an unnamed file."""

    def __init__(self) -> None:
        self._n_bytes = 0
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def keep(self, reader: HeldReader) -> Reader:
        """Read an image now; return a function that returns its bytes later."""
        try:
            data = reader()
        except ReadError:
            return reader
        self._n_bytes += len(data)
        if self._n_bytes <= HELD_BYTES:
            return partial(_counted, data)
        with place_errors(tempfile.gettempdir()):
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (it lives as long as its readers)
            offset, rest = self._file.seek(0, 2), memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
        return partial(self._read, self._file, offset, len(data))

    def _read(self, file: IO[bytes], offset: int, n_bytes: int) -> bytes:
        BODIES.take(n_bytes)
        with self._lock:  # without positioned reads, the file position is shared
            return read_at(file.fileno(), n_bytes, offset)


def _counted(data: bytes) -> bytes:
    BODIES.take(len(data))
    return data
