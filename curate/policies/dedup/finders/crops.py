"""Rows of which one picture is a part of the other: crops, borders and letterboxes, by their signatures alone."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.links import Links, best_of, first_of, joined
from curate.policies.dedup.finders.looks import look_codes
from curate.tables.rows import Rows
from scoring.images.cropfit import STEPS, Refined, as_they_are, plain_cosines, refine
from scoring.images.crops import candidates
from scoring.images.views import View
from scoring.search import Recall

BLOCK = 2048  # rows on either side that are compared at once
FIRST_ASKED, FEWEST_ASKED = 1024, 64  # rows that ask at a time
MANY = 1_000_000  # pairs found, from which fewer rows ask at a time
AT_ONCE = 65_536  # pairs refined at a time
SECONDS_A_PAIR = 3e-6  # of two rows, in one view: 288 s for 10,000 photographs on two cores (docs/dedup.md)
SMALLEST = 0.68  # of each side: 70 % is promised, and 97 of 100 such parts that are found are measured as this or more
ROOM = 0.04  # the least promising pair that is refined to the end is this much short of the threshold
Signatures = NDArray[np.int8]


class PartOf:
    """Rows of which one shows a part of what the other shows, in any of the views asked for.

    Two pictures that agree as they are count as well: by the 12 lowest frequencies of each axis, and with that cosine.
    Otherwise the similarity is the larger one of the best part of either picture with the other.
    """

    higher = True
    recall: Recall | None = None
    notes: tuple[str, ...] = ()
    extent = (
        "every pair was compared coarsely, and those that came close were fitted; --estimate-recall tells what is lost"
    )

    def __init__(self, signatures: Signatures, threshold: float, views: tuple[View, ...]) -> None:
        self.signatures, self.threshold, self.views = signatures, threshold, views
        self.there = np.asarray(signatures.any(axis=1))

    def links(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row in ``rows`` and one that ``among`` marks."""
        found = self._found(rows, self.signatures[rows], among)
        return found.take(found.query != found.row)

    def first(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        """Return, of each row that ``among`` marks, the pair with the first of ``rows`` that finds it."""
        left = among.copy()
        parts: list[Links] = []
        at, size = 0, FIRST_ASKED
        while at < len(rows) and left.any():
            some = rows[at : at + size]
            found = self._found(np.arange(len(some)), self.signatures[some], left)
            n = len(found)
            found = first_of([found])
            left[found.row] = False
            parts.append(Links(some[found.query], found.row, found.similarity, found.view))
            at += size
            size = max(size // 4, FEWEST_ASKED) if n > MANY else min(2 * size, BLOCK)
        pairs = joined(parts)
        return pairs.take(pairs.query != pairs.row)

    def foreign(self, rows: Rows, among: NDArray[np.bool_], some: NDArray[np.int64] | None = None) -> Links:
        """Return every pair of a row of another table and one of this."""
        if rows.signature is None:
            raise ValueError("rows were read without signature")
        some = np.arange(len(rows)) if some is None else some
        return self._found(some, rows.signature[some], among)

    def measure(self, query: NDArray[np.int64], row: NDArray[np.int64]) -> Links:
        """Return the similarity of each pair, with the view and the part that gave it; 0 with a picture of nothing."""
        return self.measured(query, self.signatures, row)

    def measured(self, query: NDArray[np.int64], signatures: Signatures, row: NDArray[np.int64]) -> Links:
        """Return ``measure`` of pairs of a row of other signatures, shape (Q, 255), and one of this table."""
        best, seen = np.zeros(len(row), np.float32), np.zeros(len(row), np.int32)
        has = np.flatnonzero(signatures[query].any(1) & self.there[row])
        for start in range(0, len(has), AT_ONCE):
            here = has[start : start + AT_ONCE]
            asked, mine = signatures[query[here]], self.signatures[row[here]]
            for number, view in enumerate(self.views):
                for cosine, code in self._measured(asked, mine, number, view):
                    better = cosine > best[here]
                    best[here] = np.where(better, cosine, best[here])
                    seen[here] = np.where(better, code, seen[here])
        return Links(query, row, best, seen)

    def _measured(
        self, asked: Signatures, mine: Signatures, number: int, view: View
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int32]]]:
        """Yield the cosine and the look of pairs: as they are, or else as part of each other."""
        turned = view.apply(asked)
        plain = as_they_are(turned, mine).astype(np.float32)
        alike = plain >= self._least
        yield np.where(alike, plain, 0), np.full(len(plain), number, np.int32)
        rest = np.flatnonzero(~alike)
        for holds, whole, part in ((False, turned[rest], mine[rest]), (True, view.undo(mine[rest]), asked[rest])):
            fit = refine(whole, part)
            cosine, code = np.zeros(len(plain), np.float32), np.zeros(len(plain), np.int32)
            cosine[rest] = np.where(_large(fit.edges), fit.cosine, 0)
            code[rest] = look_codes(number, fit.edges, holds=holds)
            yield cosine, code

    @property
    def _least(self) -> np.float32:
        return np.float32(self.threshold)

    def _found(self, numbers: NDArray[np.int64], asked: Signatures, among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row that asks, under its number, and one that ``among`` marks."""
        queries, mine = np.flatnonzero(asked.any(1)), np.flatnonzero(among & self.there)
        parts: list[Links] = []
        for low in range(0, len(queries), BLOCK):
            some = queries[low : low + BLOCK]
            for start in range(0, len(mine), BLOCK):
                rows = mine[start : start + BLOCK]
                found = best_of(list(self._block(asked[some], self.signatures[rows])))
                parts.append(Links(numbers[some[found.query]], rows[found.row], found.similarity, found.view))
        return joined(parts)

    def _block(self, asked: Signatures, mine: Signatures) -> Iterator[Links]:
        """Yield what each view finds between few rows, by their places."""
        for number, view in enumerate(self.views):
            turned, undone = view.apply(asked), view.undo(mine)
            cosine = plain_cosines(turned, mine).astype(np.float32)
            alike = cosine >= self._least
            query, row = np.nonzero(alike)
            yield Links(query, row, cosine[alike], np.full(len(row), number, np.int32))
            for whole, part, fit in self._fitting(turned, mine, alike):
                yield Links(whole, part, fit.cosine.astype(np.float32), look_codes(number, fit.edges, holds=False))
            for whole, part, fit in self._fitting(undone, asked, alike.T):
                yield Links(part, whole, fit.cosine.astype(np.float32), look_codes(number, fit.edges, holds=True))

    def _fitting(
        self, wholes: Signatures, parts: Signatures, known: NDArray[np.bool_]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Refined]]:
        """Yield the candidates (whole, part), but those known, of which a frame reaches the threshold."""
        near = candidates(wholes, parts)
        new = ~known[near.whole, near.part]
        whole, part, frame = near.whole[new], near.part[new], near.frame[new]
        for start in range(0, len(whole), AT_ONCE):
            here = slice(start, start + AT_ONCE)
            fit = refine(wholes[whole[here]], parts[part[here]], frame[here], worth=self.threshold - ROOM)
            ok = (fit.cosine.astype(np.float32) >= self._least) & _large(fit.edges)
            yield whole[here][ok], part[here][ok], Refined(fit.cosine[ok], fit.edges[ok])


def _large(edges: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which parts, (P, 4) in 256ths, are as large as is promised: smaller ones fit what they do not show."""
    return np.asarray((edges[:, 1::2] - edges[:, 0::2] >= SMALLEST * STEPS).all(axis=1))
