"""The rows with the highest and the lowest values of a column."""

from dataclasses import dataclass

import numpy as np

from curate.tables.needs import Needs
from curate.tables.rows import read_rows
from curate.tables.signals import default_column
from curate.tables.table import Table


@dataclass(frozen=True)
class Extremes:
    """Row numbers of a table: the highest values first, and the lowest first."""

    column: str
    top: list[int]
    bottom: list[int]


def extremes(table: Table, column: str | None, *, top: int, bottom: int) -> Extremes:
    """Find the ends of a column; rows without a value have no place, and ties go to the earlier row.

    Args:
        table: any table.
        column: of numbers; None for the model's own score.
        top: rows at the high end, >= 0; fewer where the table has fewer.
        bottom: rows at the low end, >= 0.

    Raises:
        InputError: if there is no such column of numbers.
    """
    name = column or default_column(table)
    needs = Needs(numbers=(name,), keys=False, advice="choose another --column")
    values = read_rows(table, needs).numbers[name]
    rows = np.flatnonzero(~np.isnan(values))
    order = rows[np.argsort(values[rows], kind="stable")]
    descending = rows[np.argsort(-values[rows], kind="stable")]
    return Extremes(name, descending[:top].tolist(), order[:bottom].tolist())
