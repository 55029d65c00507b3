"""Arrays that processes on several nodes read: each a file of raw numbers, mapped and never copied."""

import mmap
import os
import secrets
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scoring.room import take_room
from scoring.tasks import BITS, as_tensor

KEPT = 16  # arrays that a process keeps mapped
COPIED = 1 << 24  # bytes at a time


class SharedFile:
    """An array or a tensor in a file; only its name is pickled.

    The process that made it has the file removed when it lets go of it.

    Args:
        folder: that all readers see.
        shape: of the array.
        kind: numpy's type; of a tensor, torch's.

    Raises:
        InputError: if the disk has no room.
    """

    def __init__(self, folder: Path, shape: Sequence[int], kind: Any) -> None:
        self.path = str(folder / f"array.{secrets.token_hex(8)}")
        self.shape, self.kind, self.written = tuple(shape), kind, False
        size = int(np.prod(self.shape)) * _stored(kind).itemsize
        with open(self.path, "xb") as file:  # noqa: PTH123  as it is opened on the nodes
            take_room(file.fileno(), size, folder, "choose --out on a larger disk")
        weakref.finalize(self, _remove, self.path)

    @classmethod
    def of(cls, folder: Path, value: Any) -> "SharedFile":
        """Return a copy of an array, or of a tensor on the processor."""
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
        """Return the state for a task; the file then has everything that was written to the mapping."""
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
