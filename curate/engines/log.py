"""The log of a run as JSON lines for other programs: one line at its start, one per part, one at its end."""

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from curate.engines.journal import Part
from curate.manifest.text import json_object
from scoring.errors import InputError
from scoring.system import APPEND, peak_memory
from scoring.temporaries import make_folder

LONGEST_LINE = 1 << 20  # bytes read to recognise a log


class RunLog:
    """Appends events to a file, each flushed; a second run appends below the first. A context manager.

    Every line has ``time`` (UTC, ISO 8601), ``event`` and ``run`` (the same for all lines of a run). The line ``start``
    has ``facts``; exiting writes ``end``, ``interrupted`` or ``error``.

    Raises:
        InputError: if the file is not a log, or cannot be written.
    """

    def __init__(self, path: str | Path | None, **facts: Any) -> None:
        self._path, self._facts = None if path is None else Path(path), facts
        self._file: int | None = None
        self._lock = threading.Lock()
        self._run = f"{os.getpid()}-{time.time_ns():x}"
        self._began = time.monotonic()
        self._end: dict[str, Any] = {}

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                torn = _check(self._path)
                make_folder(self._path.parent)
                self._file = os.open(self._path, APPEND, 0o666)
            except OSError as error:
                raise InputError(
                    f"--log {self._path} cannot be written: {error.strerror}; choose another file"
                ) from None
            if torn:
                os.write(self._file, b"\n")  # otherwise the next line would be appended to an incomplete one
        self.write("start", **self._facts)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.write("end", seconds=self.seconds(), **self._end)
            elif isinstance(error, KeyboardInterrupt | SystemExit):
                self.write("interrupted", seconds=self.seconds())
            else:
                self.write("error", seconds=self.seconds(), kind=type(error).__name__, message=str(error))
        finally:
            if self._file is not None:
                os.close(self._file)

    def write(self, event: str, **facts: Any) -> None:
        """Append one event, a word, with JSON fields; other values become text; from any thread."""
        if self._file is None:
            return
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, "run": self._run, **facts}
        with self._lock:
            os.write(self._file, json.dumps(line, default=str).encode() + b"\n")

    def ends_with(self, **facts: Any) -> None:
        """Add fields to the line ``end``."""
        self._end |= facts

    def seconds(self) -> float:
        """Return the duration of the run in seconds."""
        return round(time.monotonic() - self._began, 3)


def _check(path: Path) -> bool:
    """Return whether a log's last line is incomplete; InputError if the file is not a log."""
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise InputError(f"expected --log FILE.jsonl, got {path}, which is not a file")
    try:
        with path.open("rb") as file:
            first = file.readline(LONGEST_LINE)
            if not first:
                return False
            file.seek(-1, os.SEEK_END)
            torn = file.read(1) != b"\n"
    except FileNotFoundError:
        return False
    if not {"time", "event", "run"} <= (json_object(first) or {}).keys():
        raise InputError(f"--log {path} holds something else, and was not changed; choose another file")
    return torn


def logged_parts(events: RunLog, total: int, parts: dict[int, Part]) -> Callable[[Part], None]:
    """Return a listener that writes a line of the log for every committed part.

    ``total`` is the number of rows of the run; ``parts`` are those that an earlier run committed.
    """
    resumed = done = sum(part.rows for part in parts.values())
    began = last = time.monotonic()
    events.write("begin", rows=total, resumed=resumed)

    def write(part: Part) -> None:
        nonlocal done, last
        now = time.monotonic()
        done, seconds, last = done + part.rows, now - last, now
        rate = (done - resumed) / max(now - began, 1e-9)
        facts = {name: value for name, value in asdict(part).items() if name != "step"}
        speed = {"seconds": round(seconds, 3), "images_per_second": round(rate, 1)}
        left = {"done": done, "total": total, "seconds_left": round((total - done) / rate)}
        events.write("shard", **facts, failed=part.failed, **speed, **left, peak_memory_bytes=peak_memory())

    return write
