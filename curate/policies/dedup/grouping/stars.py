"""Grouping of copies into stars: every dropped row is a copy of its kept row, without chains.

Definition: rows are sorted in the order of keeping, best first. A row is kept if it is no copy of an earlier kept row;
else it is dropped and assigned to the first of those. What counts is that querying the kept row finds the other: a crop
is a copy of its whole image, but not vice versa.

Efficiency: dropped rows are not queried, so most pairs of a large group are never compared. Rows are processed in
rounds; each round is first decided within itself, then its kept rows are queried among all remaining rows. Searches
only return the first match of each row, except among at most ``FEW`` rows: n copies of one image give n links instead
of n^2, in any order.

Source: rounds over a prefix give the greedy result in few steps (Blelloch, Fineman, Shun 2012, arXiv:1202.3205).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.links import Links, mask_of
from curate.policies.dedup.finders.searches import Search
from scoring.arrays import Array, Floats, Ints, Mask

NOBODY = -1
FIRST_ROUND = 1024  # rows; each round is twice as large as the one before
LARGEST_ROUND = 65_536  # or a share of the rows, since each round searches the whole table
ROUNDS, MOST_ROWS = 16, 1 << 20
FEW = 1024  # rows that are compared in all pairs


@dataclass
class Stars:
    """Groups of rows: the kept row of each, and the similarity to it.

    Attributes:
        owner: the kept row of each row, shape (N,) int64; itself if kept, -1 if not compared.
        finder: the finder that linked it, shape (N,) int8, an index into ``names``; -1 if kept.
        similarity: to the owner, in the finder's unit, shape (N,) float64; NaN if kept.
        view: matching view of the owner, as ``Links.view``, shape (N,) int32.
        names: of the finders.
    """

    owner: Ints
    finder: NDArray[np.int8]
    similarity: Floats
    view: NDArray[np.int32]
    names: tuple[str, ...]

    @classmethod
    def empty(cls, n: int, names: tuple[str, ...]) -> "Stars":
        """Return N rows without groups."""
        return cls(
            np.full(n, NOBODY, np.int64), np.full(n, -1, np.int8), np.full(n, np.nan), np.zeros(n, np.int32), names
        )

    def drop(self, links: Links, finder: int) -> None:
        """Assign rows to their owners."""
        self.owner[links.row] = links.query
        self.finder[links.row] = finder
        self.similarity[links.row] = links.similarity
        self.view[links.row] = links.view

    def detach(self, rows: Ints, owner: Ints | int) -> None:
        """Unlink rows: each is its own owner, or has none."""
        self.owner[rows], self.finder[rows], self.similarity[rows], self.view[rows] = owner, -1, np.nan, 0

    def copy(self, rows: Array, other: "Stars") -> None:
        """Assign rows, a mask or indices, to their owners in another grouping."""
        for name in ("owner", "finder", "similarity", "view"):
            getattr(self, name)[rows] = getattr(other, name)[rows]


def find_stars(
    order: Ints,
    searches: Mapping[str, Search],
    open_rows: Mask,
    protected: Mask | None = None,
    *,
    compared: Callable[[int, int], None] = lambda done, total: None,
) -> Stars:
    """Return the groups as defined by this module.

    Args:
        order: rows in the order of keeping, shape (N,).
        searches: finder by name; the first one that links a pair is recorded.
        open_rows: mask of rows to compare, shape (N,); set to all False.
        protected: mask of rows that are never dropped, shape (N,); they are first in ``order``.
        compared: called with the numbers of decided and all rows.
    """
    stars = Stars.empty(len(open_rows), tuple(searches))
    place = np.argsort(order)
    compared(0, len(order))  # the first search builds clusters, which takes minutes for many rows
    free = np.ones(len(order), bool) if protected is None else ~protected
    work = _Round(stars, place, list(searches.values()), free)
    at, size = 0, FIRST_ROUND
    largest = max(LARGEST_ROUND, min(len(order) // ROUNDS, MOST_ROWS))
    while at < len(order):
        taken, at = _next_open(order, open_rows, at, size)
        stay = work.settle(taken)
        open_rows[stay] = False
        stars.owner[stay] = stay
        work.assign_copies(stay, open_rows & free)
        open_rows[stars.owner != NOBODY] = False
        size = min(size * 2, largest)
        compared(at, len(order))
    return stars


def _next_open(order: Ints, open_rows: Mask, at: int, size: int) -> tuple[Ints, int]:
    """Return the next ``size`` open rows, and the position after them."""
    parts: list[Ints] = []
    n = 0
    while at < len(order) and n < size:
        part = order[at : at + size]
        which = np.flatnonzero(open_rows[part])[: size - n]
        at += int(which[-1]) + 1 if n + len(which) == size else len(part)
        parts.append(part[which])
        n += len(which)
    return (np.concatenate(parts) if parts else np.zeros(0, np.int64)), at


@dataclass(frozen=True)
class _Round:
    """The state of the assignment: groups so far, rank of each row, finders, and rows that may be dropped."""

    stars: Stars
    place: Ints
    searches: list[Search]
    free: Mask

    def settle(self, rows: Ints) -> Ints:
        """Return the kept rows among rows in order of preference; the others are assigned to one of them.

        Rows without an earlier match are kept, and their copies assigned, which usually leaves few rows. If many are
        left, the first half is decided first, and its copies in the other half are assigned.
        """
        if len(rows) <= FEW:
            return self._copies_among_few(rows)
        later = self._copies_of_earlier(rows)
        stay, left = [rows[~later]], rows[later]
        left = self._not_copies(stay[0], left)
        half = len(left) if len(left) <= len(rows) // 2 else len(left) // 2
        while len(left):
            stay.append(self.settle(left[:half]))
            left = self._not_copies(stay[-1], left[half:])
        together = np.concatenate(stay)
        return together[np.argsort(self.place[together])]

    def assign_copies(self, stay: Ints, among: Mask) -> None:
        """Assign every row in the mask (N,) that is a copy of a kept row to the first such row.

        The first of several finders that link the pair is recorded. An earlier owner is only replaced by a preferred
        row.
        """
        for number, search in enumerate(self.searches):
            links = search.first(stay, among)
            links = links.take(self.place[links.query] < self.place[links.row])  # what finds one way may stand behind
            had = self.stars.owner[links.row]
            mine, old = self.place[links.query], self.place[np.maximum(had, 0)]
            sooner = (mine == old) & (number < self.stars.finder[links.row])
            self.stars.drop(links.take((had == NOBODY) | (mine < old) | sooner), number)

    def _not_copies(self, stay: Ints, left: Ints) -> Ints:
        """Return the rows that are not copies of the kept rows."""
        if not len(left):
            return left
        self.assign_copies(stay, mask_of(left, len(self.place)))
        return np.asarray(left[self.stars.owner[left] == NOBODY])

    def _copies_of_earlier(self, rows: Ints) -> Mask:
        """Return a mask of the rows (R,) that may be dropped and are copies of an earlier one."""
        later = np.zeros(len(self.place), bool)
        for search in self.searches:
            links = search.first(rows, mask_of(rows, len(self.place)))
            later[links.row[self.place[links.query] < self.place[links.row]]] = True
        return (later & self.free)[rows]

    def _copies_among_few(self, rows: Ints) -> Ints:
        """Return the same for few rows, from all their pairs."""
        among = mask_of(rows, len(self.place))
        linked = np.zeros((len(rows), len(rows)), bool)  # by index among these rows
        local = np.empty(len(self.place), np.int64)
        local[rows] = np.arange(len(rows))
        for search in self.searches:
            links = search.links(rows, among)
            linked[local[links.query], local[links.row]] = True
        linked &= self.free[rows]
        stays = np.ones(len(rows), bool)
        for at in range(len(rows)):
            if stays[at]:
                stays[at + 1 :] &= ~linked[at, at + 1 :]
        self.assign_copies(rows[stays], mask_of(rows[~stays], len(self.place)))
        return np.asarray(rows[self.stars.owner[rows] == NOBODY])
