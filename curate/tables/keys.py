"""Keys of a table: their hashes, and that each is there once."""

import numpy as np
from numpy.typing import NDArray

from curate.columns import KEY
from curate.tables.digests import key_bytes, tie_breaks
from curate.tables.table import Table
from scoring.errors import InputError


def key_hashes(table: Table) -> NDArray[np.uint64]:
    """Return the hash of each key, in the order of the table, shape (N,).

    Raises:
        InputError: for a null key, or keys that are neither text nor whole numbers.
    """
    hashes = np.empty(table.n_rows, np.uint64)
    start = 0
    for batch in table.batches([KEY]):
        hashes[start : start + batch.num_rows] = tie_breaks(key_bytes(batch.column(KEY), table.path, start))
        start += batch.num_rows
    return hashes


def check_unique(table: Table, hashes: NDArray[np.uint64]) -> None:
    """Refuse a table with repeated keys; equal hashes are only a suspicion, so the keys behind them are read again."""
    ordered = np.sort(hashes)
    suspects = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(suspects):
        return
    seen: set[bytes] = set()
    repeated: dict[bytes, None] = {}
    for batch in table.batches([KEY]):
        keys = key_bytes(batch.column(KEY))
        for row in np.flatnonzero(np.isin(tie_breaks(keys), suspects)).tolist():
            if keys[row] in seen and len(repeated) < 3:
                repeated[keys[row]] = None
            seen.add(keys[row])
    if repeated:
        names = ", ".join(repr(key.decode("utf-8", "replace")) for key in repeated)
        raise InputError(
            f"expected unique keys in {table.path}, got some more than once, such as {names}; make them differ"
        )
