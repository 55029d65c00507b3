"""Rows that another table has already: its rows are queries, and are not compared with one another."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.links import Links, chunks
from curate.policies.dedup.finders.searches import Search
from curate.policies.dedup.grouping.stars import NOBODY, Stars
from curate.tables.rows import Rows

MOST = 65_536  # rows of the other table that ask at a time
ENOUGH = 256  # rows of the other table that a row has been found by, after which no better one is looked for


def find_outside(
    other_rows: Rows,
    searches: Mapping[str, Search],
    open_rows: NDArray[np.bool_],
) -> Stars:
    """Return which rows another table has.

    A row belongs to the row of the other table that is most like it by the first finder that finds one; of equally
    similar ones to the one whose key hashes lowest. The other rows ask in the order of that hash. What has been found
    by 256 of them, or by one that cannot be more alike, is not looked for any further, so that a thousand copies here
    and a thousand there are not a million pairs.

    Args:
        other_rows: rows of the other table.
        searches: built on this table.
        open_rows: rows of this table that take part, shape (N,) bool; not changed.
    """
    stars = Stars.empty(len(open_rows), tuple(searches))
    ok = np.flatnonzero(other_rows.ok)
    asking = ok[np.argsort(other_rows.hashes[ok], kind="stable")]
    for number, search in enumerate(searches.values()):
        _ask(stars, number, search, other_rows, asking, open_rows & (stars.owner == NOBODY))
    return stars


def _ask(
    stars: Stars, number: int, search: Search, other_rows: Rows, asking: NDArray[np.int64], left: NDArray[np.bool_]
) -> None:
    """Give each remaining row its most similar query, if any finds it."""
    times = np.zeros(len(left), np.int64)
    sign = 1.0 if search.higher else -1.0
    alike = 1.0 if search.higher else 0.0
    for some in chunks(asking, most=MOST):
        if not left.any():
            return
        links = search.foreign(other_rows, left, some.rows)
        times += np.bincount(links.row, minlength=len(left))
        best = _nearest(links, other_rows, sign)
        known = stars.similarity[best.row]
        stars.drop(best.take(np.isnan(known) | (sign * best.similarity > sign * known)), number)
        left = left & (times < ENOUGH)
        left[best.row[best.similarity == alike]] = False
        some.n_pairs = len(links)


def _nearest(links: Links, other_rows: Rows, sign: float) -> Links:
    ordered = links.take(np.lexsort((other_rows.hashes[links.query], -sign * links.similarity, links.row)))
    return ordered.take(np.unique(ordered.row, return_index=True)[1])
