"""The default engine: this machine, decoding threads and one model, one shard after another."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from curate.engines.contract import Cluster, Engine
from curate.engines.journal import Part
from curate.engines.settings import ScoreSettings
from scoring.errors import InputError

if TYPE_CHECKING:
    from curate.engines.run import ScoreRun


@contextmanager
def on_this_machine(cluster: Cluster, settings: ScoreSettings) -> Iterator[Engine]:
    """Score on this machine: decoding threads and one model, shard by shard; InputError for cluster options."""
    refuse_cluster(cluster)
    yield Engine(settings, score_locally)


@contextmanager
def searching_locally(cluster: Cluster, out: Path | None, announce: Callable[[str], None]) -> Iterator[None]:
    """Search in this process, as by default; InputError for cluster options."""
    refuse_cluster(cluster)
    yield


def refuse_cluster(cluster: Cluster) -> None:
    """Raise InputError if options of a cluster are given."""
    options = [name for name, value in vars(cluster).items() if value is not None]
    if options:
        option = options[0].replace("_", "-")
        instead = "; the local engine uses a GPU with --device cuda" if option == "num-gpus" else ""
        option = "an address" if option == "address" else f"--{option}"
        raise InputError(f"{option} is for --engine ray{instead}")


def score_locally(run: "ScoreRun") -> None:
    """Score the remaining shards; one is written while the model reads the next."""
    from curate.engines.job import opened_job, start_span  # imports torch
    from scoring.images.decoders import closing_decoders

    job, todo = run.job, run.todo()

    def commit(write: Callable[[], Part]) -> None:
        run.commit(write())

    decoded = opened_job(job).decoded(todo, job.settings, job.workers, job.folder)
    with closing_decoders(), decoded, ThreadPoolExecutor(1, thread_name_prefix="commit") as writer:
        last: Future[None] | None = None
        for span in todo:
            write = start_span(job, span, run.watched(decoded.take(span.stop - span.start)))
            if last is not None:
                last.result()  # at most one shard waits to be written; its error ends the run
            last = writer.submit(commit, write)
        if last is not None:
            last.result()
