"""One scoring run: its shards through the model and to the disk, one after another."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import PIL
import pyarrow as pa
import torch

from curate.columns import OK
from curate.engines.journal import Committed, WorkFolder
from curate.engines.settings import ScoreSettings
from curate.engines.shard import Decoded, Span, score_schema, spans, start_shard
from curate.manifest import Manifest
from curate.tables.writer import TableWriter
from curate.version import __version__
from scoring.images import DecodedImage
from scoring.images.signature import KIND as SIGNATURE_KIND
from scoring.runner import Runner


@dataclass(frozen=True)
class ScoreProgress:
    """Where a run is: rows done of all, rows that failed, and rows that an earlier run had done."""

    done: int
    total: int
    failed: int
    resumed: int


@dataclass
class ScoreRun:
    """What to score, with what, and who is told."""

    manifest: Manifest
    runner: Runner
    settings: ScoreSettings
    batch_size: int
    workers: int
    report: Callable[[ScoreProgress], None]
    resumed: int = 0

    def all_shards(
        self, work: WorkFolder, committed: dict[int, Committed], metadata: dict[str, Any]
    ) -> dict[int, Committed]:
        """Score and commit the shards that are not ``committed``, and return every shard's journal line."""
        every = spans(self.manifest.n_rows, self.settings.shard_rows)
        todo = [span for span in every if span.index not in committed]
        self.resumed = sum(line.rows for line in committed.values())
        failed = sum(n for line in committed.values() for status, n in line.statuses.items() if status != OK)
        progress = ScoreProgress(self.resumed, self.manifest.n_rows, failed, self.resumed)
        self.report(progress)
        # memory that ran out before would run out again, in other places: other batches, other last digits
        self.runner.step = min([self.runner.step, *(line.step for line in committed.values())])
        schema = score_schema(self.manifest.schema, self.runner, self.settings)
        preprocessing = self.runner.model.spec.preprocessing
        decoded = Decoded(
            self.manifest, todo, preprocessing, self.settings, workers=self.workers, batch_size=self.batch_size
        )
        with decoded, ThreadPoolExecutor(1, thread_name_prefix="commit") as writer:
            last: Future[None] | None = None
            for span in todo:
                failures: list[int] = [progress.failed]
                rows = self.manifest.rows(span.start, span.stop)
                images = self._counted(decoded.take(span.stop - span.start), progress, failures)
                finish = start_shard(rows, images, self.runner, self.settings, self.batch_size)
                step = min(self.runner.step, self.batch_size)
                if last is not None:
                    last.result()  # one shard at most waits to be written, and its error ends the run
                last = writer.submit(self._commit, work, span, finish, schema, metadata, step, committed)
                done = progress.done + span.stop - span.start
                progress = ScoreProgress(done, self.manifest.n_rows, failures[0], self.resumed)
                self.report(progress)
            if last is not None:
                last.result()
        if sum(line.rows for line in committed.values()) != self.manifest.n_rows:
            raise ValueError(f"{self.manifest.n_rows} rows went in, {committed} came out")
        return committed

    def _counted(
        self, images: Iterator[DecodedImage], before: ScoreProgress, failures: list[int]
    ) -> Iterator[DecodedImage]:
        """Yield images, and report the progress now and then."""
        for at, image in enumerate(images, 1):
            failures[0] += image.status != OK
            yield image
            if at % 32 == 0:
                self.report(ScoreProgress(before.done + at, before.total, failures[0], before.resumed))

    @staticmethod
    def _commit(
        work: WorkFolder,
        span: Span,
        finish: Callable[[], pa.Table],
        schema: pa.Schema,
        metadata: dict[str, Any],
        step: int,
        committed: dict[int, Committed],
    ) -> None:
        """Make a shard's table, write it, and note it in the journal; runs beside the next shard."""
        table = pa.Table.from_arrays(finish().columns, schema=schema)
        with TableWriter(work.part(span.index), schema, metadata, overwrite=True) as writer:
            writer.write(table)
        statuses = dict(Counter(table.column("status").to_pylist()))
        size, digest = writer.file.n_bytes, writer.file.sha256
        line = Committed(span.index, table.num_rows, size, digest, statuses, step)
        work.commit(line)
        committed[span.index] = line


def fingerprint(run: ScoreRun, card: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return everything that decides what is written, by the names a person would use, and the table's metadata."""
    settings, runner = run.settings, run.runner
    values = {
        "input": run.manifest.digest,
        "model": card["digest"],
        "device": runner.device.type,
        "precision": runner.precision,
        "batch-size": run.batch_size,
        "shard-size": settings.shard_rows,
        "embedding dtype": settings.dtype,
        "max-pixels": settings.max_pixels,
        "allow-truncated": settings.allow_truncated,
        "signature": SIGNATURE_KIND,
        "curate": __version__,
        "torch": torch.__version__,
        "pillow": PIL.__version__,
    }
    about = {name: card[name] for name in ("method", "backbone", "preprocessing", "digest", "data_licence")}
    return values, {"kind": "scores", "model": about, "settings": values, "source": run.manifest.description}
