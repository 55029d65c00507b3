"""What another table has already: its rows ask, and are not compared with one another."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from curate.dedup.rows import Rows
from curate.dedup.searches import Links, Search
from curate.dedup.stars import Stars


def find_outside(
    theirs: Rows,
    searches: Mapping[str, Search],
    open_rows: NDArray[np.bool_],
) -> Stars:
    """Return which rows another table has.

    A row belongs to the row of the other table that is most like it by the first finder that finds one; of equally
    similar ones to the one whose key hashes lowest.

    Args:
        theirs: rows of the other table.
        searches: built on this table.
        open_rows: rows of this table that take part, shape (N,) bool; not changed.
    """
    stars = Stars.empty(len(open_rows), tuple(searches))
    left = open_rows.copy()
    for number, search in enumerate(searches.values()):
        found = search.foreign(theirs, left)
        found = found.take(theirs.ok[found.query])
        best = _nearest(found, theirs, higher=search.higher)
        stars.drop(best, number)
        left[best.row] = False
    return stars


def _nearest(found: Links, theirs: Rows, *, higher: bool) -> Links:
    sign = -1 if higher else 1
    order = np.lexsort((theirs.ties[found.query], sign * found.similarity, found.row))
    ordered = found.take(order)
    first = np.ones(len(ordered), bool)
    first[1:] = ordered.row[1:] != ordered.row[:-1]
    return ordered.take(first)
