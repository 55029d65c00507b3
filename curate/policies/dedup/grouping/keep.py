"""Who stays of several that are the same: criteria in order, and a hash of the key at the end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.columns import is_less_certain, without_bounds
from curate.tables.rows import Rows
from curate.tables.signals import default_column, kappa_of
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.lookup import closest

DEFAULT = "labelled,largest,certain,least-compressed"
MAX, MIN = "max:", "min:"


@dataclass(frozen=True)
class Criterion:
    """One criterion: what it is called, which columns it reads, and its value a row (higher stays; NaN is last).

    Attributes:
        typed: as on the command line.
        numbers: columns of numbers.
        present: columns of which only matters whether there is a value.
        value: rows -> shape (N,) float64.
    """

    typed: str
    numbers: tuple[str, ...]
    present: tuple[str, ...]
    value: Callable[[Rows], NDArray[np.float64]]


MEANINGS: dict[str, str] = {
    "certain": "most certain: highest kappa, or lowest unc where there is no kappa",
    "largest": "most pixels",
    "least-compressed": "most bytes a pixel",
    "labelled": "with a value in the label column before those without",
    "max:COLUMN": "largest value of any column of numbers",
    "min:COLUMN": "smallest value of any column of numbers",
}


def parse_keep(text: str, table: Table, *, label: str | None) -> list[Criterion]:
    """Return the criteria named in ``text``, separated by commas.

    Args:
        text: such as ``largest,certain,min:year``. The default takes only what the table has columns for.
        table: where the columns are.
        label: column of the labels, or None.

    Raises:
        InputError: for an unknown criterion, or a column that the table lacks.
    """
    default = text == DEFAULT
    criteria = []
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise InputError(f"--keep takes {', '.join(MEANINGS)}, separated by commas, got none; leave it out")
    for name in names:
        if name.startswith((MAX, MIN)):
            criteria.append(_by_column(name, table))
        elif name in MEANINGS:
            if default and not _possible(name, table, label):
                continue
            criteria.append(_named(name, table, label))
        else:
            raise InputError(
                f"--keep takes {', '.join(MEANINGS)}, separated by commas, got {name!r}{closest(name, MEANINGS)}"
            )
    return criteria


def _possible(name: str, table: Table, label: str | None) -> bool:
    """Whether the table has what a criterion of the default needs."""
    names = table.schema.names
    if name == "labelled":
        return label is not None and label in names
    if name == "certain":
        return _score(table) is not None
    return {"width", "height"} <= set(names) and (name == "largest" or "n_bytes" in names)


def _named(name: str, table: Table, label: str | None) -> Criterion:
    if name == "labelled":
        if label is None:
            raise InputError("--keep labelled needs a column of labels; name it with --label")
        table.require([label])
        return Criterion(name, (), (label,), lambda rows: rows.present[label].astype(float))
    if name == "certain":
        column = _score(table)
        if column is None:
            scores = [each for each in without_bounds(table.schema.names) if each.startswith(("kappa_", "unc_"))]
            raise InputError(
                f"--keep certain needs the one score of {table.path}, got {', '.join(scores) or 'none'}; name a column "
                "with max:COLUMN (kappa) or min:COLUMN (unc)"
            )
        sign = -1.0 if is_less_certain(column) else 1.0
        return Criterion(f"certain ({column})", (column,), (), lambda rows: sign * rows.numbers[column])
    needed = ("width", "height") if name == "largest" else ("width", "height", "n_bytes")
    table.require(needed)
    if name == "largest":
        return Criterion(name, needed, (), lambda rows: rows.numbers["width"] * rows.numbers["height"])
    return Criterion(name, needed, (), _bytes_a_pixel)


def _score(table: Table) -> str | None:
    """The kappa column of a table, else its score; None where it has none, or several and none is its model's own."""
    try:
        return kappa_of(table) or default_column(table)
    except InputError:
        return None


def _bytes_a_pixel(rows: Rows) -> NDArray[np.float64]:
    pixels = rows.numbers["width"] * rows.numbers["height"]
    return np.divide(rows.numbers["n_bytes"], pixels, out=np.full(len(rows), np.nan), where=pixels > 0)


def _by_column(name: str, table: Table) -> Criterion:
    column = name.removeprefix(MAX).removeprefix(MIN)
    table.require([column])
    sign = 1.0 if name.startswith(MAX) else -1.0
    return Criterion(name, (column,), (), lambda rows: sign * rows.numbers[column])


def keep_order(
    rows: Rows, criteria: Sequence[Criterion], protected: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Return all rows, the one that stays first of any that are the same.

    Protected rows come first, then the criteria decide in their order, rows without a value last in each, then the
    hash of the key: so it is the same order on any machine and in whatever order the rows come.

    Returns:
        Shape (N,) int64, a permutation.
    """
    keys: list[NDArray] = [rows.hashes]  # the last key of lexsort is the first to decide
    for criterion in reversed(criteria):
        value = criterion.value(rows)
        keys.append(np.where(np.isnan(value), np.inf, -value))
    if protected is not None:
        keys.append(~protected)
    return np.lexsort(keys).astype(np.int64)
