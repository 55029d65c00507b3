"""Execution of the tasks of a search: sequentially in this process, or by a caller's runner.

A large search yields its work as tasks: a module-level function and small arguments that can be pickled. Large data
that many tasks read is shared once. Tasks are cut at the search's block boundaries and results come in their order, so
that they do not depend on the runner.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.arrays import zeros_or_memmap

A = TypeVar("A")
R = TypeVar("R")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
BITS: dict[torch.dtype, np.dtype[Any]] = {  # dtype of the array with a tensor's bits, since NumPy lacks bfloat16
    torch.bfloat16: np.dtype(np.int16),
    torch.float32: np.dtype(np.float32),
    torch.int64: np.dtype(np.int64),
}


class Shared(Protocol[V_co]):
    """An array or tensor read by many tasks; pickling it passes its location."""

    @property
    def value(self) -> V_co:
        """The array or tensor, in this process."""


class Tasks(Protocol):
    """A runner of tasks.

    Attributes:
        least: number of multiplications from which a search is run as tasks.
        grain: approximate multiplications per task; 0 to not cut a search.
    """

    least: float
    grain: float

    def shared(self, value: V) -> Shared[V]:
        """Share an array or CPU tensor, which must not change from then on."""

    def room(self, shape: Sequence[int], dtype: torch.dtype) -> Shared[Tensor]:
        """Return a tensor to fill before it is shared with tasks."""

    def run(self, function: Callable[[A], R], arguments: Iterable[A]) -> Iterator[R]:
        """Yield a module function's result for each argument, in order."""


@dataclass(frozen=True)
class Held(Generic[V_co]):
    """A value kept in this process."""

    value: V_co


class InProcess:
    """Runs tasks in this process, each on demand."""

    least = 0.0
    grain = 0.0

    def shared(self, value: V) -> Shared[V]:
        """Return the value, unpickled and unshared."""
        return Held(value)

    def room(self, shape: Sequence[int], dtype: torch.dtype) -> Shared[Tensor]:
        """Return a tensor of zeros, in a file if large."""
        return Held(as_tensor(zeros_or_memmap(shape, BITS[dtype]), dtype))

    def run(self, function: Callable[[A], R], arguments: Iterable[A]) -> Iterator[R]:
        """Yield the results in the order of the arguments."""
        return map(function, arguments)


def as_tensor(array: NDArray[Any], dtype: torch.dtype) -> Tensor:
    """Return an array with dtype ``BITS[dtype]`` as a tensor with the same bits, without a copy."""
    return torch.from_numpy(array).view(dtype)


IN_PROCESS = InProcess()
_RUNNING: ContextVar[Tasks] = ContextVar("tasks", default=IN_PROCESS)


@contextmanager
def tasks_run_by(tasks: Tasks) -> Iterator[None]:
    """Run the tasks of all searches in this thread by ``tasks``, inside the block."""
    token = _RUNNING.set(tasks)
    try:
        yield
    finally:
        _RUNNING.reset(token)


def tasks_for(products: float) -> Tasks:
    """Return the runner for a search with this number of multiplications."""
    tasks = _RUNNING.get()
    return tasks if products >= tasks.least else IN_PROCESS


def cuts(n: int, block: int, products: float, grain: float) -> Iterator[tuple[int, int]]:
    """Yield ranges that cover n rows, each of whole blocks and about ``grain`` multiplications.

    Args:
        n: number of rows.
        block: rows that are computed at once and not cut.
        products: multiplications per row.
        grain: of a task; 0 for a single range.
    """
    step = n if not grain else block * max(1, round(grain / max(1.0, products * block)))
    for start in range(0, n, max(1, step)):
        yield start, min(start + step, n)


def joined(parts: Iterable[tuple[NDArray[Any], ...]]) -> tuple[NDArray[Any], ...]:
    """Return the columns of all parts concatenated; without a copy for one part."""
    every = list(parts)
    return every[0] if len(every) == 1 else tuple(np.concatenate(column) for column in zip(*every, strict=True))
