"""Search for the k nearest other rows of every row, among any number of rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.metrics.nearest_so_far import NearestSoFar
from scoring.metrics.neighbours import nearest
from scoring.search.cosine import MOST_PROBES, ProbeCounts, choose
from scoring.search.inverted import ITERATIONS, InvertedLists, Spans, list_centroids
from scoring.search.kmeans import Centroids, assign, spherical_kmeans
from scoring.search.links import MOST_NEIGHBOURS, Graph, Links, Recall
from scoring.search.rows import Vectors, check_vectors, inverse_lengths, unit_rows, units_float32
from scoring.tasks import Shared, cuts, tasks_for

PRODUCTS = 8_388_608  # cosines at a time: 32 MB
CLOSE = 2e-6  # cosines nearer than this may be in the wrong order after a float32 product
SLACK = 4  # additional neighbours kept for nearly equal cosines
AT_ONCE = 8192  # pairs per block of exact cosines
SAMPLE = 512  # sampled rows: one half for the choice, the other for the recall
QUERIES = 16_384  # rows per block, in the order of the lists


class NearestSearch:
    """Finds nearest rows in inverted lists; rows are read from storage on demand.

    Args:
        vectors: shape (N, D).
        lists: the inverted lists of the rows.
        inverse: ``inverse_lengths`` of the rows, if known.
    """

    def __init__(self, vectors: Vectors, lists: InvertedLists, inverse: NDArray[np.float64] | None = None) -> None:
        self.vectors, self.lists = vectors, lists
        self.inverse = inverse_lengths(vectors) if inverse is None else inverse

    def _unit(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return rows at length 1, shape (B, D)."""
        return units_float32(self.vectors, self.inverse, rows)

    def probed(self, rows: NDArray[np.int64], probes: int) -> NDArray[np.int64]:
        """Return the lists nearest to rows, shape (B, probes), starting with a row's own list."""
        return self.lists.probed(unit_rows(self.vectors[rows], numbers=rows).units, probes)

    def neighbours(
        self, rows: NDArray[np.int64], k: int, probes: int | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the k nearest other rows of rows (B,), and their cosines, (B, k) each; ``probes`` None: all lists."""
        probed = None if probes is None else self.probed(rows, probes)
        return self._nearest(torch.from_numpy(self._unit(rows)), rows, probed, k)

    def neighbours_of(
        self, queries: Vectors, excluded: NDArray[np.int64], k: int, probes: int | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the rows nearest to queries (any vectors) and their cosines, shape (Q, k) each.

        Args:
            queries: shape (Q, D), of any length.
            excluded: the row to exclude for each query, -1 for none; shape (Q,).
            k: number of neighbours; missing ones are -1 with a cosine of -inf.
            probes: number of lists that each query searches; None for all.
        """
        probed = None if probes is None else self.lists.probed(unit_rows(queries).units, probes)
        return self._nearest(query_units(queries), excluded, probed, k)

    def within(
        self, queries: Vectors, excluded: NDArray[np.int64], bounds: NDArray[np.float64], most: int
    ) -> Links | None:
        """Return every row, in all lists, whose cosine with a query reaches the query's bound.

        Args:
            queries: shape (Q, D), of any length.
            excluded: as in ``neighbours_of``.
            bounds: minimal cosine of each query, shape (Q,).
            most: maximal number of links; None is returned if there are more.

        Returns:
            Links by query, the nearest first and ties by row; cosines computed in float64.
        """
        unit, numbers = query_units(queries), np.arange(len(queries))
        parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]] = []
        total = 0
        for begin, end, _ in self.lists.everything(numbers):
            members = self.lists.order[begin:end]
            step = max(1, PRODUCTS // max(1, len(unit)))
            for start in range(0, len(members), step):
                some = members[start : start + step]
                cosine = (unit @ torch.from_numpy(self._unit(some)).T).numpy()
                query, place = np.divmod(np.flatnonzero(cosine >= (bounds - CLOSE)[:, None]), len(some))
                other = excluded[query] != some[place]
                query, row = query[other], some[place[other]]
                exact = self._exact(unit, query, row)
                inside = exact >= bounds[query]
                parts.append((query[inside], row[inside], exact[inside]))
                total += int(inside.sum())
                if total > most:
                    return None
        query, row, exact = (np.concatenate([part[at] for part in parts] or [numbers[:0]]) for at in range(3))
        order = np.lexsort((row, -exact, query))
        return Links(query[order], row[order], exact[order].clip(max=1).astype(np.float32))

    def _exact(self, unit: Tensor, query: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the cosines of pairs of a query and a row in float64, shape (P,)."""
        cosines = np.empty(len(query))
        for start in range(0, len(query), AT_ONCE):
            block = slice(start, start + AT_ONCE)
            stored = torch.from_numpy(self._unit(row[block])).double()
            asking = unit.index_select(0, torch.from_numpy(query[block])).double()
            cosines[block] = torch.einsum("pd,pd->p", stored, asking).numpy()
        return cosines

    def _nearest(
        self, unit: Tensor, excluded: NDArray[np.int64], probed: NDArray[np.int64] | None, k: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the nearest rows of unit rows (B, D) in the lists searched (B, P), or in all, shape (B, k) each.

        The nearest list of each is searched first. It gives a bound that few rows of the other lists exceed, and only
        these are sorted.
        """
        nearest = NearestSoFar(excluded, k + SLACK)
        for begin, end, looking in self._spans(len(unit), probed):
            members, queries = self.lists.order[begin:end], unit.index_select(0, torch.from_numpy(looking))
            step = max(1, PRODUCTS // max(1, len(looking)))
            for start in range(0, len(members), step):
                some = members[start : start + step]
                nearest.update(looking, some, queries @ torch.from_numpy(self._unit(some)).T)
        return self._exact_best(unit, *nearest.result(), k)

    def _spans(self, n: int, probed: NDArray[np.int64] | None) -> Spans:
        """Return the positions that each of n rows searches, nearest lists first."""
        numbers = np.arange(n)
        if probed is None:
            return self.lists.everything(numbers)
        return self.lists.spans(numbers, probed[:, :1]) + self.lists.spans(numbers, probed[:, 1:])

    def _exact_best(
        self, unit: Tensor, best: Tensor, index: Tensor, k: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the best k; nearly equal cosines are computed again in float64, ties by row index."""
        near = ((best[:, :-1] - best[:, 1:]) < CLOSE) & (index[:, 1:] >= 0)
        close = torch.zeros_like(index, dtype=torch.bool)
        close[:, :-1] |= near
        close[:, 1:] |= near
        query, place = close.nonzero(as_tuple=True)
        for start in range(0, len(query), AT_ONCE):
            block = slice(start, start + AT_ONCE)
            stored = torch.from_numpy(self._unit(index[query[block], place[block]].numpy())).double()
            exact = torch.einsum("pd,pd->p", stored, unit.index_select(0, query[block]).double())
            best[query[block], place[block]] = exact.float()
        some = near.any(1).nonzero().flatten()
        row = torch.where(index[some] < 0, len(self.vectors), index[some])
        by_row = row.argsort(dim=1, stable=True)
        order = by_row.gather(1, best[some].gather(1, by_row).argsort(dim=1, descending=True, stable=True))
        best[some], index[some] = best[some].gather(1, order), index[some].gather(1, order)
        return index[:, :k].numpy().astype(np.int32), best[:, :k].clamp(max=1).numpy()


def query_units(queries: Vectors) -> Tensor:
    """Return queries at unit length, shape (Q, D), float32; zero rows stay zero."""
    return torch.from_numpy(units_float32(queries, inverse_lengths(queries), np.arange(len(queries))))


def knn_graph(vectors: Vectors, k: int, *, exact_rows: int = 50_000, recall: float = 0.99, seed: int = 0) -> Graph:
    """Return the k rows with the highest cosine to each row, without itself.

    Up to ``exact_rows`` rows, all pairs are compared; nearly equal cosines are computed again in float64, and ties go
    to the lower row. Above, a row is compared with the rows of the few inverted lists nearest to it; the number of
    lists is chosen, and the recall measured, on a random sample. Zero rows have no neighbours and are no neighbours of
    others.

    Memory: 8 N k bytes for the graph, and 4 N D bytes for an exact search; blocks in addition.

    Args:
        vectors: shape (N, D), float16, float32 or int8, of any length; may be a memory map.
        k: number of neighbours, 1 to 64; missing ones are -1.
        exact_rows: maximal number of rows for an exact search.
        recall: target share of neighbours for the choice of probes, in (0, 1).
        seed: of the lists and of the sample.

    Raises:
        ValueError: if an argument is out of range, or a row holds NaN or infinity; names the row.
    """
    check_vectors(vectors)
    if not 1 <= k <= MOST_NEIGHBOURS or not 0 < recall < 1:
        raise ValueError(f"k must be between 1 and {MOST_NEIGHBOURS} and recall in (0, 1), got {k} and {recall}")
    centroids = list_centroids(vectors, exact_rows=exact_rows, seed=seed)
    if centroids is None:
        return _exact_graph(vectors, k)
    lists = InvertedLists.by_centroids(vectors, _sorted_by_similarity(centroids, seed))
    index = np.full((len(vectors), k), -1, np.int32)
    cosine = np.full((len(vectors), k), -np.inf, np.float32)
    if not len(lists.rows):
        return Graph(index, cosine, Recall.of_everything())
    search = NearestSearch(vectors, lists)
    probes, measured = choose_lists(search, k, recall, seed)
    for rows, near, value in _neighbours_of_all(search, k, probes):
        index[rows], cosine[rows] = near, value
    return Graph(index, cosine, measured)


@dataclass(frozen=True)
class Neighbouring:
    """A task: the k nearest rows of the rows at positions ``start`` to ``stop`` of the lists.

    Attributes:
        vectors: of the table, shape (N, D).
        inverse: one over the length of each row, shape (N,).
        home: as in ``InvertedLists``.
        centroids: of the lists.
        order: as in ``InvertedLists``.
        start: first position in ``InvertedLists.rows``.
        stop: end of the positions.
        k: number of neighbours.
        probes: number of lists that each row searches.
    """

    vectors: Shared[Vectors]
    inverse: Shared[NDArray[np.float64]]
    home: Shared[NDArray[np.int32]]
    order: Shared[NDArray[np.int64]]
    centroids: Centroids
    start: int
    stop: int
    k: int
    probes: int


RowNeighbours = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]


def neighboured(task: Neighbouring) -> list[RowNeighbours]:
    """Yield blocks of rows, their neighbours and the cosines, as a list."""
    lists = InvertedLists(task.home.value, len(task.centroids), task.centroids, order=task.order.value)
    search, blocks = NearestSearch(task.vectors.value, lists, task.inverse.value), []
    for start in range(task.start, task.stop, QUERIES):  # in list order, so that rows of a block share lists
        rows = lists.rows[start : min(start + QUERIES, task.stop)]
        blocks.append((rows, *search.neighbours(rows, task.k, task.probes)))
    return blocks


def _neighbours_of_all(search: NearestSearch, k: int, probes: int) -> Iterator[RowNeighbours]:
    """Yield blocks of rows, their neighbours and cosines."""
    lists, vectors = search.lists, search.vectors
    if lists.centroids is None:
        raise ValueError("expected centroids for lists: not all rows are compared with all")
    compared = float(vectors.shape[1]) * probes * len(lists.rows) / lists.n_lists  # approximate multiplications per row
    tasks = tasks_for(compared * len(lists.rows))
    share = tasks.shared
    middle = lists.centroids.shared_by(tasks)
    held = (share(vectors), share(search.inverse), share(lists.home), share(lists.order), middle)
    parts = cuts(len(lists.rows), QUERIES, compared, tasks.grain or 1)  # in blocks, since results are large
    some = (Neighbouring(*held, start, stop, k, probes) for start, stop in parts)
    for blocks in tasks.run(neighboured, some):
        yield from blocks


def _exact_graph(vectors: Vectors, k: int) -> Graph:
    """Return the exact graph of a small table."""
    index = np.full((len(vectors), k), -1, np.int32)
    cosine = np.full((len(vectors), k), -np.inf, np.float32)
    inverse = inverse_lengths(vectors)
    rows = np.flatnonzero(inverse)
    width = min(k, len(rows) - 1)
    if width > 0:
        points = torch.from_numpy(units_float32(vectors, inverse, rows))
        near, at = nearest(points, points, width, same=True)
        index[rows, :width], cosine[rows, :width] = rows[at.numpy()], near.clamp(max=1).numpy()
    return Graph(index, cosine, Recall.of_everything())


def _sorted_by_similarity(centroids: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """Return centroids in an order with similar ones adjacent, so that rows of a block share lists."""
    coarse = spherical_kmeans(centroids, max(1, int(len(centroids) ** 0.5)), seed=seed, iterations=ITERATIONS)
    return centroids[np.argsort(assign(centroids, coarse)[0][:, 0], kind="stable")]


def choose_lists(search: NearestSearch, k: int, share: float, seed: int) -> tuple[int, Recall]:
    """Return the number of lists to search for a given recall on sampled rows, and the measured recall.

    Args:
        search: of the table.
        k: number of neighbours.
        share: target share of the neighbours, in (0, 1).
        seed: of the sample, which is compared with all rows.
    """
    rows = np.random.default_rng([seed, 2]).permutation(search.lists.rows)[:SAMPLE]
    index = search.neighbours(rows, k, None)[0]
    query, place = np.nonzero(index >= 0)
    home, units = search.lists.home[index[query, place]], unit_rows(search.vectors[rows], numbers=rows).units

    def counts(lists: InvertedLists) -> NDArray[np.int64]:
        pairs = ProbeCounts(lists.probed(units, min(MOST_PROBES, lists.n_lists)), lists.n_lists)
        pairs.add(query, home)
        return pairs.counts

    search.lists, probes, recall = choose(search.lists, counts, share)
    return probes, recall
