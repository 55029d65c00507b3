"""Base class of finders that check pairs of close embeddings or signatures."""

from abc import abstractmethod
from copy import copy
from functools import cached_property
from typing import ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from curate.columns import EMBEDDING, SIGNATURE
from curate.policies.dedup.finders.links import Links, first_of, joined, mask_of
from curate.policies.dedup.finders.looks import turned_codes
from curate.policies.dedup.finders.searches import Search
from curate.policies.dedup.finders.surroundings import nearest_of
from curate.policies.dedup.options import Progress
from curate.tables.rows import Rows
from curate.tables.vectors import rows_of
from scoring.arrays import Array, Ints, Mask
from scoring.errors import InputError
from scoring.images.signature import SignatureView
from scoring.search.few import FEW, few_neighbours
from scoring.search.links import MOST_NEIGHBOURS, Graph, Recall

Side = TypeVar("Side")


class NearPairs(Search, Generic[Side]):
    """A finder of rows close by embedding or signature, with a similarity from ``judge``.

    Args:
        rows: with embedding and signature; rows without either are never linked.
        threshold: minimal similarity of copies.
        views: of an image; the most similar one is used.
    """

    n_nearest: ClassVar[int] = MOST_NEIGHBOURS  # nearest rows by embedding to check
    n_alike: ClassVar[int] = 8  # nearest rows by signature to check too

    def __init__(self, rows: Rows, threshold: float, views: tuple[SignatureView, ...]) -> None:
        self.vectors, self.signatures = rows.array(EMBEDDING), rows.array(SIGNATURE)
        self.threshold, self.views, self.ties = threshold, views, rows.hashes
        self.report: Progress = lambda done, total: None
        self.compared = rows.compared()
        self.there = mask_of(self.compared, len(rows)) & self.signatures.any(1)

    @property
    @abstractmethod
    def side(self) -> Side:
        """The rows of this table, for ``judge``."""

    @abstractmethod
    def other(self, vectors: Array, signatures: NDArray[np.int8], near: Ints) -> Side:
        """Return rows of another table, for ``judge``; ``near`` are the nearest rows of this table."""

    @abstractmethod
    def judge(self, query: Ints, row: Ints, side: Side) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Return the similarities and codes of pairs of a row of a side and a row of this table."""

    @cached_property
    def graph(self) -> Graph:
        """The nearest rows by embedding, as indices among rows with one."""
        return _graph(self.vectors, self.compared, self.ties, self.n_nearest)

    @property
    def extent(self) -> str:
        """A text on which pairs are compared."""
        alike = f" and {self.n_alike} by signature" if self.n_alike else ""
        return f"the {self.n_nearest} nearest rows of each row by embedding{alike} were judged"

    @property
    def recall(self) -> Recall:
        """Share of the nearest neighbours by embedding that were compared."""
        return self.graph.recall

    def prepare(self, report: Progress) -> None:
        """Judge all candidates before the first query, calling ``report`` with the numbers of done and all steps."""
        self.report = report
        len(self._pairs)

    @cached_property
    def _pairs(self) -> tuple[Ints, Links]:
        """Return the first pair of each row, and all pairs in both directions."""
        pairs = self._judged(*self.candidates())
        both = joined([pairs, self._turned(pairs)])
        both = both.take(np.lexsort((both.row, both.query)))
        return np.searchsorted(both.query, np.arange(len(self.there) + 1)), both

    def candidates(self) -> tuple[Ints, Ints]:
        """Return the pairs to check, each once, the lower row first."""
        near = [(self.compared, self.graph.index[:, : self.n_nearest])]
        if self.n_alike:
            pictured = np.flatnonzero(self.there)
            near.append((pictured, _graph(self.signatures, pictured, self.ties, self.n_alike).index))
        n, codes = len(self.there), [np.zeros(0, np.int64)]
        for at, index in near:
            place, column = np.nonzero(index >= 0)
            a, b = at[place], at[index[place, column]]
            some = self.there[a] & self.there[b]
            codes.append(np.minimum(a, b)[some] * n + np.maximum(a, b)[some])
        pairs = np.unique(np.concatenate(codes))
        return np.divmod(pairs, n) if n else (pairs, pairs)

    def links(self, rows: Ints, among: Mask) -> Links:
        """Return the pairs of a row in ``rows`` and a row in the mask ``among``."""
        starts, pairs = self._pairs
        counts = starts[rows + 1] - starts[rows]
        at = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - starts[rows], counts)
        return pairs.take(at[among[pairs.row[at]]])

    def first(self, rows: Ints, among: Mask) -> Links:
        """Return, for each row in the mask ``among``, the pair with the first of ``rows`` that matches it."""
        place = np.full(len(self.there), len(rows))
        place[rows] = np.arange(len(rows))
        links = self.links(rows, among)
        links = first_of([Links(place[links.query], links.row, links.similarity, links.view)])
        return links.take(links.query < place[links.row]).of_rows(rows)

    def foreign(self, rows: Rows, among: Mask, some: Ints | None = None) -> Links:
        """Return the pairs of a row of another table and one of its nearest rows of this table."""
        embeddings, looks = rows.array(EMBEDDING), rows.array(SIGNATURE)
        mine = np.flatnonzero(self.there)
        other_rows = rows.compared()
        other_rows = other_rows[looks[other_rows].any(1)]
        other_rows = other_rows if some is None else np.intersect1d(some, other_rows)
        if not len(mine) or not len(other_rows):
            return joined([])
        if embeddings.shape[1] != self.vectors.shape[1]:
            raise InputError(
                f"expected embeddings of {self.vectors.shape[1]} numbers in both tables, got {embeddings.shape[1]} "
                "in the other; score both with one model"
            )
        vectors, signatures = embeddings[other_rows], looks[other_rows]
        near = mine[nearest_of(vectors, rows_of(self.vectors, mine), self.n_nearest)]
        side = self.other(vectors, signatures, near)
        each = np.concatenate([near, mine[nearest_of(signatures, self.signatures[mine], self.n_alike)]], axis=1)
        codes = np.arange(len(other_rows))[:, None] * len(self.there) + each
        query, row = np.divmod(np.unique(codes[among[each]]), len(self.there))  # a row may be near by both
        links = self._judged(query, row, side)
        return Links(other_rows[links.query], links.row, links.similarity, links.view)

    def measure(self, query: Ints, row: Ints) -> Links:
        """Return the similarity of each pair; 0 if a row lacks the compared column."""
        has = np.flatnonzero(self.there[query] & self.there[row])
        similarity, seen = np.zeros(len(row), np.float32), np.zeros(len(row), np.int32)
        similarity[has], seen[has] = self.judge(query[has], row[has], self.side)
        return Links(query, row, similarity, seen)

    def _judged(self, query: Ints, row: Ints, side: Side | None = None) -> Links:
        """Return the pairs of a side's rows (or this table's) with rows of this table that reach the threshold."""
        similarity, view = self.judge(query, row, self.side if side is None else side)
        return Links(query, row, similarity, view).take(similarity >= np.float32(self.threshold))

    def _turned(self, links: Links) -> Links:
        """Return pairs with query and row exchanged, and the view inverted."""
        return Links(links.row, links.query, links.similarity, turned_codes(links.view, self.views))

    def stricter(self, threshold: float) -> Self:
        """Return the same finder for an equal or higher threshold, without checking pairs again."""
        other = copy(self)
        other.threshold = threshold
        _, pairs = self._pairs
        pairs = pairs.take(pairs.similarity >= np.float32(threshold))
        other.__dict__["_pairs"] = np.searchsorted(pairs.query, np.arange(len(self.there) + 1)), pairs
        return other


def _graph(vectors: Array, at: Ints, ties: NDArray[np.uint64], k: int) -> Graph:
    """Return the neighbour graph of the rows ``at``, independent of the row order."""
    order = np.argsort(ties[at], kind="stable")
    if len(at) <= FEW:
        nearest = few_neighbours
    else:
        from scoring.search.graph import knn_graph as nearest
    graph = nearest(rows_of(vectors, at[order]), max(1, min(k, len(at) - 1)))
    index = np.full(graph.index.shape, -1, np.int32)
    cosine = np.full(graph.cosine.shape, -np.inf, np.float32)
    index[order] = np.append(order, -1)[graph.index]
    cosine[order] = graph.cosine
    return Graph(index, cosine, graph.recall)
