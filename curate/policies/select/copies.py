"""Detection of picks that are copies of an earlier pick or a labelled row, which strategies do not avoid."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.columns import SIGNATURE
from curate.counted import counted
from curate.policies.dedup.finders.table import FINDERS
from curate.tables.copies import first_equal
from curate.tables.digests import is_text
from curate.tables.images import SHA256
from curate.tables.keys import keys_at
from curate.tables.signatures import signature_matrix
from curate.tables.table import Table
from scoring.relative.space import unit

MOST = 20_000  # maximal picks and labelled rows to compare
BLOCK = 1024  # picks at a time
ALIKE = FINDERS["signature"].threshold or 1.0  # default threshold of ``curate dedup``


@dataclass(frozen=True)
class PickedCopies:
    """Picks that are copies of an earlier pick or a labelled row.

    Attributes:
        n: number of such picks.
        of: number of all picks.
        key: of the first copy; None if absent.
        earlier: key of the row that it is a copy of; None if absent.
    """

    n: int
    of: int
    key: str | None = None
    earlier: str | None = None

    def words(self) -> list[str]:
        """Return a warning if picks are copies."""
        if not self.n:
            return []
        copies = counted(self.n, f"of {self.of:,} picks is a copy", f"of {self.of:,} picks are copies")
        return [
            f"{copies} of an earlier pick or of a labelled row (equal files, or a cosine of signatures of {ALIKE:g} or "
            f"more), such as {self.key} of {self.earlier}: drop copies with curate dedup first"
        ]


def find_picked_copies(table: Table, picks: NDArray[np.int64], labelled: NDArray[np.int64]) -> PickedCopies | None:
    """Return the picks that are copies, by the default finders of ``curate dedup``.

    Args:
        table: the input.
        picks: rows in the order picked, shape (K,).
        labelled: labelled rows, shape (L,).

    Returns:
        None if the table has no column for finding copies, or there are more than 20,000 rows to compare.
    """
    columns = [name for name in (SHA256, SIGNATURE) if name in table.schema.names]
    rows = np.concatenate([labelled, picks])
    if not columns or len(rows) > MOST:
        return None
    values = table.take(rows, columns)
    owner = np.full(len(rows), -1)
    if SIGNATURE in columns:
        owner = _by_signature(signature_matrix(values.column(SIGNATURE)), len(labelled))
    if SHA256 in columns and is_text(table.schema.field(SHA256).type):  # a user's column may have that name
        first = first_equal(values.column(SHA256))
        owner = np.where(first < np.arange(len(rows)), first, owner)
    owner[: len(labelled)] = -1
    copies = np.flatnonzero(owner >= 0)
    if not len(copies):
        return PickedCopies(0, len(picks))
    key, earlier = keys_at(table, rows[[copies[0], owner[copies[0]]]]).tolist()
    return PickedCopies(len(copies), len(picks), key, earlier)


def _by_signature(signatures: NDArray[np.int8], start: int) -> NDArray[np.int64]:
    """Return the first earlier row that each row from ``start`` is a copy of, -1 for none; shape (N,)."""
    units = unit(signatures)
    owner = np.full(len(units), -1)
    for low in range(start, len(units), BLOCK):
        high = min(low + BLOCK, len(units))
        near = units[low:high] @ units[:high].T >= np.float32(ALIKE)
        near &= np.arange(high) < np.arange(low, high)[:, None]
        has_copy = near.any(1)
        owner[low:high][has_copy] = near[has_copy].argmax(1)
    return owner
