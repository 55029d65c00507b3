"""Searches on a Ray cluster: tasks are sent by name, arrays are in files that all nodes see, pairs are returned.

Ray's object store contains only tasks of some kilobytes, and results of at most twice as many tasks as run at a time.
So Ray's memory is bounded, and does not grow with the table.
"""

import mmap
import os
import secrets
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curate.counted import counted
from curate.engines import ray_actor
from curate.engines.contract import Cluster
from curate.engines.on_ray import START_WITHIN, TRIES, nodes_of, other_kinds, reason, refuse_node
from curate.engines.ray_cluster import Share, connected, share_of
from scoring.arrays import preallocate
from scoring.atomic_folder import held_folder
from scoring.errors import InputError
from scoring.tasks import BITS, Shared, as_tensor, tasks_run_by

KEPT = 16  # maximum arrays that a process keeps mapped
COPIED = 1 << 24  # bytes at a time
A = TypeVar("A")
R = TypeVar("R")
V = TypeVar("V")
AHEAD = 2  # submitted tasks per concurrently running one
LEAST = 2e10  # multiplications below which a local search is faster: a few tenths of a second of a core
GRAIN = 1e10  # of a task
MARKER = "marker"
INHERITED = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # NumPy's threads, if not equal to torch's


class SharedFile:
    """An array or tensor in a file; pickling sends only its name.

    The process that created it removes the file when it is garbage-collected.

    Args:
        folder: that all readers see.
        shape: of the array.
        kind: numpy's dtype; of a tensor, torch's.

    Raises:
        InputError: if the disk is full.
    """

    def __init__(self, folder: Path, shape: Sequence[int], kind: Any) -> None:
        self.path = str(folder / f"array.{secrets.token_hex(8)}")
        self.shape, self.kind, self.written = tuple(shape), kind, False
        size = int(np.prod(self.shape)) * _stored(kind).itemsize
        with open(self.path, "xb") as file:  # noqa: PTH123  as it is opened on the nodes
            preallocate(file.fileno(), size, folder, "choose --out on a larger disk")
        weakref.finalize(self, _remove, self.path)

    @classmethod
    def of(cls, folder: Path, value: Any) -> "SharedFile":
        """Return a copy of an array, or of a tensor on the CPU."""
        kind = value.dtype
        shared = cls(folder, tuple(value.shape), kind)
        plain: NDArray[Any] = np.asarray(value.view(torch.int16) if kind == torch.bfloat16 else value)
        step = max(1, COPIED // max(1, plain[:1].nbytes)) if plain.ndim else 1
        with open(shared.path, "r+b") as file:  # noqa: PTH123
            for start in range(0, len(plain), step):
                file.write(np.ascontiguousarray(plain[start : start + step]).data)
        shared.written = True
        return shared

    @property
    def value(self) -> Any:
        """The array or tensor, read-only."""
        return _mapped(self.path, self.shape, self.kind)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a task, after flushing the mapping to the file."""
        if not self.written:
            with open(self.path, "r+b") as file:  # noqa: PTH123
                os.fsync(file.fileno())
            self.written = True
        return self.__dict__


def _stored(kind: Any) -> Any:
    return BITS[kind] if isinstance(kind, torch.dtype) else kind


@lru_cache(maxsize=KEPT)
def _mapped(path: str, shape: tuple[int, ...], kind: Any) -> Any:
    if not np.prod(shape):
        return torch.zeros(shape, dtype=kind) if isinstance(kind, torch.dtype) else np.zeros(shape, kind)
    writable = os.access(path, os.W_OK)
    with open(path, "r+b" if writable else "rb") as file:  # noqa: PTH123
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_COPY)
    array = np.frombuffer(data, _stored(kind)).reshape(shape)
    return as_tensor(array, kind) if isinstance(kind, torch.dtype) else array


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)  # noqa: PTH108  at the interpreter's end there may be no Path


@contextmanager
def searching_on_ray(cluster: Cluster, out: Path | None, announce: Callable[[str], None]) -> Iterator[None]:
    """Run large searches of this thread as tasks on a Ray cluster.

    Args:
        cluster: to use.
        out: output path, next to which arrays are stored during a search; None for a local temporary folder.
        announce: called with a line on the cluster.

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
    """Create a folder for arrays, removed at the end; the next process removes leftovers of killed ones."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="curate-") as temporary:
            yield Path(temporary)
        return
    with held_folder(out.absolute()) as folder:
        yield folder


class RayTasks:
    """Runs tasks on a cluster: a bounded number at a time, lost ones again, results in the order of the tasks."""

    def __init__(self, ray: Any, share: Share, folder: Path, announce: Callable[[str], None]) -> None:
        self.least, self.grain = LEAST, GRAIN
        self._ray, self._share, self._folder, self._announce = ray, share, folder, announce
        (folder / MARKER).write_bytes(secrets.token_hex(16).encode())
        self._marker = str(folder / MARKER)
        self._facts = ray_actor.process_facts(self._marker)
        self._computes: set[str] = set()
        self._checked = False
        self._shared: dict[int, SharedFile] = {}  # by id() of an existing array
        ray.cloudpickle.register_pickle_by_value(ray_actor)
        threads = torch.get_num_threads()
        terms = ray_actor.Terms(self._marker, self._facts["marker"], self._facts["versions"], threads)
        self._terms = ray.put(terms)
        numbers = {"OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": "0"}
        numbers |= {name: os.environ[name] for name in INHERITED if name in os.environ}
        self._environment = {"env_vars": numbers}  # one definition: a process reports its facts, then runs tasks
        self._task = ray.remote(ray_actor.run_task).options(
            num_cpus=share.cores, max_retries=TRIES - 1, scheduling_strategy="SPREAD", runtime_env=self._environment
        )

    def shared(self, value: V) -> Shared[V]:
        """Write an array or tensor to a file, once; it is removed with its last user."""
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
            InputError: if a node differs, no task can run, or one is lost repeatedly.
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
        """Refuse a node that would compute other bytes, or cannot see the arrays, before the first task."""
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
            self._require(self._receive(reference))
        self._checked = True

    def _require(self, facts: dict[str, Any]) -> None:
        refuse_node(self._facts, facts, f"{self._folder}, which holds the vectors to search")

    def _result(self, reference: Any) -> Any:
        """Wait for a task and return its result."""
        computes, result = self._receive(reference)
        if not computes:
            self._require(result)
        if others := other_kinds(self._computes, computes.partition(" on ")[0], computes):
            self._announce(f"{others}: last digits of similarities depend on where they were computed")
        return result

    def _receive(self, reference: Any) -> Any:
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
