"""Columns of a table for charts: finite numbers, and the largest groups."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.columns import KEY
from curate.plots.request import PlotRequest
from curate.tables.needs import Needs
from curate.tables.rows import Codes, Rows, read_rows
from curate.tables.table import Table
from scoring.errors import InputError

Floats = NDArray[np.float64]
ADVICE = "choose a column of numbers"


@dataclass(frozen=True)
class Groups:
    """The largest groups of N rows.

    Attributes:
        names: of those shown, the largest first.
        place: of each row's group among them, shape (N,); -1 for others and for none.
    """

    names: list[str]
    place: NDArray[np.int64]


def read_columns(request: PlotRequest, columns: tuple[str, ...], per: str | None = None) -> Rows:
    """Read number columns and one group column; InputError for a missing column or one of another type."""
    keys = KEY in request.table.schema.names
    needs = Needs(numbers=columns, names=(per,) if per else (), keys=keys, advice=ADVICE)
    return read_rows(request.table, needs, unique=False)


def finite(values: Floats, name: str, table: Table, notes: list[str]) -> NDArray[np.bool_]:
    """Return which rows are finite, shape (N,), and note how many are not.

    Raises:
        InputError: if no row has one.
    """
    is_finite = np.isfinite(values)
    if not is_finite.any():
        raise InputError(
            f"expected numbers in {name!r} of {table.path}, got null, NaN or infinity in every row of "
            f"{len(values):,}; choose another column"
        )
    if not is_finite.all():
        notes.append(f"{int((~is_finite).sum()):,} of {len(values):,} rows have no finite {name} and are left out")
    return is_finite


def largest(codes: Codes, keep: NDArray[np.bool_], most: int, name: str, notes: list[str]) -> Groups:
    """Return the groups with the most kept rows, and note the number of others.

    Raises:
        InputError: if no row has a group.
    """
    known = keep & (codes.codes >= 0)
    sizes = np.bincount(codes.codes[known], minlength=len(codes.names))
    if not sizes.any():
        raise InputError(f"expected groups in {name!r}, got null or empty text in every row; choose another column")
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]
    shown = order[:most]
    place = np.full(len(codes.names) + 1, -1)
    place[shown] = np.arange(len(shown))
    if len(order) > len(shown):
        left = int(sizes[order[most:]].sum())
        notes.append(f"the {most} largest of {len(order):,} groups of {name} are shown; {left:,} rows are in others")
    return Groups([codes.names[code] for code in shown], place[codes.codes])
