"""Signs that a silent command works: the seconds since the last line on a terminal, a line at intervals in a log."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from curate.counted import READINGS, single_line

SILENT = 2.0  # seconds without output before the time is shown
EVERY = 1.0  # seconds between updates
SILENT_LOG = 40.0  # seconds without output before a line in a log; progress bars write theirs every 30


class _Elapsed:
    """Shows elapsed seconds in the last line of the terminal, or lines in a log, while a command runs."""

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

    def log(self, ended: threading.Event, started: float) -> None:
        """Write a line whenever the command was silent for long, until it ends."""
        while not ended.wait(EVERY):
            with self.lock:
                now = time.monotonic()
                if now - self.since >= SILENT_LOG and self.instead is None and not ended.is_set():
                    rows = "".join(f": {each}" for each in READINGS[-1:])
                    self.draw(f"{single_line(f'still running after {now - started:,.0f} s{rows}')}\n")
                    self.since = now

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
    """Show that a silent command works, unless quiet: seconds on a terminal, in a log a line at intervals."""
    if quiet or _ELAPSED.ended is not None:
        yield
        return
    replace_elapsed(None)
    _ELAPSED.ended = ended = threading.Event()
    show, settings = (_ELAPSED.count, ()) if sys.stderr.isatty() else (_ELAPSED.log, (_ELAPSED.since,))
    threading.Thread(target=show, args=(ended, *settings), daemon=True).start()
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
