"""A bound on the pixels that all threads of a process decode at the same time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

SMALL = 4_000_000  # pixels; an image up to this size is not counted
IN_FLIGHT = 100_000_000  # pixels of larger images that may be decoded at once


class PixelBudget:
    """Large images wait for one another, so memory does not grow with the number of threads.

    An image larger than the whole budget is let in alone.

    Args:
        limit: pixels in flight, above 0.
        small: images of at most so many pixels pass at once, uncounted.
    """

    def __init__(self, limit: int = IN_FLIGHT, small: int = SMALL) -> None:
        self.limit = limit
        self.small = small
        self._in_flight = 0
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, n_pixels: int) -> Iterator[None]:
        """Keep ``n_pixels`` of the budget for as long as the block runs; waits until they are free."""
        if n_pixels <= self.small:
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
