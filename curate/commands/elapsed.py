"""The seconds since the last line, on a terminal, so that a silent command is seen to work."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

SILENT = 2.0  # seconds without output before the time is shown
EVERY = 1.0  # seconds between updates


class _Elapsed:
    """Shows elapsed seconds in the last line of the terminal while a command runs."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.ended: threading.Event | None = None  # of the command that runs
        self.since, self.width = 0.0, 0
        self.instead: Callable[[], object] | None = None  # called instead of showing the seconds

    def count(self, ended: threading.Event) -> None:
        """Update the seconds at intervals until the command ends."""
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
        """Remove the shown seconds and restart from 0."""
        with self.lock:
            if self.width:
                self.draw(f"\r{'':{self.width}}\r")
            self.since, self.width = time.monotonic(), 0

    def draw(self, text: str) -> None:
        """Write to the terminal; errors are ignored, so that they do not hide why the command ends."""
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


_ELAPSED = _Elapsed()  # shared, since there is one terminal


@contextmanager
def elapsed(*, quiet: bool) -> Iterator[None]:
    """Show the seconds since the last line while a command runs, on a terminal and unless quiet."""
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
    """Remove the shown seconds before other output."""
    _ELAPSED.clear()


def replace_elapsed(instead: Callable[[], object] | None) -> None:
    """Call this instead of showing the seconds, such as a progress bar; None shows them again."""
    _ELAPSED.clear()
    with _ELAPSED.lock:
        _ELAPSED.instead = instead
