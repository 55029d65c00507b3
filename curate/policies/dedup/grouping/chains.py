"""Connected groups: rows that a chain of pairs joins, however little the ends of the chain have in common."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.links import Links, chunks
from curate.policies.dedup.finders.searches import Search
from curate.policies.dedup.finders.table import FINDERS
from curate.policies.dedup.grouping.stars import Stars

FAR = 1e9
MANY = 4_000_000  # pairs, from which fewer rows are queried at a time


def find_chains(
    order: NDArray[np.int64],
    searches: Mapping[str, Search],
    thresholds: Mapping[str, float],
    open_rows: NDArray[np.bool_],
    protected: NDArray[np.bool_] | None = None,
) -> Stars:
    """Return the connected components of all pairs; in each the first row in the order of keeping stays.

    Every pair is looked at, so the time for a group of n rows grows with n^2 (the memory does not); it does not in
    ``find_stars``. Rows are queried in a random order: so a large group is spread over all of the work.

    Args:
        order: rows in the order of keeping, shape (N,).
        searches: finder by name.
        thresholds: by finder.
        open_rows: rows that take part, shape (N,) bool.
        protected: rows that never go, shape (N,) bool; they are first in ``order``.

    Returns:
        Owners as ``find_stars`` gives them. The similarity is the direct one of the row to its owner, which for the
        far end of a chain does not reach the threshold.
    """
    parent = np.arange(len(open_rows))
    rows = np.flatnonzero(open_rows)
    queried = np.random.default_rng(0).permutation(rows)
    for some in chunks(queried, many=MANY):
        for search in searches.values():
            links = search.links(some.rows, open_rows)
            join(parent, links.query, links.row)
            some.n_pairs = max(some.n_pairs, len(links))
    place = np.argsort(order)
    group = roots(parent)
    first = np.full(len(parent), len(parent))
    np.minimum.at(first, group[rows], place[rows])
    stars = Stars.empty(len(parent), tuple(searches))
    stars.owner[rows] = order[first[group[rows]]]
    if protected is not None:
        stars.owner[protected & open_rows] = np.flatnonzero(protected & open_rows)
    gone = rows[stars.owner[rows] != rows]
    _tell(stars, gone, searches, thresholds)
    return stars


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


def _tell(
    stars: Stars, gone: NDArray[np.int64], searches: Mapping[str, Search], thresholds: Mapping[str, float]
) -> None:
    """Say by which finder a row is nearest to the one that stays."""
    best = np.full(len(gone), -np.inf)
    for number, (name, search) in enumerate(searches.items()):
        links = search.measure(stars.owner[gone], gone)
        finder, threshold = FINDERS[name], thresholds[name]
        reaches = finder.margin(links.similarity, threshold)
        if finder.threshold is None:  # what is not equal is not nearly equal either
            reaches = np.where(reaches < 0, -FAR, reaches)
        better = reaches > best
        best = np.where(better, reaches, best)
        stars.drop(Links(links.query, links.row, links.similarity, links.view).take(better), number)
