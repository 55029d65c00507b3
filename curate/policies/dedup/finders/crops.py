"""Finder of images that are a part of another one and fit it much better than other images do."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from curate.columns import SIGNATURE
from curate.policies.dedup.finders.links import Links
from curate.policies.dedup.finders.looks import look_codes
from curate.policies.dedup.finders.nearby import NearPairs
from curate.policies.dedup.finders.passing import OfColour, drawings
from curate.policies.dedup.finders.surroundings import signature_cosine
from curate.policies.dedup.options import Progress
from curate.tables.rows import Rows
from scoring.arrays import Array, Floats, Ints, Mask
from scoring.images.cropfit import as_they_are, refine
from scoring.images.crops import LIKELY, coarse_fits
from scoring.images.signature import STEPS, SignatureView

AT_ONCE = 65_536  # pairs refined at a time
SMALLEST = 0.68  # minimal share of each side; 97 of 100 found parts of 70 % are measured as this or more
ROOM = 0.04  # pairs this far below the threshold are still refined
Signatures = NDArray[np.int8]
CROWD = 16  # number of nearest rows by embedding for the median fit
OUTSTANDING = 0.1  # largest misfit of a part, relative to the neighbours' misfit
FEW = 0.64  # fit of a missing neighbour: about the fit of plain images
ALIKE = 0.95  # cosine of whole images from which colours are compared


class PartOf:
    """Measures how well rows are parts of other rows, in any of the requested views.

    Whole images that agree count too, with the cosine of the 12 lowest frequencies per axis. Otherwise the similarity
    is the larger one of either image's best part with the other image.
    """

    def __init__(self, signatures: Signatures, threshold: float, views: tuple[SignatureView, ...]) -> None:
        self.signatures, self.threshold, self.views = signatures, threshold, views
        self.there = np.asarray(signatures.any(axis=1))

    def measured(self, query: Ints, signatures: Signatures, row: Ints) -> Links:
        """Return the similarity of pairs of another table's signature (Q, 255) and a row of this table.

        With its view and part; 0 for pairs with a flat image.
        """
        best, seen = np.zeros(len(row), np.float32), np.zeros(len(row), np.int32)
        has = np.flatnonzero(signatures[query].any(1) & self.there[row])
        for start in range(0, len(has), AT_ONCE):
            piece = has[start : start + AT_ONCE]
            queried, mine = signatures[query[piece]], self.signatures[row[piece]]
            for number, view in enumerate(self.views):
                for cosine, code in self._measured(queried, mine, number, view):
                    better = cosine > best[piece]
                    best[piece] = np.where(better, cosine, best[piece])
                    seen[piece] = np.where(better, code, seen[piece])
        return Links(query, row, best, seen)

    def likely(
        self, query: Ints, signatures: Signatures, row: Ints, report: Progress = lambda done, total: None
    ) -> Links:
        """Return ``measured`` for pairs with a close frame, and 0 for the others, at a much lower cost.

        ``report`` is called with the numbers of framed and all images.
        """
        best, seen = np.zeros(len(row), np.float32), np.zeros(len(row), np.int32)
        for number, view in enumerate(self.views):
            framed = partial(_framed_of_all, report, number, len(self.views))
            turned, undone = view.apply(signatures), view.undo(self.signatures)
            ways = (turned, query, self.signatures, row), (undone, row, signatures, query)
            if signatures is self.signatures and np.array_equal(turned, undone):  # frame each image once for both
                both = np.concatenate([query, row]), np.concatenate([row, query])
                both_ways = np.stack(coarse_fits(turned, both[0], signatures, both[1], LIKELY, framed))
                fits = np.split(both_ways, 2, axis=1)
            else:
                fits = [np.stack(coarse_fits(*ways[0], LIKELY, framed)), np.stack(coarse_fits(*ways[1], LIKELY))]
            near = np.flatnonzero(np.maximum(fits[0][0], fits[1][0]) >= LIKELY)
            plain = as_they_are(turned[query[near]], self.signatures[row[near]])
            alike = near[plain >= self._least]
            _update_best(best, seen, alike, plain[plain >= self._least].astype(np.float32), np.full(len(alike), number))
            rest = np.ones(len(row), bool)
            rest[alike] = False
            better = np.maximum(LIKELY, np.maximum(fits[0][0], fits[1][0]))  # the opposite direction cannot fit better
            for holds, (wholes, container, parts, part), (cosine, frames) in zip(
                (False, True), ways, fits, strict=True
            ):
                every = np.flatnonzero((cosine >= better) & rest)
                for first in range(0, len(every), AT_ONCE):
                    at = every[first : first + AT_ONCE]
                    start = frames[at].astype(np.int64)
                    fit = refine(wholes[container[at]], parts[part[at]], start, least_cosine=self.threshold - ROOM)
                    ok = _large(fit.edges)
                    looks = look_codes(number, fit.edges[ok], holds=bool(holds))
                    _update_best(best, seen, at[ok], fit.cosine[ok].astype(np.float32), looks)
        return Links(query, row, best, seen)

    def _measured(
        self, queried: Signatures, mine: Signatures, number: int, view: SignatureView
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int32]]]:
        """Yield the cosine and code of pairs: as whole images, or as part of each other."""
        turned = view.apply(queried)
        plain = as_they_are(turned, mine).astype(np.float32)
        alike = plain >= self._least
        yield np.where(alike, plain, 0), np.full(len(plain), number, np.int32)
        rest = np.flatnonzero(~alike)
        for holds, container, part in ((False, turned[rest], mine[rest]), (True, view.undo(mine[rest]), queried[rest])):
            fit = refine(container, part)
            cosine, code = np.zeros(len(plain), np.float32), np.zeros(len(plain), np.int32)
            cosine[rest] = np.where(_large(fit.edges), fit.cosine, 0)
            code[rest] = look_codes(number, fit.edges, holds=holds)
            yield cosine, code

    @property
    def _least(self) -> np.float32:
        return np.float32(self.threshold)


def _framed_of_all(report: Progress, number: int, of: int, done: int, total: int) -> None:
    """Report the images framed in a view, as steps of all views."""
    report(number * total + done, of * total)


def _large(edges: Ints) -> Mask:
    """Return a mask of the parts, (P, 4) in 256ths, that are large enough; smaller ones fit by chance."""
    return np.asarray((edges[:, 1::2] - edges[:, 0::2] >= SMALLEST * STEPS).all(axis=1))


def _update_best(
    best: NDArray[np.float32], seen: NDArray[np.int32], at: Ints, cosine: NDArray[np.float32], look: NDArray[np.int32]
) -> None:
    """Store the cosines and codes of pairs that are better than the stored ones, in place."""
    better = cosine > best[at]
    best[at[better]], seen[at[better]] = cosine[better], look[better]


@dataclass(frozen=True)
class Crowd:
    """N rows with the fit of their neighbouring images.

    Attributes:
        signatures: shape (N, 255) int8.
        near: nearest rows of the dataset by embedding, nearest first, -1 for none, shape (N, k).
    """

    signatures: NDArray[np.int8]
    near: Ints


class NearParts(NearPairs[Crowd]):
    """Pairs in which one image is a part of the other and fits far better than neighbouring images.

    Two products on white fit each other well, like all others: the misfit of a part must be at most 10 % of the misfit
    of either image's neighbours. Otherwise the similarity is 0.
    """

    n_nearest = CROWD
    n_alike = 0

    @cached_property
    def parts(self) -> PartOf:
        """The measure of fit between parts of images."""
        return PartOf(self.signatures, self.threshold, self.views)

    @cached_property
    def side(self) -> Crowd:
        """The rows of this table within their dataset."""
        neighbours = self.graph.index[:, :CROWD]
        near = np.full((len(self.there), CROWD), -1)
        near[self.compared, : neighbours.shape[1]] = np.where(neighbours >= 0, self.compared[neighbours], -1)
        return Crowd(self.signatures, near)

    def other(self, vectors: Array, signatures: NDArray[np.int8], near: Ints) -> Crowd:
        """Return rows of another table, compared with this dataset."""
        return Crowd(signatures, near)

    def judge(self, query: Ints, row: Ints, side: Crowd) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Return the cosines and codes of pairs of a row of a side and a row of this table.

        0 for a pair that reaches the threshold but does not stand out.
        """
        links = self.parts.likely(query, side.signatures, row, self.report)
        similarity, some = links.similarity.copy(), np.flatnonzero(links.similarity >= np.float32(self.threshold))
        crowd = np.maximum(self._fits(side, query[some]), self._fits(self.side, row[some]))
        similarity[some[1 - similarity[some] > OUTSTANDING * (1 - crowd)]] = 0
        return similarity, links.view.astype(np.int32)

    def _fits(self, side: Crowd, rows: Ints) -> Floats:
        """Return the fit of images near rows of a side, shape (P,).

        The median over the 16 nearest rows by embedding of the coarse cosine of the row's best frame with the
        neighbour.
        """
        some, place = np.unique(rows, return_inverse=True)
        near = side.near[some, :CROWD]
        at, column = np.nonzero(near >= 0)
        every = np.full((len(some), CROWD), FEW)
        every[at, column], _ = coarse_fits(side.signatures, some[at], self.signatures, near[at, column])
        return np.asarray(np.median(every, axis=1)[place])


class PartOfColour(OfColour):
    """A finder of parts that does not link whole images of different colours."""

    def agree(self, links: Links, side: Rows, view: SignatureView) -> Mask:
        """Return a mask of the pairs (P,) that agree in colour, or are not whole images of one shape."""
        return self.differ(links, side, view) | super().agree(links, side, view)

    def differ(self, links: Links, side: Rows, view: SignatureView) -> Mask:
        """Return a mask of the pairs (P,) that the finder ``signature`` does not link as whole images."""
        mine = self.rows.array(SIGNATURE)
        cosine, _ = signature_cosine(side.array(SIGNATURE), links.query, mine, links.row, (view,))
        return cosine < ALIKE


class OnlyParts(PartOfColour):
    """A finder of parts for review.

    It links no drawings, such as flags, of which other ones fit as well, and no whole images of one shape, which
    signatures and thumbnails decide.
    """

    def agree(self, links: Links, side: Rows, view: SignatureView) -> Mask:
        """Return a mask of the pairs (P,) that are neither whole images of one shape nor two drawings."""
        drawn = drawings(side, links.query) & drawings(self.rows, links.row)
        return self.differ(links, side, view) & ~drawn
