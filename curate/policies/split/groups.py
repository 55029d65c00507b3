"""Rows that must stay together: by a column, and because one is a copy of another."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.table import Options, build
from curate.policies.dedup.grouping.chains import find_chains, join, roots
from curate.policies.dedup.request import DedupRequest
from curate.policies.split.request import SplitRequest
from curate.tables.digests import redrawn, tie_breaks
from curate.tables.rows import Codes, Rows

PURPOSE = "redrawn"  # of hashes that are drawn again: as long as this is the same, so are the sides of rows


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
    """Return for each row of N the first row of those that a chain of copies joins it to; itself if absent.

    Args:
        rows: with what the finders read.
        request: has the finders; none finds no copies.
        open_rows: rows that take part, shape (N,).
    """
    thresholds = request.thresholds
    if not thresholds or not open_rows.any():
        return np.arange(len(rows))
    order = np.argsort(rows.hashes, kind="stable")
    searches = build(rows, thresholds, Options(DedupRequest(thresholds, mirrored=request.mirrored).views()))
    owner = find_chains(order, searches, thresholds, open_rows).owner
    return np.where(owner >= 0, owner, np.arange(len(rows)))


def together(
    rows: NDArray[np.int64], hashes: NDArray[np.uint64], column: Codes | None, owner: NDArray[np.int64], seed: int
) -> Together:
    """Return the groups of some rows: what a column or an owner joins, joined further where both do.

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
