"""Connected groups: rows that a chain of pairs joins, however little the ends of the chain have in common."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.links import chunks
from curate.policies.dedup.finders.searches import Search

MANY = 4_000_000  # pairs, from which fewer rows are queried at a time


def find_chains(searches: Mapping[str, Search], open_rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the connected components of all pairs: for each row the lowest one of its component, shape (N,).

    Every pair is looked at, so the time for a group of n rows grows with n^2 (the memory does not); it does not in
    ``find_stars``. Rows are queried in a random order: so a large group is spread over all of the work.

    Args:
        searches: finder by name.
        open_rows: rows that take part, shape (N,) bool; any other is alone.
    """
    parent = np.arange(len(open_rows))
    queried = np.random.default_rng(0).permutation(np.flatnonzero(open_rows))
    for some in chunks(queried, many=MANY):
        for search in searches.values():
            links = search.links(some.rows, open_rows)
            join(parent, links.query, links.row)
            some.n_pairs = max(some.n_pairs, len(links))
    return roots(parent)


def join(parent: NDArray[np.int64], a: NDArray[np.int64], b: NDArray[np.int64]) -> None:
    """Join the groups of a pair of rows each, in place: the lower root becomes the root of both."""
    while True:
        compress(parent)
        low, high = np.minimum(parent[a], parent[b]), np.maximum(parent[a], parent[b])
        apart = low != high
        if not apart.any():
            return
        np.minimum.at(parent, high[apart], low[apart])
        a, b = a[apart], b[apart]


def compress(parent: NDArray[np.int64]) -> None:
    """Point every row at its root, in place."""
    while True:
        above = parent[parent]
        if np.array_equal(above, parent):
            return
        parent[:] = above


def roots(parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the root of every row, shape (N,)."""
    compress(parent)
    return parent
