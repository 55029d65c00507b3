"""The driver of a scoring run: all shards, the remaining ones, and the only writer of the journal."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from curate.columns import OK
from curate.engines.job import Job, opened_job
from curate.engines.journal import Part, WorkFolder
from curate.engines.shard import Span, spans
from scoring.errors import InputError
from scoring.images import DecodedImage

EVERY = 32  # images between two reports
LOOK_EVERY = 0.2  # seconds between checks for a file of another machine


@dataclass(frozen=True)
class ScoreProgress:
    """Progress of a run: numbers of rows done, in total, failed, and done by an earlier run."""

    done: int
    total: int
    failed: int
    resumed: int


class ScoreRun:
    """One run for an engine: a job, the remaining shards, and the function to commit each part.

    Args:
        job: open in this process.
        work: the folder of the run, held.
        parts: committed by an earlier run, by shard.
        report: called with the progress at intervals, never by two threads at once.
        committed: called with every committed part.
        announce: called with a line on what an engine does.

    Attributes:
        job: what to score.
        plan: every shard of the run, in order.
        parts: committed parts by shard.
        resumed: rows scored by an earlier run.
    """

    def __init__(
        self,
        job: Job,
        work: WorkFolder,
        parts: dict[int, Part],
        report: Callable[[ScoreProgress], None],
        committed: Callable[[Part], None] = lambda part: None,
        announce: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.job, self.parts, self.announce = job, dict(parts), announce
        self._tell_part = committed
        self._work, self._report, self._lock = work, report, threading.Lock()
        self._n_rows = opened_job(job).manifest.n_rows
        self.plan = spans(self._n_rows, job.settings.shard_size)
        self.resumed = self._seen = self._committed = sum(part.rows for part in parts.values())
        self._failed = self._failed_parts = sum(part.failed for part in parts.values())
        self._report_progress()

    def todo(self) -> list[Span]:
        """Return the shards that are not committed, in order."""
        return [span for span in self.plan if span.index not in self.parts]

    def commit(self, part: Part, *, seen_within: float = 0.0) -> None:
        """Record in the journal that a part is complete on disk; from any thread of the driver's process.

        Args:
            part: as reported by a worker.
            seen_within: seconds until a file of another machine is visible here.

        Raises:
            InputError: if its file is not in the folder of the run.
            ValueError: if it does not belong to this run.
        """
        if not 0 <= part.shard < len(self.plan):
            raise ValueError(f"the run has {len(self.plan)} shards, got a part of shard {part.shard}")
        span = self.plan[part.shard]
        if part.rows != span.stop - span.start:
            raise ValueError(f"{span} has {span.stop - span.start} rows, its part {part.rows}")
        path = self._work.part(part.shard)
        until = time.monotonic() + seen_within
        while not (path.is_file() and path.stat().st_size == part.n_bytes):
            if time.monotonic() >= until:
                raise InputError(
                    f"expected {part.n_bytes:,} bytes at {path}, where a worker wrote them, got none or "
                    "others; all workers must share the folder of --out"
                )
            time.sleep(LOOK_EVERY)
        self._work.commit(part)
        with self._lock:
            self.parts[part.shard] = part
            self._committed, self._failed_parts = self._committed + part.rows, self._failed_parts + part.failed
            self._tell_part(part)
            if self._committed > self._seen:  # the engine does not report single images
                self._seen, self._failed = self._committed, self._failed_parts
                self._report_progress()

    def watched(self, images: Iterable[DecodedImage]) -> Iterator[DecodedImage]:
        """Yield images, and report the progress at intervals."""
        seen = failed = 0
        for image in images:
            seen, failed = seen + 1, failed + (image.status != OK)
            yield image
            if seen == EVERY:
                self._count_images(seen, failed)
                seen = failed = 0
        self._count_images(seen, failed)

    def check_complete(self) -> None:
        """Raise ValueError unless every row of the manifest is committed."""
        if self._committed != self._n_rows:
            raise ValueError(f"{self._n_rows} rows went in, {self._committed} came out")

    def _count_images(self, images: int, failed: int) -> None:
        with self._lock:
            self._seen, self._failed = self._seen + images, self._failed + failed
            self._report_progress()

    def _report_progress(self) -> None:
        self._report(ScoreProgress(self._seen, self._n_rows, self._failed, self.resumed))
