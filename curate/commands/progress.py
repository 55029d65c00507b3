"""Progress on stderr: a bar on a terminal, lines at intervals in a log."""

import sys
import time
from typing import TYPE_CHECKING, Any, Self

from curate.commands.elapsed import clear_elapsed, replace_elapsed
from curate.commands.printing import say

if TYPE_CHECKING:
    from curate.engines.run import ScoreProgress
    from curate.exporting.run import ExportProgress
    from trainers.cache_writer import CacheProgress
    from trainers.monitor import Progress


class Bar:
    """A bar on a terminal; in a log file a line every half minute."""

    LINE_SECONDS = 30.0
    MANY = 1_000_000  # bars that also log a line at the start

    def __init__(self, unit: str, *, quiet: bool = False) -> None:
        self._unit, self._quiet = unit, quiet
        self._bar: Any = None
        self._printed = time.monotonic()
        self._since: tuple[float, int] | None = None  # start time and count for the rate

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            replace_elapsed(None)
            self._bar.close()

    def show(self, done: int, total: int, start: int, words: str) -> None:
        """Move the bar to ``done`` of ``total``; ``start`` were done before this run."""
        if self._quiet:
            return
        if not sys.stderr.isatty():
            self._log(done, total, start, words)
            return
        clear_elapsed()
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=start, unit=f" {self._unit}", dynamic_ncols=True, file=sys.stderr)
            replace_elapsed(self._bar.refresh)  # keeps the time running between steps
        self._bar.set_postfix_str(words, refresh=False)
        self._bar.update(done - self._bar.n)

    def _log(self, done: int, total: int, start: int, words: str) -> None:
        """Write a log line if it is due; its rate is since the previous line."""
        now = time.monotonic()
        begins = self._since is None and done == start and total >= self.MANY
        if self._since is None or self._since[1] == start:  # excludes preparation from the rate
            self._since = now, done
        if begins or now - self._printed > self.LINE_SECONDS:
            since, before = self._since
            rate = (done - before) / (now - since) if now > since else 0.0
            speed = f", {rate:,.1f}/s, {_minutes((total - done) / rate)} left" if rate > 0 else ""
            say(f"{done:,} of {total:,} {self._unit}{speed}{', ' if words else ''}{words}")
            self._printed, self._since = now, (now, done)

    def warn(self, text: str) -> None:
        """Print a line above the bar."""
        if not self._quiet:
            if self._bar is not None:
                self._bar.clear()
            say(f"warning: {text}")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:,.0f} min" if seconds >= 60 else "less than a minute"


class ScoreBar(Bar):
    """Images per second, time left and failures during scoring."""

    def update(self, progress: "ScoreProgress") -> None:
        """Show the progress."""
        failed = f"{progress.failed:,} failed" if progress.failed else ""
        self.show(progress.done, progress.total, progress.resumed, failed)


class CacheBar(Bar):
    """Images of all epochs while a cache is written."""

    def update(self, progress: "CacheProgress") -> None:
        """Show the progress."""
        self.show(progress.done, progress.total, 0, f"epoch {progress.epoch}")


class ExportBar(Bar):
    """Images per second, bytes written and missing images during an export."""

    def update(self, progress: "ExportProgress") -> None:
        """Show the progress."""
        missing = f", {progress.missing:,} cannot be read" if progress.missing else ""
        self.show(progress.done, progress.total, progress.resumed, f"{progress.n_bytes / 1e6:,.0f} MB{missing}")


class TrainBar(Bar):
    """Steps, loss, mean kappa and warnings during training."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__("steps", quiet=quiet)
        self._warned: str | None = None
        self._first: int | None = None

    def update(self, progress: "Progress") -> None:
        """Show the progress; each new kind of warning gets its own line."""
        measured = ", ".join(f"{name} {value:.4g}" for name, value in progress.measures.items())
        speed = f"{progress.images_per_second:,.0f} images/s"
        if self._first is None:
            self._first = progress.step
        self.show(progress.step, progress.steps, self._first, f"epoch {progress.epoch}, {measured}, {speed}")
        kind = progress.warning and progress.warning.split(":")[0]
        if progress.warning and kind != self._warned:
            self.warn(progress.warning)
        self._warned = kind
