"""Short names of array types, and arrays that may exceed memory, which are in an unnamed file if large."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scoring.errors import InputError

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

IN_MEMORY = 2 << 30  # bytes of an array; larger ones are in a temporary file


def zeros_or_memmap(shape: Sequence[int], kind: np.dtype[Any]) -> Array:
    """Return an array of zeros: in memory, or in an unnamed file if large; InputError if the disk is too full."""
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if size <= IN_MEMORY:
        return np.zeros(tuple(shape), kind)
    with tempfile.TemporaryFile() as file:  # the mapping keeps it alive
        advice = "set the environment variable TMPDIR to a folder on a larger disk"
        preallocate(file.fileno(), size, tempfile.gettempdir(), advice)
        return np.memmap(file, kind, "w+", shape=tuple(shape))


def preallocate(handle: int, size: int, place: str | Path, advice: str) -> None:
    """Reserve disk space for a file, since writing to a mapped file on a full disk kills the process.

    Raises InputError if there is too little space at ``place``; the text ends with ``advice``.
    """
    if not size or not hasattr(os, "posix_fallocate"):
        os.ftruncate(handle, size)
        return
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        needed = f"{size / 1e9:,.1f} GB of numbers"
        raise InputError(f"{place} has no room for {needed} ({error.strerror}); {advice}") from None
