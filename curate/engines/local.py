"""The engine that is there by default: this machine, decoding threads and one model, one shard after another."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from curate.engines.job import opened_job, start_span
from curate.engines.journal import Part
from curate.engines.run import ScoreRun


def score_here(run: ScoreRun) -> None:
    """Score the shards that are to do; one is written while the next goes through the model."""
    job, todo = run.job, run.todo()

    def commit(write: Callable[[], Part]) -> None:
        run.commit(write())

    decoded = opened_job(job).decoded(todo, job.settings, job.workers)
    with decoded, ThreadPoolExecutor(1, thread_name_prefix="commit") as writer:
        last: Future[None] | None = None
        for span in todo:
            write = start_span(job, span, run.watched(decoded.take(span.stop - span.start)))
            if last is not None:
                last.result()  # one shard at most waits to be written, and its error ends the run
            last = writer.submit(commit, write)
        if last is not None:
            last.result()
