"""Groups that hold together: every row that goes is the same as the row that stays in its place; no chains.

The definition. Rows come in the order of keeping, the best first. A row stays if it is the same as no row before it
that stays; else it goes, and belongs to the first of those. Rows that go decide nothing any more, so most pairs of a
large group never have to be looked at: rows are taken in rounds, a round is settled within itself, and those of it that
stay take away what is the same among all the rest.

Source: rounds over a prefix give the greedy result in few steps (Blelloch, Fineman, Shun 2012, arXiv:1202.3205).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.dedup.searches import Links, Search

NOBODY = -1
FIRST_ROUND = 1024  # rows; rounds double while few of their rows are the same
LARGEST_ROUND = 65_536
QUERIES = 4096  # rows asked about at a time, so that what comes back stays small
FEW = 4  # pairs a row within a round, above which the next round is smaller


@dataclass
class Stars:
    """Who belongs to whom.

    Attributes:
        owner: the row that stays in its place, shape (N,) int64; itself where it stays, -1 where it took no part.
        finder: which finder said so, shape (N,) int8, an index into ``names``; -1 where the row stays.
        similarity: to the owner, in the finder's unit, shape (N,) float64; NaN where the row stays.
        view: which view of the owner matched, shape (N,) int8.
        names: of the finders.
    """

    owner: NDArray[np.int64]
    finder: NDArray[np.int8]
    similarity: NDArray[np.float64]
    view: NDArray[np.int8]
    names: tuple[str, ...]

    @classmethod
    def empty(cls, n: int, names: tuple[str, ...]) -> "Stars":
        """Return N rows of which nothing is known."""
        return cls(
            np.full(n, NOBODY, np.int64), np.full(n, -1, np.int8), np.full(n, np.nan), np.zeros(n, np.int8), names
        )

    def drop(self, found: Links, finder: int) -> None:
        """Give rows to their owners."""
        self.owner[found.row] = found.query
        self.finder[found.row] = finder
        self.similarity[found.row] = found.similarity
        self.view[found.row] = found.view


def find_stars(
    order: NDArray[np.int64],
    searches: Mapping[str, Search],
    open_rows: NDArray[np.bool_],
    protected: NDArray[np.bool_] | None = None,
) -> Stars:
    """Return the groups of the definition above.

    Args:
        order: rows in the order of keeping, shape (N,).
        searches: finder by name, in the order in which they tell a pair that several link.
        open_rows: rows that take part, shape (N,) bool; it becomes all False.
        protected: rows that never go, shape (N,) bool; they are first in ``order``.
    """
    stars = Stars.empty(len(open_rows), tuple(searches))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    at, size = 0, FIRST_ROUND
    while at < len(order):
        taken, at = _next_open(order, open_rows, at, size)
        inside = np.zeros(len(open_rows), bool)
        inside[taken] = True
        n_pairs = _settle(stars, taken, inside, place, searches, protected)
        stay = taken[stars.owner[taken] == taken]
        open_rows[taken] = False
        goes = open_rows if protected is None else open_rows & ~protected
        best: dict[int, Links] = {}
        for number, found in _links(searches, stay, goes):
            _keep_first(best, number, found, place)
        _give(stars, best, place)
        open_rows[stars.owner != NOBODY] = False
        size = min(size * 2, LARGEST_ROUND) if n_pairs <= FEW * len(taken) else max(size // 4, FIRST_ROUND)
    return stars


def _next_open(
    order: NDArray[np.int64], open_rows: NDArray[np.bool_], at: int, size: int
) -> tuple[NDArray[np.int64], int]:
    """Return the next ``size`` rows that are open, and where to go on."""
    parts: list[NDArray[np.int64]] = []
    n = 0
    while at < len(order) and n < size:
        part = order[at : at + size]
        which = np.flatnonzero(open_rows[part])[: size - n]
        at += int(which[-1]) + 1 if n + len(which) == size else len(part)
        parts.append(part[which])
        n += len(which)
    return (np.concatenate(parts) if parts else np.zeros(0, np.int64)), at


def _links(
    searches: Mapping[str, Search], rows: NDArray[np.int64], among: NDArray[np.bool_]
) -> Iterator[tuple[int, Links]]:
    """Yield what each finder finds, for some rows at a time."""
    for start in range(0, len(rows), QUERIES):
        for number, search in enumerate(searches.values()):
            yield number, search.links(rows[start : start + QUERIES], among)


def _settle(
    stars: Stars,
    taken: NDArray[np.int64],
    inside: NDArray[np.bool_],
    place: NDArray[np.int64],
    searches: Mapping[str, Search],
    protected: NDArray[np.bool_] | None,
) -> int:
    """Settle the rows of a round among themselves; return how many pairs there were."""
    found = [(number, links) for number, links in _links(searches, taken, inside)]
    pairs = [_ordered(links, place) for _, links in found]
    finder = np.concatenate([np.full(len(p), n, np.int8) for (n, _), p in zip(found, pairs, strict=True)])
    every = Links(
        *(np.concatenate([getattr(p, name) for p in pairs]) for name in ("query", "row", "similarity", "view"))
    )
    stars.owner[taken] = taken
    # later row by later row, each with its earlier ones in their order
    for i in np.lexsort((finder, place[every.query], place[every.row])).tolist():
        query, row = every.query[i], every.row[i]
        if stars.owner[query] == query and stars.owner[row] == row and (protected is None or not protected[row]):
            stars.drop(every.take(np.array([i])), int(finder[i]))
    return len(every)


def _ordered(links: Links, place: NDArray[np.int64]) -> Links:
    """Pairs with the row that is kept rather as the query; what was found from both sides stands twice."""
    swap = place[links.query] > place[links.row]
    return Links(
        np.where(swap, links.row, links.query), np.where(swap, links.query, links.row), links.similarity, links.view
    )


def _keep_first(best: dict[int, Links], number: int, found: Links, place: NDArray[np.int64]) -> None:
    """Add to what a finder has found so far, leaving one pair for each row: that with the first row that stays."""
    if number in best:
        old = best[number]
        found = Links(
            *(np.concatenate([getattr(old, n), getattr(found, n)]) for n in ("query", "row", "similarity", "view"))
        )
    order = np.lexsort((-found.similarity, place[found.query], found.row))
    ordered = found.take(order)
    first = np.ones(len(ordered), bool)
    first[1:] = ordered.row[1:] != ordered.row[:-1]
    best[number] = ordered.take(first)


def _give(stars: Stars, best: Mapping[int, Links], place: NDArray[np.int64]) -> None:
    """Drop every row that somebody found, for the first row that stays; of several finders the first tells."""
    for number in sorted(best):
        found = best[number]
        had = stars.owner[found.row]
        better = (had == NOBODY) | (place[found.query] < place[np.maximum(had, 0)])
        stars.drop(found.take(better), number)
