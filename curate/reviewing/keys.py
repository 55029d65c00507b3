"""Keys of rows and digests of their images, as stored with the decisions of a review."""

import numpy as np
from numpy.typing import NDArray

from curate.columns import KEY
from curate.policies.verdicts import SHORT
from curate.tables.digests import key_array
from curate.tables.needs import SHA256
from curate.tables.table import Table


def keys_of(table: Table, rows: NDArray[np.int64]) -> tuple[str, ...]:
    """Return the keys of N rows."""
    if not len(rows):
        return ()
    keys = key_array(table.take(rows, [KEY]).column(KEY).combine_chunks()).to_pylist()
    return tuple(key.decode("utf-8", "surrogateescape") for key in keys)


def images_of(table: Table, rows: NDArray[np.int64]) -> tuple[str, ...]:
    """Return the first digits of the SHA-256 of the images of N rows; empty text if the table has none."""
    if not len(rows) or SHA256 not in table.schema.names:
        return ("",) * len(rows)
    images = table.take(rows, [SHA256]).column(SHA256).to_pylist()
    return tuple("" if image is None else str(image)[:SHORT] for image in images)
