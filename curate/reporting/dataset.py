"""The columns of a table that are read for all rows: key hashes, and codes of status, format and class."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.columns import STATUS
from curate.tables.digests import redrawn
from curate.tables.needs import Needs, is_plain
from curate.tables.rows import Codes, read_rows
from curate.tables.table import Table

FORMAT = "format"
PURPOSE = "report"
NONE = Codes(np.zeros(0, np.int32))


@dataclass(frozen=True)
class Dataset:
    """A table of N rows, about 30 bytes per row.

    Attributes:
        table: as opened.
        ok: whether the image was scored, shape (N,).
        draw: a hash of the keys, shape (N,) uint64; samples are the rows with the lowest hashes.
        digest: of the columns read, independent of the row order.
        status: codes; empty if the table has none.
        format: codes; empty if the table has none.
        classes: codes; empty without a class column.
        class_column: name of the class column; None without one.
    """

    table: Table
    ok: NDArray[np.bool_]
    draw: NDArray[np.uint64]
    digest: str
    status: Codes
    format: Codes
    classes: Codes
    class_column: str | None
    _hashes: NDArray[np.uint64]
    _order: NDArray[np.int64]

    @property
    def n(self) -> int:
        """Number N of rows."""
        return len(self.ok)

    def find(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the row of each key hash, shape (M,); -1 if absent."""
        if not self.n:
            return np.full(len(hashes), -1)
        place = np.searchsorted(self._hashes, hashes).clip(max=self.n - 1)
        return np.where(self._hashes[place] == hashes, self._order[place], -1)

    def drawn(self, n: int) -> NDArray[np.int64]:
        """Return up to n rows with the lowest key hashes; a smaller sample is the start of a larger one."""
        least = np.argpartition(self.draw, n)[:n] if n < self.n else np.arange(self.n)
        return least[np.argsort(self.draw[least], kind="stable")]


def read_dataset(table: Table, class_column: str | None, *, seed: int = 0) -> Dataset:
    """Read the columns that a report needs for all rows.

    Args:
        table: with a unique ``key``.
        class_column: a column of single values; None for none.
        seed: of the sample.

    Raises:
        InputError: for missing or repeated keys, or an unusable column.
    """
    table.require([class_column] if class_column else [])
    plain = [
        name for name in (STATUS, FORMAT) if name in table.schema.names and is_plain(table.schema.field(name).type)
    ]
    names = tuple(dict.fromkeys([*plain, *([class_column] if class_column else [])]))
    rows = read_rows(table, Needs(names=names))
    order = np.argsort(rows.hashes, kind="stable")
    status, formats, classes = (rows.names.get(name, NONE) for name in (STATUS, FORMAT, class_column or ""))
    return Dataset(
        table,
        rows.ok,
        redrawn(rows.hashes, seed, PURPOSE),
        rows.digest,
        status,
        formats,
        classes,
        class_column,
        rows.hashes[order],
        order,
    )
