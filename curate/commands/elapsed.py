"""The seconds since the last line, on a terminal: a command that prints nothing for long is seen to work."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

SILENT = 2.0  # seconds without a line, after which they are shown
EVERY = 1.0  # seconds between two


class _Elapsed:
    """The seconds that stand in the last line of the terminal while a command runs."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.ended: threading.Event | None = None  # of the command that runs
        self.since, self.width = 0.0, 0
        self.instead: Callable[[], object] | None = None  # is called instead of showing them

    def count(self, ended: threading.Event) -> None:
        """Show the seconds now and then, until the command ends."""
        while not ended.wait(EVERY):
            with self.lock:
                silent = time.monotonic() - self.since
                if silent < SILENT or ended.is_set():
                    continue
                if self.instead is not None:
                    self.instead()
                    continue
                text = f"{silent:,.0f} s"
                self.draw(f"\r{text}")
                self.width = len(text)

    def clear(self) -> None:
        """Remove what is shown and count from 0."""
        with self.lock:
            if self.width:
                self.draw(f"\r{'':{self.width}}\r")
            self.since, self.width = time.monotonic(), 0

    def draw(self, text: str) -> None:
        """Write to the terminal, unless it went away: the reason why the command ends must not be lost."""
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


_ELAPSED = _Elapsed()  # of the one terminal


@contextmanager
def elapsed(*, quiet: bool) -> Iterator[None]:
    """Show the seconds since the last line while a command runs, on a terminal and if it may print notes."""
    if quiet or _ELAPSED.ended is not None or not sys.stderr.isatty():
        yield
        return
    replace_elapsed(None)
    _ELAPSED.ended = threading.Event()
    threading.Thread(target=_ELAPSED.count, args=(_ELAPSED.ended,), daemon=True).start()
    try:
        yield
    finally:
        _ELAPSED.ended.set()
        _ELAPSED.ended = None
        _ELAPSED.clear()


def clear_elapsed() -> None:
    """Remove the seconds before anything else is printed."""
    _ELAPSED.clear()


def replace_elapsed(instead: Callable[[], object] | None) -> None:
    """Call this instead of showing the seconds, as to move a bar; None shows them again."""
    _ELAPSED.clear()
    with _ELAPSED.lock:
        _ELAPSED.instead = instead
