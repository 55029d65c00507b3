"""Keys of rows and the images that they name, as the decisions of a review hold them."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.policies.verdicts import SHORT
from curate.tables.digests import key_array, tie_breaks
from curate.tables.needs import SHA256
from curate.tables.table import Table


def keys_and_images(table: Table, rows: NDArray[np.int64]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return keys of rows, and the first digits of the SHA-256 of their images; empty where the table has none."""
    if not len(rows):
        return (), ()
    names = ["key", *([SHA256] if SHA256 in table.schema.names else [])]
    taken = table.take(rows, names)
    keys = key_array(taken.column(0).combine_chunks()).to_pylist()
    images = taken.column(1).to_pylist() if len(names) > 1 else [None] * len(keys)
    return (
        tuple(key.decode("utf-8", "surrogateescape") for key in keys),
        tuple("" if image is None else str(image)[:SHORT] for image in images),
    )


def hashes_of(keys: Sequence[str]) -> NDArray[np.uint64]:
    """Return the hashes by which a dataset finds its rows, shape (N,)."""
    return tie_breaks(pa.array([key.encode("utf-8", "surrogateescape") for key in keys], pa.large_binary()))
