"""Rows that people would call near-duplicates: pairs that lie close, verified by all that the table knows."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.crops import PartOf
from curate.policies.dedup.finders.links import Links, first_of, joined
from curate.policies.dedup.finders.surroundings import Side, Surroundings, nearest_of
from curate.policies.dedup.finders.verifier import FIRST, FITTED, WORTH, chance
from curate.tables.graph import Stored
from curate.tables.rows import Rows
from curate.tables.vectors import rows_of
from scoring.errors import InputError
from scoring.images.views import View
from scoring.search import Graph, Recall, knn_graph
from scoring.search.graph import MOST_NEIGHBOURS

BY_PICTURE = 8  # nearest rows by signature that are verified, beside the nearest by embedding
EXTENT = f"of each row the {MOST_NEIGHBOURS} nearest by embedding and {BY_PICTURE} by signature were verified"
ALIKE = 0.94  # cosine of whole pictures from which no part is looked for


class Verified:
    """Rows of which the verifier says that they are near-duplicates, with that chance or a higher one.

    Args:
        rows: with embedding and signature; those that lack either are the same as none.
        threshold: chance, 0 to 1.
        views: of a picture; the better one counts.
        stored: graph of the rows that have an embedding; or None.
    """

    higher = True
    extent = EXTENT
    notes: Sequence[object] = ()

    def __init__(self, rows: Rows, threshold: float, views: tuple[View, ...], stored: Stored | None = None) -> None:
        if rows.embedding is None or rows.signature is None:
            raise ValueError("rows were read without embedding or signature")
        self.vectors, self.signatures = rows.embedding, rows.signature
        self.threshold, self.views, self.ties = threshold, views, rows.hashes
        self.compared = rows.compared()
        self.there = np.zeros(len(rows), bool)
        self.there[self.compared] = True
        self.there &= np.asarray(rows.signature.any(1))
        self.stored = stored
        self.parts = PartOf(rows.signature, ALIKE, views)

    @cached_property
    def graph(self) -> Graph:
        """The nearest rows by embedding of those that have one, by their place among these."""
        return self.stored.graph if self.stored is not None else _graph(self.vectors, self.compared, self.ties)

    @cached_property
    def surroundings(self) -> Surroundings:
        """The heap around the rows."""
        return Surroundings(self.vectors, self.signatures, self.compared, self.graph.index, self.views)

    @property
    def recall(self) -> Recall:
        """What share of the nearest neighbours by embedding was looked at."""
        return self.graph.recall

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.int64], Links]:
        """Return where the pairs of each row start, and every pair both ways."""
        found = self._verified(*self.candidates())
        both = joined([found, self._turned(found)])
        both = both.take(np.lexsort((both.row, both.query)))
        return np.searchsorted(both.query, np.arange(len(self.there) + 1)), both

    def candidates(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the pairs that are verified, each once, the lower row first."""
        pictured = np.flatnonzero(self.there)
        by_picture = _graph(self.signatures, pictured, self.ties, BY_PICTURE)
        n, codes = len(self.there), [np.zeros(0, np.int64)]
        for at, index in ((self.compared, self.graph.index), (pictured, by_picture.index)):
            one, column = np.nonzero(index >= 0)
            a, b = at[one], at[index[one, column]]
            some = self.there[a] & self.there[b]
            codes.append(np.minimum(a, b)[some] * n + np.maximum(a, b)[some])
        pairs = np.unique(np.concatenate(codes))
        return np.divmod(pairs, n) if n else (pairs, pairs)

    def links(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row in ``rows`` and one that ``among`` marks."""
        starts, pairs = self._pairs
        counts = starts[rows + 1] - starts[rows]
        at = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - starts[rows], counts)
        return pairs.take(at[among[pairs.row[at]]])

    def first(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        """Return, of each row that ``among`` marks, the pair with the first of ``rows`` that finds it."""
        place = np.full(len(self.there), len(rows))
        place[rows] = np.arange(len(rows))
        found = self.links(rows, among)
        found = first_of([Links(place[found.query], found.row, found.similarity, found.view)])
        found = found.take(found.query < place[found.row])
        return Links(rows[found.query], found.row, found.similarity, found.view)

    def foreign(self, rows: Rows, among: NDArray[np.bool_], some: NDArray[np.int64] | None = None) -> Links:
        """Return every pair of a row of another table and one of this: of the nearest, by all rows of this table."""
        if rows.embedding is None or rows.signature is None:
            raise ValueError("rows were read without embedding or signature")
        mine = np.flatnonzero(self.there)
        theirs = rows.compared()
        theirs = theirs[rows.signature[theirs].any(1)]
        theirs = theirs if some is None else np.intersect1d(some, theirs)
        if not len(mine) or not len(theirs):
            return joined([])
        if rows.embedding.shape[1] != self.vectors.shape[1]:
            raise InputError(
                f"expected embeddings of {self.vectors.shape[1]} numbers in both tables, got {rows.embedding.shape[1]} "
                "in the other; score both with one model"
            )
        vectors, signatures = rows.embedding[theirs], rows.signature[theirs]
        near = mine[nearest_of(vectors, rows_of(self.vectors, mine), MOST_NEIGHBOURS)]
        alike = mine[nearest_of(signatures, self.signatures[mine], BY_PICTURE)]
        side = self.surroundings.other(vectors, signatures, near)
        each = np.concatenate([near, alike], axis=1)
        codes = np.arange(len(theirs))[:, None] * len(self.there) + each
        query, row = np.divmod(np.unique(codes[among[each]]), len(self.there))  # a row may be near in both ways
        found = self._verified(query, row, side)
        return Links(theirs[found.query], found.row, found.similarity, found.view)

    def measure(self, query: NDArray[np.int64], row: NDArray[np.int64]) -> Links:
        """Return the chance of each pair; 0 where a row lacks what is compared."""
        has = np.flatnonzero(self.there[query] & self.there[row])
        odds, view = self._odds(query[has], row[has], self.surroundings.side)
        similarity, seen = np.zeros(len(row), np.float32), np.zeros(len(row), np.int32)
        similarity[has], seen[has] = chance(odds), view
        return Links(query, row, similarity, seen)

    def _verified(self, query: NDArray[np.int64], row: NDArray[np.int64], side: Side | None = None) -> Links:
        """Return the pairs that reach the threshold, of rows of a side, or of this table, and rows of this."""
        odds, view = self._odds(query, row, side or self.surroundings.side)
        similarity = chance(odds).astype(np.float32)
        return Links(query, row, similarity, view).take(similarity >= np.float32(self.threshold))

    def _odds(
        self, query: NDArray[np.int64], row: NDArray[np.int64], side: Side
    ) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Return log odds and views of pairs; parts are fitted only where that may change what is said."""
        evidence, seen = self.surroundings.evidence(side, query, self.surroundings.side, row)
        odds, view = FIRST.log_odds(evidence), seen.astype(np.int32)
        may = np.flatnonzero(chance(odds) >= WORTH)
        fit = self.parts.measured(query[may], side.signatures, row[may])
        again = FITTED.log_odds(evidence.take(may), fit.similarity.astype(np.float64))
        surer = (
            again >= odds[may]
        )  # the surer one counts: a fit of parts must not doubt pictures that agree as they are
        odds[may[surer]], view[may[surer]] = again[surer], fit.view[surer]
        return odds, view

    def _turned(self, links: Links) -> Links:
        """Return pairs the other way round, which is as good a match, by the look from there."""
        view = self.parts.measured(links.row, self.signatures, links.query).view
        return Links(links.row, links.query, links.similarity, view)


def _graph(vectors: NDArray, at: NDArray[np.int64], ties: NDArray[np.uint64], k: int = MOST_NEIGHBOURS) -> Graph:
    """Return the graph of some rows by their place in ``at``; the same whatever the order of the rows."""
    order = np.argsort(ties[at], kind="stable")
    found = knn_graph(rows_of(vectors, at[order]), max(1, min(k, len(at) - 1)))
    index = np.full(found.index.shape, -1, np.int32)
    cosine = np.full(found.cosine.shape, -np.inf, np.float32)
    index[order] = np.append(order, -1)[found.index]
    cosine[order] = found.cosine
    return Graph(index, cosine, found.recall)
