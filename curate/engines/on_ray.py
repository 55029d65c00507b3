"""Scoring on a Ray cluster. Ray starts actors and transports names of shards and receipts; the rest is done here.

An actor scores a shard as any process does, and writes its file itself; only this process commits it. If an actor or a
node is lost, other actors score its unfinished shards again.
"""

import os
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from curate.counted import counted
from curate.engines import ray_actor
from curate.engines.contract import Cluster, Engine
from curate.engines.job import THREADS, Job
from curate.engines.journal import RUN
from curate.engines.ray_cluster import Share, connected, share_of
from curate.engines.run import ScoreRun
from curate.engines.settings import ScoreSettings, difference
from curate.engines.shard import Span
from curate.manifest.reach import VARIABLE
from scoring.errors import InputError

AHEAD = 2  # shards assigned to an actor: one in the model, one being decoded
TRIES = 4  # maximum tries of a shard whose actor is lost
START_WITHIN = 300.0  # maximum seconds without a running actor
SEEN_WITHIN = 30.0  # maximum seconds until an actor's file is visible here
REASONS = {  # Ray's term -> ours
    "low on memory": "its node ran low on memory",
    "worker process has died": "its process was killed, ran out of memory or crashed",
    "node has died": "its node is gone",
    "is unavailable": "it is out of reach",
}


@contextmanager
def on_ray(cluster: Cluster, settings: ScoreSettings) -> Iterator[Engine]:
    """Score on a Ray cluster: actors score shards, and another takes over the shards of a lost one.

    Raises:
        InputError: if Ray is not installed, or there is no cluster, or none with room for an actor.
    """
    if settings.decode == "gpu":
        raise InputError("--decode gpu is for --engine local: actors may have different GPUs; leave out --decode")
    settled = replace(settings, device=_device(cluster, settings.device))
    with connected(cluster.address) as ray:
        share_of(nodes_of(ray), cluster, threads=1)
        yield Engine(settled, partial(_score, ray, cluster), elsewhere=True)


def _device(cluster: Cluster, device: str) -> str:
    """Return the device of actors: the GPU assigned by Ray, or none."""
    available = "cuda" if cluster.num_gpus else "cpu"
    if device in ("auto", available):
        return available
    more = "without --num-gpus, an actor has none" if available == "cpu" else "with --num-gpus, Ray assigns one"
    raise InputError(f"--engine ray assigns GPUs with --num-gpus ({more}); got --device {device}")


