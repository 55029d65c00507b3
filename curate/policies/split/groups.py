"""Rows that must stay together, by a column or as copies, and the side of each group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from curate.policies.dedup.finders.links import chunks
from curate.policies.dedup.finders.searches import Search
from curate.policies.dedup.finders.table import build
from curate.policies.dedup.request import DedupRequest
from curate.policies.split.request import SplitRequest
from curate.tables.digests import redrawn, tie_breaks
from curate.tables.rows import Codes, Rows

PURPOSE = "redrawn"  # of hashes that are drawn again: as long as this is the same, so are the sides of rows
MANY = 4_000_000  # pairs, from which fewer rows are queried at a time
LARGEST, CHUNKS = 4096, 16  # rows that are queried at a time; or a share of them: each time goes over the whole table
EXACT = np.uint64(11)  # bits of a hash that a float has no room for


@dataclass(frozen=True)
class Together:
    """Which of M rows are kept together.

    Attributes:
        of_row: group of each row, shape (M,), in [0, G), every one of which has a row.
        sizes: rows of each, shape (G,).
        hashes: of each, shape (G,) uint64: drawn from the lowest hash of a value of the column, or of a key, in it.
        first: the row that has it, shape (G,).
    """

    of_row: NDArray[np.int64]
    sizes: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    first: NDArray[np.int64]


def copies(rows: Rows, request: SplitRequest, open_rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return for each of N rows the lowest row of its chain of copies; itself without any.

    Args:
        rows: with what the finders read.
        request: has the finders; none finds no copies.
        open_rows: rows that take part, shape (N,).
    """
    thresholds = request.thresholds
    if not thresholds or not open_rows.any():
        return np.arange(len(rows))
    searches = build(rows, thresholds, DedupRequest(thresholds, mirrored=request.mirrored).views())
    return find_chains(searches, open_rows)


def together(
    rows: NDArray[np.int64], hashes: NDArray[np.uint64], column: Codes | None, owner: NDArray[np.int64], seed: int
) -> Together:
    """Return groups of rows joined by a column or an owner, merged if both join them.

    Args:
        rows: which, shape (M,), ascending.
        hashes: of the keys of all rows, shape (N,).
        column: whose values hold rows together; a row without a value stands alone. None for no such column.
        owner: row that each row is a copy of, shape (N,); itself where it is not one.
        seed: of the hashes of the groups.
    """
    names = hashes[rows]
    parent = np.arange(len(hashes))
    if column is not None and column.names:
        codes = column.codes[rows]
        is_named = codes >= 0
        named = tie_breaks([name.encode("utf-8", "backslashreplace") for name in column.names])
        names = np.where(is_named, named[np.maximum(codes, 0)], names)
        first = np.full(len(column.names), -1)
        first[codes[is_named][::-1]] = rows[is_named][::-1]
        join(parent, first[codes[is_named]], rows[is_named])
    join(parent, owner[rows], rows)
    _, of_row = np.unique(roots(parent)[rows], return_inverse=True)
    sizes = np.bincount(of_row)
    order = np.lexsort((hashes[rows], names, of_row))
    lead = order[np.searchsorted(of_row[order], np.arange(len(sizes)))]
    return Together(of_row, sizes, redrawn(names[lead], seed, PURPOSE), rows[lead])


def by_hash(hashes: NDArray[np.uint64], shares: Sequence[float]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the side of each group from its hash alone, independent of other rows.

    Args:
        hashes: of the groups, shape (G,).
        shares: of the sides; they sum to 1.

    Returns:
        Sides, shape (G,), and where on [0, 1) each group lies, of which each side has its share, in their order.
    """
    place = (hashes >> EXACT) / 2.0**53
    return _side_at(place, shares), place


def in_strata(
    hashes: NDArray[np.uint64],
    sizes: NDArray[np.int64],
    strata: NDArray[np.int64],
    starts: NDArray[np.float64],
    shares: Sequence[float],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the side of each group so that each side has its share of every stratum, as far as groups allow.

    The groups of a stratum are in a row as long as they have rows, in the order of their hashes, and the row is cut
    into sides, the largest first. Of groups of one row each side gets its share to within one row. A group goes where
    it begins or ends, or between: as ``starts`` says. Groups of more than half of the smallest side come first, the
    largest first and where they begin, so that they fall in the largest side and leave the cuts to the others.

    Args:
        hashes: of the groups, shape (G,).
        sizes: rows of each, shape (G,).
        strata: number of the stratum of each, shape (G,).
        starts: in [0, 1), of each stratum: what part of a group is before what decides about it. One half rounds
            what does not come out even; drawn, it makes the rounding of many small strata cancel.
        shares: of the sides; they sum to 1.

    Returns:
        Sides, shape (G,), and where on [0, 1) of its stratum each group lies, sides in the order of falling shares.
    """
    rows = np.bincount(strata, sizes, minlength=len(starts))
    big = np.where(sizes > np.maximum(1, rows[strata] * min(shares) / 2), sizes, 0)
    order = np.lexsort((hashes, -big, strata))
    before = np.cumsum(sizes[order]) - sizes[order]
    first = np.searchsorted(strata[order], np.arange(len(starts)))
    begin = before[np.minimum(first, max(0, len(order) - 1))][strata[order]] if len(order) else before
    place = np.empty(len(hashes))
    inside = np.where(big > 0, 0, sizes * starts[strata])
    place[order] = (before - begin + inside[order]) / rows[strata[order]]
    falling = sorted(range(len(shares)), key=lambda side: -shares[side])
    sides = np.array(falling)[_side_at(place, [shares[side] for side in falling])]
    return sides, place


def _side_at(place: NDArray[np.float64], shares: Sequence[float]) -> NDArray[np.int64]:
    ends = np.cumsum(shares)[:-1] - 1e-12  # a cut of 0.8 is at 0.8 whatever the sum of floats says
    return np.searchsorted(ends, place, side="right")


def commonest(groups: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the most frequent code of each group, the lowest of a tie, shape (G,).

    Args:
        groups: of each row, shape (N,), each of the G groups at least once.
        codes: of each row, shape (N,).
    """
    pairs = pl.DataFrame({"group": groups, "code": codes}).group_by("group", "code").len()
    most_first = pairs.sort("group", "len", "code", descending=[False, True, False])
    return most_first.unique("group", keep="first", maintain_order=True)["code"].to_numpy()


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
    for some in chunks(queried, most=max(LARGEST, len(queried) // CHUNKS), many=MANY):
        for search in searches.values():
            links = search.links(some.rows, open_rows)
            join(parent, links.query, links.row)
            some.n_pairs = max(some.n_pairs, len(links))
    return roots(parent)


def join(parent: NDArray[np.int64], a: NDArray[np.int64], b: NDArray[np.int64]) -> None:
    """Merge the groups of pairs of rows, in place: the lower root becomes the root of both."""
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
