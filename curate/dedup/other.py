"""What another table has already: its rows ask, and are not compared with one another."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from curate.dedup.request import Request
from curate.dedup.rows import Rows, read_rows
from curate.dedup.searches import Links, Search
from curate.dedup.stars import Stars
from curate.table import Table


def find_outside(
    other: Table,
    request: Request,
    searches: Mapping[str, Search],
    open_rows: NDArray[np.bool_],
    protected: NDArray[np.bool_] | None,
) -> tuple[Stars, str]:
    """Return which rows the other table has, and its digest.

    A row belongs to the row of the other table that is most like it by the first finder that finds one; of equally
    similar ones to the one whose key hashes lowest.

    Args:
        other: the table to compare with.
        request: what counts as the same.
        searches: built on this table.
        open_rows: rows of this table that take part, shape (N,) bool; not changed.
        protected: rows that never go and so are not looked for, unless only a report is wanted.
    """
    theirs = read_rows(other, request.needs_of_other())
    stars = Stars.empty(len(open_rows), tuple(searches))
    left = open_rows.copy()
    if protected is not None and not request.report_only:
        left &= ~protected
    for number, search in enumerate(searches.values()):
        found = search.foreign(theirs, left)
        found = found.take(theirs.ok[found.query])
        best = _nearest(found, theirs, higher=search.higher)
        stars.drop(best, number)
        left[best.row] = False
    return stars, theirs.digest


def _nearest(found: Links, theirs: Rows, *, higher: bool) -> Links:
    sign = -1 if higher else 1
    order = np.lexsort((theirs.ties[found.query], sign * found.similarity, found.row))
    ordered = found.take(order)
    first = np.ones(len(ordered), bool)
    first[1:] = ordered.row[1:] != ordered.row[:-1]
    return ordered.take(first)