def nodes_of(ray: Any) -> list[dict[str, float]]:
    """Return the resources of each live node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _score(ray: Any, cluster: Cluster, run: ScoreRun) -> None:
    nodes = nodes_of(ray)
    share = share_of(nodes, cluster, run.job.metadata.get(THREADS, torch.get_num_threads()))
    n = min(share.room, cluster.actors or share.room, len(run.todo()))
    gpus = f" and {share.gpus:g} GPU" if share.gpus else ""
    run.announce(
        f"Ray {ray.__version__}, {counted(len(nodes), 'node')}: {counted(n, 'actor')}, "
        f"{counted(share.cores, 'core')}{gpus} each"
    )
    crew = Crew(ray, share, n, run)
    try:
        crew.score()
    finally:
        crew.dismiss()


class Crew:
    """Scoring actors of a run: each opens the job once, has a bounded number of shards, and is replaced when lost."""

    def __init__(self, ray: Any, share: Share, n: int, run: ScoreRun) -> None:
        self._ray, self._run, self._n = ray, run, n
        folder = run.job.folder.absolute()
        self._job: Job = replace(run.job, folder=folder, workers=run.job.workers or share.cores)
        self._marker = str(folder / RUN)
        self._facts = ray_actor.process_facts(self._marker)
        self._todo = deque(run.todo())
        self._left = len(self._todo)
        self._lost = Counter[int]()  # shard -> number of actors lost with it
        self._lost_in_a_row = 0  # lost actors since the last committed shard
        self._asked: dict[Any, tuple[Any, str | Span]] = {}  # reference -> actor, and its task
        self._actors: set[Any] = set()
        self._at: dict[Any, str] = {}  # running actor -> its node
        self._free: dict[Any, int] = {}  # ready actor -> number of shards it can take
        self._computes: set[str] = set()
        ray.cloudpickle.register_pickle_by_value(ray_actor)
        self._kind = ray.remote(ray_actor.ScoringActor).options(
            num_cpus=share.cores,
            num_gpus=share.gpus,
            max_concurrency=AHEAD,
            max_restarts=0,
            scheduling_strategy="SPREAD",
            # as in the command: waiting threads sleep, and the same addresses are allowed
            runtime_env={"env_vars": {"GOMP_SPINCOUNT": "0", VARIABLE: os.environ.get(VARIABLE, "")}},
        )

    def score(self) -> None:
        """Score all remaining shards.

        Raises:
            InputError: if no actor can start, one cannot open the job, or shards are lost repeatedly.
        """
        for _ in range(self._n):
            self._start_actor()
        idle_since = monotonic()
        while self._left:
            patience = None if self._at else max(0.0, idle_since + START_WITHIN - monotonic())
            done, _ = self._ray.wait(list(self._asked), num_returns=1, timeout=patience)
            if not done:
                raise InputError(
                    f"no actor could start on the Ray cluster within {START_WITHIN:g} s: its cores or GPUs "
                    "are busy or gone; repeat the command to resume when some are free, or request fewer"
                )
            for reference in done:
                self._receive(reference)
            if self._at:
                idle_since = monotonic()

    def dismiss(self) -> None:
        """End all actors at once; a resumed run writes their unfinished shards."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors.clear()

    def _start_actor(self) -> None:
        actor = self._kind.remote(str(Path.cwd()))
        self._actors.add(actor)
        self._request(actor, "facts", actor.facts.remote(self._marker))

    def _request(self, actor: Any, what: str | Span, reference: Any) -> None:
        self._asked[reference] = (actor, what)

    def _assign(self) -> None:
        """Assign shards to actors with capacity, also to idle ones when another actor is lost."""
        while self._todo and any(self._free.values()):
            actor = max(self._free, key=self._free.__getitem__)
            self._free[actor] -= 1
            span = self._todo.popleft()
            self._request(actor, span, actor.score.remote(span))

    def _receive(self, reference: Any) -> None:
        """Receive an actor's answer, and send it the next request."""
        if reference not in self._asked:  # the actor was lost meanwhile
            return
        actor, what = self._asked.pop(reference)
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            self._fail(actor, error.cause, error)
        except self._ray.exceptions.RayError as error:
            self._replace_actor(actor, what, error)
        else:
            if isinstance(what, Span):
                self._run.commit(answer, seen_within=SEEN_WITHIN)
                self._left, self._lost_in_a_row = self._left - 1, 0
                self._free[actor] += 1
                self._assign()
            elif what == "facts":
                self._check(answer)
                self._at[actor] = answer["node"]
                self._request(actor, "open", actor.open.remote(self._job))
            else:
                self._free[actor] = AHEAD
                self._assign()

    def _check(self, facts: dict[str, Any]) -> None:
        """Refuse a node that would write other bytes or to another place; warn if last digits may differ."""
        refuse_node(self._facts, facts, f"{self._job.folder}, where shards are written")
        if others := other_kinds(self._computes, facts["computes"], f"{facts['computes']} on {facts['node']}"):
            self._run.announce(f"{others}: last digits of scores depend on where a shard was scored")

    def _fail(self, actor: Any, cause: BaseException, error: BaseException) -> None:
        """Raise the error of a live actor: a user error, a disk error, or a bug."""
        if isinstance(cause, InputError):
            raise InputError(f"node {self._at.get(actor, 'unknown')}: {cause}") from None
        if isinstance(cause, OSError):
            raise cause
        raise error

    def _replace_actor(self, actor: Any, what: str | Span, error: BaseException) -> None:
        """Return the shards of a lost actor, and start another actor."""
        its_work = [what, *(w for a, w in self._asked.values() if a == actor)]
        self._asked = {ref: (a, w) for ref, (a, w) in self._asked.items() if a != actor}
        self._ray.kill(actor)  # it may be unreachable but alive
        self._actors.discard(actor)
        self._free.pop(actor, None)
        node = self._at.pop(actor, "its node")
        spans = sorted((w for w in its_work if isinstance(w, Span)), key=lambda span: span.index)
        self._lost_in_a_row += 1
        self._lost.update(span.index for span in spans)
        worst = max(spans, key=lambda span: self._lost[span.index], default=None)
        why = reason(error)
        if worst is not None and self._lost[worst.index] >= TRIES:
            raise InputError(
                f"rows {worst.start:,} to {worst.stop - 1:,} were lost {TRIES} times with the actor that scored them, "
                f"at last on {node} ({why}); finished work is kept: check these images, and repeat the command"
            )
        if self._lost_in_a_row >= TRIES + self._n:
            raise InputError(
                f"{self._lost_in_a_row} actors were lost without finishing a shard, the last on {node} "
                f"({why}); finished work is kept, and repeating the command resumes"
            )
        self._todo.extendleft(reversed(spans))
        self._run.announce(f"lost an actor on {node} ({why}); its {counted(len(spans), 'shard')} go to another")
        self._start_actor()
        self._assign()


def refuse_node(expected: dict[str, Any], facts: dict[str, Any], place: str) -> None:
    """Raise InputError for a node whose facts differ in what determines bytes, or that cannot see the marker file.

    ``place`` is where the marker is, and what for.
    """
    node, differs = facts["node"], difference(expected["versions"], facts["versions"])
    if differs:
        name, local, remote = differs
        raise InputError(
            f"node {node} has {name} {remote}, and this process {local}; install the same on all nodes, and "
            "repeat the command to resume"
        )
    if facts["marker"] != expected["marker"]:
        raise InputError(f"node {node} does not see {place}; choose --out on a file system that all nodes share")


def other_kinds(known: set[str], kind: str, where: str) -> str:
    """Record the hardware and libraries of a node in ``known``; return a warning if they differ from earlier nodes.

    ``kind`` is of processor or GPU; ``where`` adds the node's name.
    """
    others = ", ".join(sorted(known)) if kind not in known else ""
    known.add(kind)
    return f"nodes compute differently ({where}, {others} elsewhere)" if others else ""


def reason(error: BaseException) -> str:
    """Return a short reason why Ray lost an actor or task."""
    text = " ".join(str(error).split())
    return next((short for words, short in REASONS.items() if words in text), text[:160])
