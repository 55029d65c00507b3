"""Bounds on what all threads of a process hold at once: encoded bytes, and pixels."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

SMALL = 4_000_000  # pixels; an image up to this size is not counted
IN_FLIGHT = 100_000_000  # pixels of larger images that may be decoded at once
ENCODED = 256 << 20  # bytes of encoded images that are read and decoded at once


class PixelBudget:
    """A limit on the pixels decoded at once: large images wait for each other.

    An image larger than the limit is decoded alone.

    Args:
        limit: total pixels, above 0.
        small: images of at most so many pixels pass at once, uncounted.
    """

    def __init__(self, limit: int = IN_FLIGHT, small: int = SMALL) -> None:
        self.limit = limit
        self.small = small
        self.ask: Callable[[int], None] | None = None  # in a decoder process: reserves in the parent process
        self._in_flight = 0
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, n_pixels: int) -> Iterator[None]:
        """Hold ``n_pixels`` of the budget during the block; waits until they are free."""
        if n_pixels <= self.small:
            yield
            return
        if self.ask is not None:
            self.ask(n_pixels)
            yield
            return
        with self._changed:
            while self._in_flight and self._in_flight + n_pixels > self.limit:
                self._changed.wait()
            self._in_flight += n_pixels
        try:
            yield
        finally:
            with self._changed:
                self._in_flight -= n_pixels
                self._changed.notify_all()


BUDGET = PixelBudget()  # of this process


class NeedsMemory(Exception):
    """Raised if that many bytes of an image cannot be reserved now; the decoder waits its turn and tries again."""

    def __init__(self, n_bytes: int) -> None:
        super().__init__(f"{n_bytes:,} bytes cannot be held now")
        self.n_bytes = n_bytes


class Holder(Protocol):
    """The reservation of one image: a number of bytes, replaced by each new call."""

    def may_take(self, n_bytes: int) -> bool:
        """Reserve that many bytes if they are free now; always true for fewer than before."""
        ...

    def take(self, n_bytes: int) -> None:
        """Reserve that many bytes: wait until they are free, or raise ``NeedsMemory`` if this holder must not wait."""
        ...


class _Uncounted:
    """The holder of a thread that reads a single image: counts nothing."""

    def may_take(self, n_bytes: int) -> bool:
        return True

    def take(self, n_bytes: int) -> None:
        return


class ByteBudget:
    """A limit on the bytes of encoded images that are read and decoded at once.

    Waiting images hold nothing and are served in order. An image larger than the limit is read alone.

    Args:
        limit: total bytes, above 0.
    """

    def __init__(self, limit: int = ENCODED) -> None:
        self.limit = limit
        self._held = 0
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._here = threading.local()

    @property
    def held(self) -> int:
        """Number of reserved bytes."""
        return self._held

    @contextmanager
    def image(self) -> Iterator[None]:
        """Read and decode one image in this thread; its reservation is released at the end of the block."""
        if isinstance(self.holder(), _Turn):  # nested block: waiting in it could deadlock
            yield
            return
        turn = _Turn(self)
        try:
            with self.held_by(turn):
                yield
        finally:
            turn.take(0)

    @contextmanager
    def held_by(self, holder: Holder) -> Iterator[None]:
        """Use a holder for the bytes that this thread reads inside the block."""
        before = self.holder()
        self._here.holder = holder
        try:
            yield
        finally:
            self._here.holder = before

    def holder(self) -> Holder:
        """Return the holder of this thread; outside any block one that counts nothing."""
        holder: Holder = getattr(self._here, "holder", UNCOUNTED)
        return holder

    def take(self, n_bytes: int) -> None:
        """Reserve that many bytes for this thread's image, before memory is allocated."""
        self.holder().take(n_bytes)

    def hand_over(self) -> Callable[[], None]:
        """Keep this thread's reservation beyond its block; return the function that releases it."""
        turn = self.holder()
        n_bytes = turn.let_go() if isinstance(turn, _Turn) else 0

        def give_back() -> None:
            self.replace(n_bytes, 0, wait=False)

        return give_back

    def replace(self, before: int, n_bytes: int, *, wait: bool) -> bool:
        """Replace a reservation of ``before`` bytes by ``n_bytes``; return False if that would have to wait."""
        with self._changed:
            rest = self._held - before
            if n_bytes > before and not wait and (self._waiting or (rest and rest + n_bytes > self.limit)):
                return False
            self._held = rest
            self._changed.notify_all()
            if n_bytes > before and wait:
                self._wait(n_bytes)
            self._held += n_bytes
            return True

    def _wait(self, n_bytes: int) -> None:
        ticket = object()
        self._waiting.append(ticket)
        try:
            while self._waiting[0] is not ticket or (self._held and self._held + n_bytes > self.limit):
                self._changed.wait()
        finally:
            self._waiting.remove(ticket)
            self._changed.notify_all()


class _Turn:
    """The reservation of an image being read and decoded."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget, self._n_bytes = budget, 0

    def may_take(self, n_bytes: int) -> bool:
        return self._replace(n_bytes, wait=False)

    def take(self, n_bytes: int) -> None:
        self._replace(n_bytes, wait=True)

    def let_go(self) -> int:
        """End the reservation; return its number of bytes, for the caller to release."""
        n_bytes, self._n_bytes = self._n_bytes, 0
        return n_bytes

    def _replace(self, n_bytes: int, *, wait: bool) -> bool:
        before, self._n_bytes = self._n_bytes, 0  # if waiting is interrupted, nothing is reserved
        is_held = self._budget.replace(before, n_bytes, wait=wait)
        self._n_bytes = n_bytes if is_held else before
        return is_held


UNCOUNTED = _Uncounted()
BODIES = ByteBudget()  # of this process
