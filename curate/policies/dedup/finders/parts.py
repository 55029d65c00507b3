"""The fit of one image to a part of another: crops, borders and letterboxes, from signatures alone."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.links import Links
from curate.policies.dedup.finders.looks import look_codes
from scoring.images.cropfit import as_they_are, refine
from scoring.images.crops import LIKELY, coarse_fits
from scoring.images.signature import STEPS
from scoring.images.views import SignatureView

AT_ONCE = 65_536  # pairs refined at a time
SMALLEST = 0.68  # of each side: 70 % is promised, and 97 of 100 such parts that are found are measured as this or more
ROOM = 0.04  # the least promising pair that is refined to the end is this much short of the threshold
Signatures = NDArray[np.int8]


class PartOf:
    """Measures how well rows show a part of what other rows show, in any of the views requested.

    Two images that agree as they are count as well: by the 12 lowest frequencies of each axis, and with that cosine.
    Otherwise the similarity is the larger one of the best part of either image with the other.
    """

    def __init__(self, signatures: Signatures, threshold: float, views: tuple[SignatureView, ...]) -> None:
        self.signatures, self.threshold, self.views = signatures, threshold, views
        self.there = np.asarray(signatures.any(axis=1))

    def measured(self, query: NDArray[np.int64], signatures: Signatures, row: NDArray[np.int64]) -> Links:
        """Return the similarity of pairs of a row of other signatures, shape (Q, 255), and one of this table.

        With it come the view and the part that gave it; a pair with an image of nothing has 0.
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

    def likely(self, query: NDArray[np.int64], signatures: Signatures, row: NDArray[np.int64]) -> Links:
        """Return ``measured`` of pairs with a close frame, and 0 for the others, at a much lower cost."""
        best, seen = np.zeros(len(row), np.float32), np.zeros(len(row), np.int32)
        for number, view in enumerate(self.views):
            turned, undone = view.apply(signatures), view.undo(self.signatures)
            ways = (turned, query, self.signatures, row), (undone, row, signatures, query)
            if signatures is self.signatures and np.array_equal(turned, undone):  # frame each image once for both
                both = np.concatenate([query, row]), np.concatenate([row, query])
                both_ways = np.stack(coarse_fits(turned, both[0], signatures, both[1], least_cosine=LIKELY))
                fits = np.split(both_ways, 2, axis=1)
            else:
                fits = [np.stack(coarse_fits(*way, least_cosine=LIKELY)) for way in ways]
            near = np.flatnonzero(np.maximum(fits[0][0], fits[1][0]) >= LIKELY)
            plain = as_they_are(turned[query[near]], self.signatures[row[near]])
            alike = near[plain >= self._least]
            _raise(best, seen, alike, plain[plain >= self._least].astype(np.float32), np.full(len(alike), number))
            rest = np.ones(len(row), bool)
            rest[alike] = False
            better = np.maximum(LIKELY, np.maximum(fits[0][0], fits[1][0]))  # the other way fits no better in the end
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
                    _raise(best, seen, at[ok], fit.cosine[ok].astype(np.float32), looks)
        return Links(query, row, best, seen)

    def _measured(
        self, queried: Signatures, mine: Signatures, number: int, view: SignatureView
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int32]]]:
        """Yield the cosine and the look of pairs: as whole images, or as part of each other."""
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


def _large(edges: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which parts, (P, 4) in 256ths, are large enough: smaller ones fit by chance."""
    return np.asarray((edges[:, 1::2] - edges[:, 0::2] >= SMALLEST * STEPS).all(axis=1))


def _raise(
    best: NDArray[np.float32],
    seen: NDArray[np.int32],
    at: NDArray[np.int64],
    cosine: NDArray[np.float32],
    look: NDArray[np.int32],
) -> None:
    """Store the cosines and looks of pairs that are better than those stored."""
    better = cosine > best[at]
    best[at[better]], seen[at[better]] = cosine[better], look[better]
