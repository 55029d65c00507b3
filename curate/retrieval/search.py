"""Search of the nearest rows, and of all rows within a region, among any number of rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scoring.errors import InputError
from scoring.search.graph import NearestSearch, choose_lists
from scoring.search.inverted import InvertedLists, list_centroids
from scoring.search.links import Links, Recall
from scoring.search.rows import Vectors

EXACT_ROWS = 50_000  # up to here every query is compared with every row
EXACT_PAIRS = 20_000_000_000  # also up to this many pairs, for which lists cost more than they save
AIMED_RECALL = 0.99  # share of the neighbours that the choice of lists aims at
QUERIES = 4096  # at a time
MOST_PAIRS = 10_000_000  # maximal number of returned pairs


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        links: pairs of a query and a row, by query, nearest first.
        inside: number of rows in the region of each query, shape (Q,); without regions the number returned.
        recall: share of the true neighbours that were found.
    """

    links: Links
    inside: NDArray[np.int64]
    recall: Recall


class TableSearch:
    """The rows of a table that may be found.

    Args:
        vectors: of the table, shape (N, D).
        among: mask of the searched rows, shape (N,).
        seed: of inverted lists.
    """

    def __init__(self, vectors: Vectors, among: NDArray[np.bool_], *, seed: int) -> None:
        self.vectors, self.among, self.seed = vectors, among, seed
        self._everything = NearestSearch(vectors, InvertedLists(np.where(among, 0, -1).astype(np.int32), 1))

    def nearest(self, queries: Vectors, excluded: NDArray[np.int64], k: int) -> SearchResult:
        """Return the k rows nearest to each query, shape (Q, D); ``excluded`` (Q,) is its own row or -1."""
        k = min(k, int(self.among.sum()))
        if len(queries) * k > MOST_PAIRS:
            raise InputError(
                f"{len(queries):,} queries with {k:,} rows each are more than {MOST_PAIRS:,} answers; lower "
                "--top, or pass fewer queries"
            )
        search, probes, recall = self._everything, None, Recall.of_everything()
        n_rows = int(self.among.sum())
        if n_rows > EXACT_ROWS and n_rows * len(queries) > EXACT_PAIRS:
            search, probes, recall = self._listed(k)
        parts = []
        for start in range(0, len(queries), QUERIES):
            block = slice(start, start + QUERIES)
            index, cosine = search.neighbours_of(queries[block], excluded[block], k, probes)
            query, place = np.nonzero(index >= 0)
            parts.append((query + start, index[query, place].astype(np.int64), cosine[query, place]))
        links = Links(*(np.concatenate([part[at] for part in parts]) for at in range(3)))
        return SearchResult(links, np.bincount(links.query, minlength=len(queries)), recall)

    def within(
        self, queries: Vectors, excluded: NDArray[np.int64], bounds: NDArray[np.float64], top: int | None
    ) -> SearchResult:
        """Return the rows whose cosine with a query reaches its bound, shape (Q,): all, or the nearest ``top``.

        Raises InputError for too many rows.
        """
        parts, inside, left = [], [], MOST_PAIRS
        for start in range(0, len(queries), QUERIES):
            block = slice(start, start + QUERIES)
            links = self._everything.within(queries[block], excluded[block], bounds[block], 4 * MOST_PAIRS)
            if links is not None:
                count = np.bincount(links.query, minlength=len(excluded[block]))
                place = np.arange(len(links)) - np.repeat(np.cumsum(count) - count, count)
                keep = place < (top if top is not None else len(self.among))
                left -= int(keep.sum())
            if links is None or left < 0:
                raise InputError(
                    f"the regions hold more than {MOST_PAIRS:,} rows together; lower --credible, set --top, "
                    "or pass fewer queries"
                )
            inside.append(count)
            parts.append((links.query[keep] + start, links.row[keep], links.similarity[keep]))
        links = Links(*(np.concatenate([part[at] for part in parts]) for at in range(3)))
        return SearchResult(links, np.concatenate(inside), Recall.of_everything())

    def _listed(self, k: int) -> tuple[NearestSearch, int, Recall]:
        """Return the inverted lists of rows, how many to search, and the recall on sampled rows."""
        rows = np.flatnonzero(self.among)
        centroids = list_centroids(self.vectors, exact_rows=EXACT_ROWS, seed=self.seed, order=None)
        if centroids is None:
            raise ValueError(f"lists are for more than {EXACT_ROWS} rows, got {len(rows)}")
        lists = InvertedLists.by_centroids(self.vectors, centroids)
        lists = InvertedLists(np.where(self.among, lists.home, -1).astype(np.int32), lists.n_lists, lists.centroids)
        search = NearestSearch(self.vectors, lists)
        probes, recall = choose_lists(search, k, AIMED_RECALL, self.seed)
        return search, probes, recall
