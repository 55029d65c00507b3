"""A scoring run with source and model open: scoring of its shards, and the result."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.columns import STATUS
from curate.engines.contract import Engine
from curate.engines.job import Job, Opened, model_threads, opened_job
from curate.engines.journal import Part, WorkFolder
from curate.engines.log import RunLog, logged_parts
from curate.engines.result import ScoreRequest, ScoreResult
from curate.engines.run import ScoreRun
from curate.engines.settings import ScoreSettings
from curate.tables.table import Table


@dataclass(frozen=True)
class RunSetup:
    """A scoring run with source and model open.

    Attributes:
        request: of the run.
        opened: source and model.
        settings: resolved for this device and source.
        fingerprint: all that determines the output.
        work: folder of the committed parts.
    """

    request: ScoreRequest
    opened: Opened
    settings: ScoreSettings
    fingerprint: dict[str, Any]
    work: WorkFolder

    def score(
        self,
        engine: Engine,
        events: RunLog,
        parts: dict[int, Part],
        metadata: Mapping[str, Any],
        rows: NDArray[np.int64] | None = None,
    ) -> ScoreRun:
        """Score the remaining shards, and return the complete run.

        Args:
            engine: ready to score.
            events: log of the run.
            parts: committed by an earlier run, by shard.
            metadata: of every part's file.
            rows: scored rows of the source; None for all.
        """
        request, opened, options = self.request, self.opened, self.request.options
        step = opened.runner.step = min([opened.runner.step, *(part.step for part in parts.values())])
        job = Job(
            options.source,
            request.reading,
            request.model,
            self.settings,
            options.workers,
            self.work.folder,
            self.fingerprint,
            metadata,
            step,
            opened if rows is None else opened.of_rows(rows),
            rows,
        )
        logged = logged_parts(events, opened_job(job).manifest.n_rows, parts)
        run = ScoreRun(job, self.work, parts, options.report, logged, options.announce)
        with model_threads(metadata):
            if run.todo():
                engine.score(run)
        run.check_complete()
        return run

    def result(self, statuses: Mapping[str, int], resumed: int, seconds: float, notes: list[str]) -> ScoreResult:
        """Return the result of a run that scored rows.

        ``statuses`` counts the table's rows by status; ``resumed`` counts rows scored by an earlier run.
        """
        device, precision, model = str(self.opened.device), self.opened.runner.precision, self.opened.card["digest"]
        n_rows = sum(statuses.values())
        return ScoreResult(self.request.out, n_rows, dict(statuses), resumed, seconds, device, precision, model, notes)

    def nothing_done(self, table: Table, notes: list[str]) -> ScoreResult:
        """Return the result if the table is already complete."""
        statuses = Counter(status for batch in table.batches([STATUS]) for status in batch.column(0).to_pylist())
        return replace(self.result(statuses, table.n_rows, 0.0, notes), device=self.fingerprint["device"])
