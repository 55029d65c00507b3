"""Large groups just above a threshold: copies of one image are far above it, images of one template are not."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from curate.policies.dedup.finders.links import in_chunks, mask_of
from curate.policies.dedup.finders.searches import Search
from curate.policies.dedup.finders.table import FINDERS
from curate.policies.dedup.grouping.stars import Stars
from curate.tables.rows import Rows
from scoring.arrays import Array, Ints, Mask

LARGE = 5  # minimal size of a large group
NEAR, SURE = 0.5, 0.9  # of the way from the threshold to equal: less is just above it, more is surely the same
NEAR_SIGNATURE = 0.99  # cosine: of 14 photographs and 17 edits of each the median copy had 0.996 or more
SURE_SIGNATURE = 0.999  # displays that differ in one digit have 0.975 to 0.998, other encodings and sizes more


@dataclass(frozen=True)
class Bounds:
    """Bounds on the similarity of a finder.

    Attributes:
        name: of the finder.
        least: threshold of the groups: the finder's default, or a looser chosen one.
        near: similarities below it are just above the threshold.
        sure: similarities from it on are certain copies.
    """

    name: str
    least: float
    near: float
    sure: float

    @classmethod
    def of(cls, name: str, threshold: float) -> "Bounds | None":
        """Return the bounds of a finder; None for one without a threshold.

        >>> Bounds.of("signature", 0.99)
        Bounds(name='signature', least=0.95, near=0.99, sure=0.999)
        """
        finder = FINDERS[name]
        if finder.threshold is None:
            return None
        least, best = looser(name, threshold, finder.threshold), finder.highest if finder.higher else finder.lowest
        if name == "signature":
            return cls(name, least, max(NEAR_SIGNATURE, least), max(SURE_SIGNATURE, threshold))
        sure = least + SURE * (best - least)
        return cls(
            name, least, least + NEAR * (best - least), threshold if looser(name, sure, threshold) == sure else sure
        )

    def is_near(self, similarity: Array) -> Mask:
        """Return a mask of the similarities just above the threshold."""
        return ~FINDERS[self.name].holds(similarity, self.near)

    def is_sure(self, similarity: Array) -> Mask:
        """Return a mask of the similarities that are certain copies."""
        return FINDERS[self.name].holds(similarity, self.sure)


def looser(name: str, threshold: float, other: float) -> float:
    """Return the looser of two thresholds of a finder."""
    return min(threshold, other) if FINDERS[name].higher else max(threshold, other)


@dataclass(frozen=True)
class Crowds:
    """Finds large groups most of whose pairs are just above the threshold.

    Attributes:
        bounds: by finder, if it has a threshold.
        search: builds a finder for a threshold.
        ok: mask of comparable rows, shape (N,).
    """

    bounds: Mapping[str, Bounds]
    search: Callable[[str, float], Search]
    ok: Mask

    def loose(self, stars: Stars) -> Mask:
        """Return a mask of the rows in such groups that are not certain copies of the kept row, shape (N,).

        A kept row has such a group if it is linked with at least four rows, of any owner, mostly just above the
        threshold. The same holds for a dropped row by its own links. If these are most of a finder's uncertain rows, as
        with slices of a volume or frames of a film, all its uncertain rows count.
        """
        loose = np.zeros(len(stars.owner), bool)
        for bounds, rows in self._unsure(stars):
            search = self.search(bounds.name, bounds.least)
            owners, at = np.unique(stars.owner[rows], return_inverse=True)
            counts = self._linked(bounds, search, owners)
            loose[rows[(counts.large & counts.near)[at]]] = True
            edge = rows[(counts.near & ~counts.large)[at]]
            counts = self._linked(bounds, search, edge)
            loose[edge[counts.large & counts.near]] = True
            loose[rows] |= 2 * loose[rows].sum() > len(rows)
        return loose

    def loose_leaks(self, leaks: Stars, other: Rows) -> Mask:
        """Return the same for rows that also occur in another table; links in both tables are added."""
        loose = np.zeros(len(leaks.owner), bool)
        for bounds, rows in self._unsure(leaks):
            search = self.search(bounds.name, bounds.least)
            counts = self._linked(bounds, search, rows)
            foreign = partial(search.foreign, other, mask_of(rows, len(self.ok)))
            for links in in_chunks(foreign, np.flatnonzero(other.ok), least=1):
                counts.add(links.row, bounds.is_near(links.similarity))
            loose[rows[counts.large & counts.near]] = True
        return loose

    def _unsure(self, stars: Stars) -> Iterator[tuple[Bounds, Ints]]:
        for number, name in enumerate(stars.names):
            rows = np.flatnonzero(stars.finder == number)
            if name in self.bounds:
                rows = rows[~self.bounds[name].is_sure(stars.similarity[rows])]
                if len(rows):
                    yield self.bounds[name], rows

    def _linked(self, bounds: Bounds, search: Search, rows: Ints) -> "_Counts":
        counts = _Counts(rows)
        for links in in_chunks(partial(search.links, among=self.ok), rows, least=1):
            counts.add(links.query, bounds.is_near(links.similarity))
        return counts


class _Counts:
    """The number of links of some ascending rows, and of links just above the threshold."""

    def __init__(self, rows: Ints) -> None:
        self.rows = rows
        self.n, self.n_near = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)

    def add(self, rows: Ints, near: Mask) -> None:
        """Count the links of rows, which may repeat."""
        place = np.searchsorted(self.rows, rows)
        self.n += np.bincount(place, minlength=len(self.rows))
        self.n_near += np.bincount(place[near], minlength=len(self.rows))

    @property
    def large(self) -> Mask:
        """Return a mask of the rows that have a large group with their linked rows."""
        return self.n >= LARGE - 1

    @property
    def near(self) -> Mask:
        """Return a mask of the rows of which most links are just above the threshold."""
        return 2 * self.n_near > self.n
