"""Searches on a Ray cluster: tasks go out by name, arrays are in files that all nodes see, pairs are returned.

Through Ray's object store go tasks, of some kilobytes, and their results: of twice as many tasks at most as run at a
time. So what is under way is bounded, and the memory that Ray takes does not grow with the table.
"""

import os
import secrets
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from curate.counted import counted
from curate.engines import ray_actor
from curate.engines.contract import Cluster
from curate.engines.on_ray import START_WITHIN, TRIES, nodes_of, other_kinds, reason, refuse_node
from curate.engines.ray_cluster import Share, connected, share_of
from curate.engines.shared_file import SharedFile
from scoring.atomic_folder import held_folder
from scoring.errors import InputError
from scoring.tasks import Shared, tasks_run_by

A = TypeVar("A")
R = TypeVar("R")
V = TypeVar("V")
AHEAD = 2  # tasks handed out for each that can run at a time
LEAST = 2e10  # products of a search, below which this process is done sooner: some tenths of a second of a core
GRAIN = 1e10  # of a task
MARKER = "marker"
INHERITED = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # how many threads NumPy has, where it is not torch's number


@contextmanager
def searching_on_ray(cluster: Cluster, out: Path | None, announce: Callable[[str], None]) -> Iterator[None]:
    """Have large searches of this thread run as tasks on a Ray cluster.

    Args:
        cluster: which.
        out: what is written, next to which arrays are in files while they are searched; a temporary folder of this
            machine where nothing is.
        announce: called with a line on what is done.

    Raises:
        InputError: if there is no Ray, no cluster, or none with room for a task.
    """
    with connected(cluster.address) as ray:
        nodes = nodes_of(ray)
        share = share_of(nodes, cluster, torch.get_num_threads())
        announce(
            f"Ray {ray.__version__}, {counted(len(nodes), 'node')}: large searches as tasks of "
            f"{counted(share.cores, 'core')}, {share.room} at a time"
        )
        with _folder(out) as folder, tasks_run_by(RayTasks(ray, share, folder, announce)):
            yield


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """Create a folder for arrays, removed at the end; leftovers of killed processes are removed by the next one."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="curate-") as temporary:
            yield Path(temporary)
        return
    with held_folder(out.absolute()) as folder:
        yield folder


class RayTasks:
    """Runs tasks on a cluster: a bounded number under way, lost ones again, results in the order of the tasks.

    Args:
        ray: the package, connected.
        share: what each task gets.
        folder: that all nodes see.
        announce: called with where nodes compute differently.
    """

    def __init__(self, ray: Any, share: Share, folder: Path, announce: Callable[[str], None]) -> None:
        self.least, self.grain = LEAST, GRAIN
        self._ray, self._share, self._folder, self._announce = ray, share, folder, announce
        (folder / MARKER).write_bytes(secrets.token_hex(16).encode())
        self._marker = str(folder / MARKER)
        self._facts = ray_actor.process_facts(self._marker)
        self._computes: set[str] = set()
        self._checked = False
        self._shared: dict[int, SharedFile] = {}  # by the id of an array that is there
        ray.cloudpickle.register_pickle_by_value(ray_actor)
        threads = torch.get_num_threads()
        terms = ray_actor.Terms(self._marker, self._facts["marker"], self._facts["versions"], threads)
        self._terms = ray.put(terms)
        numbers = {"OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": "0"}
        numbers |= {name: os.environ[name] for name in INHERITED if name in os.environ}
        self._environment = {"env_vars": numbers}  # one for all: a process that has reported what it is then runs tasks
        self._task = ray.remote(ray_actor.run_task).options(
            num_cpus=share.cores, max_retries=TRIES - 1, scheduling_strategy="SPREAD", runtime_env=self._environment
        )

    def shared(self, value: V) -> Shared[V]:
        """Write an array or a tensor to a file, once; the file is removed with its last user."""
        known = self._shared.get(id(value))
        if known is None:
            known = self._shared[id(value)] = SharedFile.of(self._folder, value)
            gone = weakref.finalize(value, self._shared.pop, id(value), None)  # its id may be another's then
            gone.atexit = False
        return known

    def room(self, shape: Sequence[int], dtype: torch.dtype) -> Shared[Tensor]:
        """Return a tensor in a file."""
        return SharedFile(self._folder, shape, dtype)

    def run(self, function: Callable[[A], R], arguments: Iterable[A]) -> Iterator[R]:
        """Yield results in the order of the arguments.

        Raises:
            InputError: if a node differs, no task can run, or one is lost again and again.
        """
        self._check_nodes()
        references: deque[Any] = deque()
        try:
            for argument in arguments:
                references.append(self._task.remote(self._terms, function, argument))
                if len(references) >= AHEAD * self._share.room:
                    yield self._result(references.popleft())
            while references:
                yield self._result(references.popleft())
        finally:
            for reference in references:
                with suppress(self._ray.exceptions.RayError):
                    self._ray.cancel(reference, force=True)

    def _check_nodes(self) -> None:
        """Refuse a node that would compute other bytes, or sees no arrays, before the first task."""
        if self._checked:
            return
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ask = self._ray.remote(ray_actor.process_facts)
        able = [node for node in self._ray.nodes() if node["Alive"]]
        references = [
            ask.options(
                num_cpus=0,
                runtime_env=self._environment,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=True),
            ).remote(self._marker)
            for node in able
            if node["Resources"].get("CPU", 0) >= self._share.cores
        ]
        for reference in references:
            self._require(self._answer(reference))
        self._checked = True

    def _require(self, facts: dict[str, Any]) -> None:
        refuse_node(self._facts, facts, f"{self._folder}, which holds the vectors to search")

    def _result(self, reference: Any) -> Any:
        """Wait for a task and return its result."""
        computes, result = self._answer(reference)
        if not computes:
            self._require(result)
        self._tell(computes)
        return result

    def _answer(self, reference: Any) -> Any:
        done, _ = self._ray.wait([reference], timeout=START_WITHIN)
        if not done:
            raise InputError(
                f"a task of the search did not end on the Ray cluster within {START_WITHIN:g} s: its cores "
                "are busy or gone; repeat the command when some are free"
            )
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            raise InputError(
                f"a task of the search was lost {TRIES} times ({reason(error)}); check the memory of the "
                "nodes, and repeat the command"
            ) from None

    def _tell(self, computes: str) -> None:
        """Warn if the last digits of similarities may depend on the machine."""
        if others := other_kinds(self._computes, computes.partition(" on ")[0], computes):
            self._announce(f"{others}: last digits of similarities depend on where they were computed")
