"""Bytes that are not on this machine are requested before they are needed, many requests at a time."""

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

HELD_BYTES = 256 << 20  # that have come and were not read yet; what is under way may be `PIECE` for each request more
ALL_DENIED = 16  # first answers after which a store or server that denied every one of them ends the run
_TOO_LARGE = None  # to be held: it is read when its turn comes

Asked = Future[bytes | None]


class ReadAhead:
    """Asks for what remote readers would read while those before them are at work.

    Readers of local files pass through. Order stays, and so does what a reader returns or raises. As a context manager
    it ends by `stop`.

    Args:
        connections: requests at a time, >= 1.
        held_bytes: bound on what has come and waits to be read.
    """

    def __init__(self, connections: int, held_bytes: int = HELD_BYTES) -> None:
        self._connections, self._bound = connections, held_bytes
        self._queue: queue.SimpleQueue[tuple[RemoteReader, Asked] | None] = queue.SimpleQueue()
        self._threads = 0
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._held = self._answers = self._denied = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def readers(self, readers: Iterable[Reader]) -> Iterator[Reader]:
        """Yield a reader for each, in order; at most ``connections`` are taken before they are yielded.

        Raises (a reader does):
            InputError: if the first answers of all, `ALL_DENIED` of them, are that access is denied.
        """
        waiting: deque[Reader] = deque()
        for reader in readers:
            waiting.append(self._started(reader) if isinstance(reader, RemoteReader) else reader)
            if not isinstance(reader, RemoteReader) or len(waiting) >= self._connections:
                yield waiting.popleft()
        yield from waiting

    def finish(self) -> None:
        """Let the threads go once all that was requested has come."""
        for _ in range(self._threads):
            self._queue.put(None)

    def stop(self) -> None:
        """Let the threads go without waiting for them; a reader that still waits is cancelled."""
        self._stopped.set()
        self.finish()

    def _started(self, reader: RemoteReader) -> Reader:
        if self._held >= self._bound:
            return partial(self._read, reader)
        if self._threads < self._connections:
            self._threads += 1
            # Nobody waits for these threads at exit: a server that does not answer must not hold up Ctrl-C.
            threading.Thread(target=self._work, name="fetch", daemon=True).start()
        asked: Asked = Future()
        self._queue.put((reader, asked))
        return partial(self._result, reader, asked)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            reader, asked = item
            if self._stopped.is_set():
                asked.cancel()
                continue
            try:
                asked.set_result(self._ask(reader))
            except BaseException as error:  # raised where it is read
                asked.set_exception(error)

    def _ask(self, reader: RemoteReader) -> bytes | None:
        try:
            data = reader.read(min(PIECE, reader.max_bytes))
        except ReadError as error:
            if error.status == "too_large" and reader.max_bytes > PIECE:
                return _TOO_LARGE
            raise
        with self._lock:
            self._held += len(data)
        return data

    def _result(self, reader: RemoteReader, asked: Asked) -> bytes:
        while True:
            try:
                data = asked.result(timeout=1.0)
            except TimeoutError:
                if self._stopped.is_set():
                    raise CancelledError from None
            except ReadError as error:
                self._note(error)
                raise
            else:
                break
        if data is _TOO_LARGE:
            return self._read(reader)
        with self._lock:
            self._held -= len(data)
        self._note(None)
        return data

    def _read(self, reader: RemoteReader) -> bytes:
        try:
            data = reader()
        except ReadError as error:
            self._note(error)
            raise
        self._note(None)
        return data

    def _note(self, failure: ReadError | None) -> None:
        """Count the answers, and end the run where the first ones are all alike."""
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
