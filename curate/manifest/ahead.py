"""Prefetching: remote bytes are requested before they are needed, many requests at a time."""

import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Self

from curate.manifest.contract import Reader, ReadError, RemoteReader
from curate.manifest.remote import PIECE
from scoring.errors import InputError
from scoring.images.budget import BODIES, NeedsMemory

HELD_BYTES = 256 << 20  # bound on unread and requested bytes
ALL_DENIED = 16  # the run ends if this many first requests are all denied


class _Share:
    """One request's share of the prefetch memory; never waits, since received bytes wait for other requests."""

    def __init__(self, reading: "ReadAhead") -> None:
        self._reading = reading
        self.n_bytes = 0

    def may_take(self, n_bytes: int) -> bool:
        return self._reading.may_hold(self, n_bytes)

    def take(self, n_bytes: int) -> None:
        if not self.may_take(n_bytes):
            raise NeedsMemory(n_bytes)


FutureBytes = Future[bytes | None]  # None: it is read in turn


class ReadAhead:
    """Prefetches what remote readers will read while earlier rows are processed; local readers pass through.

    The order of readers, and what they return or raise, is unchanged. As a context manager it ends by `stop`.

    Args:
        connections: concurrent requests, >= 1.
        held_bytes: bound on received and requested bytes together, the latter by their stated size.
    """

    def __init__(self, connections: int, held_bytes: int = HELD_BYTES) -> None:
        self._connections, self._bound = connections, held_bytes
        self._queue: queue.SimpleQueue[tuple[RemoteReader, FutureBytes, _Share] | None] = queue.SimpleQueue()
        self._threads = 0
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._held = self._answers = self._denied = 0
        self._n_bodies = self._n_bytes = 0  # that have come

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def readers(self, readers: Iterable[Reader]) -> Iterator[Reader]:
        """Yield a reader for each, in order; at most ``connections`` are taken ahead.

        A reader raises InputError if each of the first `ALL_DENIED` requests is denied.
        """
        waiting: deque[Reader] = deque()
        for reader in readers:
            waiting.append(self._prefetch(reader) if isinstance(reader, RemoteReader) else reader)
            if not isinstance(reader, RemoteReader) or len(waiting) >= self._connections:
                yield waiting.popleft()
        yield from waiting

    def finish(self) -> None:
        """End the threads once all requested bytes have arrived."""
        for _ in range(self._threads):
            self._queue.put(None)

    def stop(self) -> None:
        """End the threads without waiting for them; a waiting reader is cancelled."""
        self._stopped.set()
        self.finish()

    def _prefetch(self, reader: RemoteReader) -> Reader:
        share = _Share(self)
        expected = self._n_bytes // max(1, self._n_bodies)  # so that few responses exceed the memory
        if self._held >= self._bound or not share.may_take(expected):
            return partial(self._read, reader)
        if self._threads < self._connections:
            self._threads += 1
            # These threads are not waited for at exit: a server that does not answer must not hold up Ctrl-C.
            threading.Thread(target=self._work, name="fetch", daemon=True).start()
        future: FutureBytes = Future()
        self._queue.put((reader, future, share))
        return partial(self._result, reader, future, share)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            reader, future, share = item
            if self._stopped.is_set():
                future.cancel()
                continue
            try:
                data = self._fetch(reader, share)
            except BaseException as error:  # raised in the reader
                share.may_take(0)
                future.set_exception(error)
            else:
                future.set_result(data)

    def _fetch(self, reader: RemoteReader, share: _Share) -> bytes | None:
        try:
            with BODIES.held_by(share):
                data = reader.read(min(PIECE, reader.max_bytes))
            share.take(len(data))
        except NeedsMemory:
            share.may_take(0)
            return None
        except ReadError as error:
            if error.status == "too_large" and reader.max_bytes > PIECE:
                share.may_take(0)
                return None
            raise
        with self._lock:
            self._n_bodies, self._n_bytes = self._n_bodies + 1, self._n_bytes + len(data)
        return data

    def may_hold(self, share: _Share, n_bytes: int) -> bool:
        """Let a request hold this many bytes instead of its previous number, if memory allows."""
        with self._lock:
            more = n_bytes - share.n_bytes
            if more > 0 and self._held + more > self._bound:
                return False
            self._held += more
            share.n_bytes = n_bytes
            return True

    def _result(self, reader: RemoteReader, future: FutureBytes, share: _Share) -> bytes:
        while True:
            try:
                data = future.result(timeout=1.0)
            except TimeoutError:
                if self._stopped.is_set():
                    raise CancelledError from None
            except ReadError as error:
                self._count_result(error)
                raise
            else:
                break
        if data is None:
            return self._read(reader)
        BODIES.take(len(data))  # from here on it counts as being decoded
        share.may_take(0)
        self._count_result(None)
        return data

    def _read(self, reader: RemoteReader) -> bytes:
        try:
            data = reader()
        except ReadError as error:
            self._count_result(error)
            raise
        self._count_result(None)
        return data

    def _count_result(self, failure: ReadError | None) -> None:
        """Count the results, and end the run if the first ones all fail in the same way."""
        denied = failure is not None and failure.status == "denied"
        with self._lock:
            self._answers, self._denied = self._answers + 1, self._denied + denied
            if denied and self._answers == self._denied == ALL_DENIED:
                raise InputError(
                    f"the first {ALL_DENIED} images are all denied ({failure}); check the credentials and what they "
                    "may read, or leave these images out"
                )


def ahead(readers: Iterable[Reader], connections: int) -> Iterator[Reader]:
    """Yield a reader for each, in order; see `ReadAhead`."""
    reading = ReadAhead(connections)
    try:
        yield from reading.readers(readers)
    except BaseException:
        reading.stop()
        raise
    reading.finish()
