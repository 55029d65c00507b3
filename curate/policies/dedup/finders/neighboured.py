"""Rows whose embeddings are close, read from a graph of nearest neighbours that is there already.

A row's list is complete where its last neighbour is too far off to be the same, or where there is no further row: then
no pair of that row is missing. Only rows whose every neighbour reaches the threshold may have more of them than the
list holds, and a pair that no list holds is one of two such rows. So what the graph cannot know is searched for among
these rows alone.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.links import Links, first_of, joined
from curate.policies.dedup.finders.searches import EVERY_PAIR, NearVector, Search, cosine_index
from curate.tables.graph import Stored
from curate.tables.rows import Rows
from curate.tables.vectors import rows_of
from scoring.search.links import TIE, Recall, rounded

if TYPE_CHECKING:
    from scoring.search.cosine import CosineIndex
    from scoring.search.few import FewCosines

SLACK = 1e-5  # by so much the cosines of a graph may be wrong
BLOCK = 65_536  # rows of the graph at a time
PAIRS = 16_384  # pairs measured at a time


class NearGraph(Search):
    """Rows whose embeddings have a cosine of at least a threshold, by the graph of their nearest neighbours.

    What ``NearVector`` finds, from what the graph knows; cosines are measured again in float64, so that decisions at
    the threshold are the same. Rows that the graph has not are the same as none.

    Args:
        vectors: shape (N, D).
        threshold: cosine.
        stored: graph of M of the rows.
        at: row of each, ascending, shape (M,).
        ties: hashes of the keys, shape (N,); what is found must not depend on the place of a row.
    """

    higher = True

    def __init__(
        self, vectors: NDArray, threshold: float, stored: Stored, at: NDArray[np.int64], ties: NDArray[np.uint64]
    ) -> None:
        self.vectors, self.threshold, self.ties = vectors, threshold, ties
        self.path, self._of_graph = stored.path, stored.graph.recall
        many = stored.reach >= threshold - SLACK
        self.many = at[many]  # rows that may have more links than neighbours, shape (S,)
        self._place = np.full(len(vectors), -1, np.int64)  # among those
        self._place[self.many] = np.arange(len(self.many))
        first, other = _listed(stored, threshold, many)
        self._starts, self._other, self._cosine = self._both_ways(at[first], at[other])

    @cached_property
    def without_graph(self) -> NearVector:
        """The search that does without a graph: its index is built if another table asks."""
        return NearVector(self.vectors, self.threshold, "embedding", ties=self.ties)

    @cached_property
    def index(self) -> "FewCosines | CosineIndex":
        """The index of the rows that may have more links than neighbours."""
        return cosine_index(rows_of(self.vectors, self.many), self.threshold, self.ties[self.many])

    @property
    def recall(self) -> Recall:
        """Share of the nearest neighbours that the graph has: where it has all, searches are exact too."""
        return self._of_graph

    @property
    def words(self) -> str:
        """How much is found where the graph has not all neighbours."""
        said = [
            f"{of} {recall.estimate:.2%} of the {what} [{recall.low:.2%}, {recall.high:.2%}]"
            for of, what, recall in self._recalls()
            if not recall.exact and recall.n_pairs
        ]
        return "; ".join(said) or "by the graph; the sampled rows have no neighbour to measure by"

    def _recalls(self) -> Iterator[tuple[str, str, Recall]]:
        yield "by the graph, which has", "nearest neighbours", self._of_graph
        if "index" in self.__dict__:
            yield "among rows of many links searched in clusters, which find", "pairs", self.index.recall
        if "without_graph" in self.__dict__ and "index" in self.without_graph.__dict__:
            yield "for the other table searched in clusters, which find", "pairs", self.without_graph.index.recall

    @property
    def extent(self) -> str:
        """How much is compared."""
        return EVERY_PAIR

    @property
    def notes(self) -> tuple[str, ...]:
        """How many rows have pairs that are searched for, if there are any."""
        many = f"{len(self.many):,} rows may have more links than {self.path} lists neighbours"
        return (f"{many}: pairs of two such rows are searched for",) if len(self.many) else ()

    def links(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row in ``rows`` and one that ``among`` marks."""
        return self._places_with(rows, among).of_rows(rows)

    def first(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        """Return, of each row that ``among`` marks, the pair with the first of ``rows`` that finds it."""
        place_in_rows = np.full(len(self.vectors), len(rows))
        place_in_rows[rows] = np.arange(len(rows))
        links = self._places_with(rows, among, first=True)
        return first_of([links.take(links.query <= place_in_rows[links.row])]).of_rows(rows)

    def foreign(self, rows: Rows, among: NDArray[np.bool_], some: NDArray[np.int64] | None = None) -> Links:
        """Return every pair of a row of another table, which the graph knows nothing of, and one of this."""
        return self.without_graph.foreign(rows, among, some)

    def measure(self, query: NDArray[np.int64], row: NDArray[np.int64]) -> Links:
        """Return the cosine of each pair; 0 where one has no vector."""
        return self.without_graph.measure(query, row)

    def _both_ways(
        self, first: NDArray[np.int64], other: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """Return the links of each row, from pairs that are each given once: where they start, other rows, cosines."""
        cosine = self._cosines(first, other)
        close = cosine >= self.threshold - TIE
        first, other, near = first[close], other[close], rounded(cosine[close], self.threshold)
        query, row = np.concatenate([first, other]), np.concatenate([other, first])
        order = np.lexsort((row, query))
        starts = np.searchsorted(query[order], np.arange(len(self.vectors) + 1))
        return starts, row[order].astype(np.int32), np.concatenate([near, near])[order]

    def _cosines(self, first: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the cosines of pairs, in float64 from the values as stored, shape (P,)."""
        cosine = np.empty(len(first))
        for start in range(0, len(first), PAIRS):
            part = slice(start, start + PAIRS)
            left, right = (self.vectors[rows[part]].astype(np.float64) for rows in (first, other))
            squares = np.einsum("pd,pd->p", left, left) * np.einsum("pd,pd->p", right, right)
            cosine[part] = np.einsum("pd,pd->p", left, right) / np.sqrt(squares)
        return np.minimum(cosine, 1)

    def _places_with(self, rows: NDArray[np.int64], among: NDArray[np.bool_], *, first: bool = False) -> Links:
        """Return the pairs of places in ``rows`` and rows; those that are searched for hold a row with itself too.

        With ``first``, of those that are searched for only the first of each row.
        """
        parts = [self._listed_links(rows, among)]
        asking = np.flatnonzero(self._place[rows] >= 0)
        if len(asking):
            near = self.index.search_rows(self._place[rows[asking]], among[self.many], first=first)
            seen = np.zeros(len(near), np.int8)
            parts.append(Links(asking[near.query], self.many[near.row], near.similarity, seen))
        return joined(parts)

    def _listed_links(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        counts = self._starts[rows + 1] - self._starts[rows]
        query = np.repeat(np.arange(len(rows)), counts)
        place = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts - self._starts[rows], counts)
        open_ = among[self._other[place]]
        query, place = query[open_], place[open_]
        return Links(query, self._other[place].astype(np.int64), self._cosine[place], np.zeros(len(query), np.int8))


def _listed(stored: Stored, threshold: float, many: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs of a graph's rows that may reach a threshold, each once.

    Pairs of two rows that may both have more links than neighbours are left out: the search finds them.
    """
    n, codes = len(many), [np.zeros(0, np.int64)]
    for start in range(0, n, BLOCK):
        index, cosine = stored.graph.index[start : start + BLOCK], stored.graph.cosine[start : start + BLOCK]
        at, column = np.nonzero((index >= 0) & (cosine >= threshold - SLACK))
        first, other = at + start, index[at, column].astype(np.int64)
        kept = ~(many[first] & many[other])
        first, other = first[kept], other[kept]
        codes.append(np.unique(np.minimum(first, other) * n + np.maximum(first, other)))
    pairs = np.unique(np.concatenate(codes))
    return np.divmod(pairs, n) if n else (pairs, pairs)
