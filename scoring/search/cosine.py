"""Search for all rows whose cosine with a query reaches a threshold, among any number of rows."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scoring.arrays import zeros_or_memmap
from scoring.search.inverted import InvertedLists, Spans, list_centroids
from scoring.search.layout import OutsideQueries, SearchLayout
from scoring.search.links import Links, Recall, rounded, sorted_links
from scoring.search.rows import Vectors, check_vectors, unit_table

MOST_PROBES = 64  # maximal number of lists per query
UNKNOWN = 8  # number of lists per query if the sample has no pair
LEAST_PROBES = 2  # minimal number of lists, so that pairs across a border are found
AT_ONCE = 65_536  # queries at once
PLACED = 262_144  # rows per block of list assignment
LOOKS = 1 << 24  # lookups (rows x lists) per block
FIRST_SAMPLED, SAMPLED_AT_ONCE = 16, 256  # rows at once
CROWD = 10_000  # pairs of a sampled row above which its partners are not sampled too
ENOUGH = 1_000_000  # total pairs after which sampling stops

Sampled = tuple[
    NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]
]  # rows; for each pair the index of the row, and the partner's list


class ProbeCounts:
    """The number of pairs of each query in its nearest list, its second, ..., and beyond the searched lists.

    Args:
        probed: lists of each of the S queries, nearest first, shape (S, P).
        n_lists: of the index.

    Attributes:
        counts: shape (S, P + 1), int64.
    """

    def __init__(self, probed: NDArray[np.int64], n_lists: int) -> None:
        n_queries, most = probed.shape
        self.counts = np.zeros((n_queries, most + 1), np.int64)
        self._rank = np.full((n_queries, n_lists), most, np.uint8)
        self._rank[np.arange(n_queries)[:, None], probed] = np.arange(most)

    def add(self, query: NDArray[np.int64], lists: NDArray[np.int32]) -> None:
        """Count pairs by their query and the list of their row, shape (M,) each."""
        flat = query * self.counts.shape[1] + self._rank[query, lists]
        self.counts += np.bincount(flat, minlength=self.counts.size).reshape(self.counts.shape)


def choose(
    lists: InvertedLists, pairs: Callable[[InvertedLists], NDArray[np.int64]], share: float, **options: Any
) -> tuple[InvertedLists, int, Recall]:
    """Return lists through which rows find their lists well enough, and the probes and recall of ``choose_probes``.

    Args:
        lists: of the index.
        pairs: lists -> ``ProbeCounts.counts`` of sampled rows.
        share: of the pairs that must be found.
        options: of ``choose_probes``.
    """
    if lists.centroids is None:
        return lists, *choose_probes(pairs(lists), share, **options)
    for centroids in lists.centroids.wider():
        lists = lists.looking(centroids)
        counts = pairs(lists)
        probes, recall = choose_probes(counts, share, **options)
        if probes < counts.shape[1] - 1:
            break
    return lists, probes, recall


def choose_probes(
    counts: NDArray[np.int64], needed: float, *, least: int = 1, of_each: bool = False
) -> tuple[int, Recall]:
    """Return the fewest lists that contain the needed share of pairs, and the recall.

    Every other sampled row is used for the choice, the remaining ones measure the recall.

    Args:
        counts: of sampled rows, as ``ProbeCounts`` has them, shape (S, P + 1).
        needed: share of the pairs, in (0, 1).
        least: minimal number of lists.
        of_each: the mean share per row must reach ``needed`` too, so that one large group does not dominate.
    """
    most = counts.shape[1] - 1
    probes = min(most, max(least, _fewest_probes(counts[0::2], needed, of_each)))
    reporting = counts[1::2]
    return probes, Recall.of_sample(reporting[:, :probes].sum(1), reporting.sum(1))


def _fewest_probes(counts: NDArray[np.int64], needed: float, of_each: bool) -> int:
    of_row = counts.sum(1)
    counts, of_row = counts[of_row > 0], of_row[of_row > 0]
    if not len(counts):
        return UNKNOWN
    upto = counts[:, :-1].cumsum(1)  # (S, P): pairs found by number of lists
    share = upto.sum(0) / of_row.sum()
    if of_each:
        share = np.minimum(share, (upto / of_row[:, None]).mean(0))
    reached = np.flatnonzero(share >= needed)
    return int(reached[0]) + 1 if len(reached) else MOST_PROBES


class CosineIndex:
    """Finds every pair of a query and a row whose cosine reaches a threshold.

    Up to ``exact_rows`` rows, every query is compared with every row, and no pair is missed. Above, rows are in
    inverted lists by the nearest of some k-means directions, and a query is compared with the few lists nearest to it:
    the number of lists is chosen, and the recall measured, on a random sample of rows. No pair below the threshold is
    returned: cosines are computed in float64 from the stored rows, and a cosine within 1e-12 of the threshold reaches
    it. A zero row matches nothing.

    Rows may have any length. Memory in addition to the rows: 2 N D bytes (in a file if large), about 50 N bytes of
    indices, 4 N bytes for each list that a row searches, and blocks of constant size. The time of a search is the
    comparison of its queries with the rows of their lists; ``among`` reduces it.

    Attributes:
        threshold: minimal cosine.
        n_rows: number N of rows of the index.
        probes: number of lists that a query searches.
        recall: share of the pairs that a search finds, with an interval.
    """

    def __init__(
        self,
        vectors: Vectors,
        threshold: float,
        *,
        exact_rows: int = 50_000,
        recall: float = 0.999,
        seed: int = 0,
        device: str | None = None,
        sample: int = 4096,
        order: NDArray[np.int64] | None = None,
    ) -> None:
        """Build the lists, and measure the recall.

        Args:
            vectors: shape (N, D), float16, float32 or int8; may be a memory map. They must not change afterwards.
            threshold: minimal cosine, in (0, 1].
            exact_rows: maximal number of rows for an exact search.
            recall: target share of pairs for the choice of probes, in (0, 1).
            seed: of the directions, and of the sample.
            device: None or "cpu", or "cuda".
            sample: number of rows for measuring the recall; each is compared with all rows.
            order: a permutation of the rows that does not depend on their order, shape (N,), such as by a hash of their
                keys; makes approximate results independent of the order of the rows.

        Raises:
            ValueError: if an argument is out of range, or a row holds NaN or infinity; names the row.
        """
        check_vectors(vectors)
        if not 0 < threshold <= 1 or not 0 < recall < 1 or sample < 2:
            got = f"{threshold}, {recall} and {sample}"
            raise ValueError(f"threshold must be in (0, 1], recall in (0, 1) and sample >= 2, got {got}")
        self.threshold, self.n_rows = threshold, len(vectors)
        self.probes, self.recall = 1, Recall.of_everything()
        self._looked: NDArray[np.int32] | None = (
            None  # the lists that each row searches, (N, probes); -1 until computed
        )
        self._device = torch.device(device or "cpu")
        centroids = list_centroids(vectors, exact_rows=exact_rows, seed=seed, order=order, device=device)
        if centroids is None:
            self._layout = SearchLayout(vectors, InvertedLists.of_everything(self.n_rows), self._device)
            return
        self._layout = SearchLayout(
            vectors, InvertedLists.by_centroids(vectors, centroids, device=device), self._device
        )
        usable = self._layout.squares > 0
        rows = np.flatnonzero(usable) if order is None else order[usable[order]]
        sampled = self._sampled(np.random.default_rng([seed, 1]).permutation(rows)[:sample])
        self._layout.lists, self.probes, self.recall = choose(
            self._layout.lists, lambda lists: self._counts(lists, sampled), recall, least=LEAST_PROBES, of_each=True
        )

    def search(self, queries: Vectors, among: NDArray[np.bool_] | None = None, *, first: bool = False) -> Links:
        """Return the pairs of a query and a row whose cosine reaches the threshold.

        Args:
            queries: shape (Q, D), of the dtype of the index, any length; zero queries find nothing.
            among: rows that may be found, shape (N,); all of them by default.
            first: return only each row's link with its first matching query: at most N links, and faster.

        Returns:
            Links sorted by query and row; cosines as float32, rounded so that none is below the threshold.

        Raises:
            ValueError: if shapes or dtypes do not fit, or a query holds NaN or infinity.
        """
        check_vectors(queries, "queries")
        table = self._layout.vectors
        if queries.dtype != table.dtype or queries.shape[1] != table.shape[1]:
            expected = f"{table.dtype} of width {table.shape[1]}"
            raise ValueError(f"queries must be {expected}, got {queries.dtype} of width {queries.shape[1]}")
        if among is not None and (among.shape != (self.n_rows,) or among.dtype != np.bool_):
            raise ValueError(f"among must be bool of shape ({self.n_rows},), got {among.dtype} of {among.shape}")
        left = among if not first else np.ones(self.n_rows, bool) if among is None else among.copy()
        parts, lists = [], self._layout.lists
        for start in range(0, len(queries), AT_ONCE):
            block = queries[start : start + AT_ONCE]
            rows = unit_table(block, str(self._device))
            usable = np.flatnonzero(rows.squares > 0)
            spans = lists.spans(usable, lists.probed(rows.units, self.probes)[usable])
            for query, row, cosine in self._scan(OutsideQueries(block, rows), spans, left, first=first):
                parts.append((query + start, row, cosine))
                if first and left is not None:  # found rows are skipped in later blocks
                    left[row] = False
        return sorted_links(parts)

    def search_rows(
        self, rows: NDArray[np.int64], among: NDArray[np.bool_] | None = None, *, first: bool = False
    ) -> Links:
        """Return the links of ``search`` for queries that are rows of the index; each may find itself.

        The lists that a row searches are cached for later calls.

        Args:
            rows: indices of the queries, shape (Q,).
            among: as in ``search``.
            first: as in ``search``.

        Returns:
            Links as of ``search``; ``query`` is a position in ``rows``.
        """
        left = among if not first else np.ones(self.n_rows, bool) if among is None else among.copy()
        parts = []
        step = max(AT_ONCE, LOOKS // self.probes)
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            usable = np.flatnonzero(self._layout.squares[block] > 0)
            spans = self._layout.lists.spans(usable, self._probed(block[usable]))
            for query, row, cosine in self._scan(block, spans, left, first=first):
                parts.append((query + start, row, cosine))
                if first and left is not None:
                    left[row] = False
        return sorted_links(parts)

    def _scan(
        self, queries: OutsideQueries | NDArray[np.int64], spans: Spans, among: NDArray[np.bool_] | None, *, first: bool
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]]:
        """Yield query, row and cosine of the matching pairs, block by block."""
        for query, place, cosine in self._layout.scan(queries, spans, self.threshold, among, first=first):
            yield query, self._layout.lists.order[place], rounded(cosine, self.threshold)

    def _probed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lists that rows search, shape (A, probes); no row may be zero."""
        lists = self._layout.lists
        if lists.centroids is None:
            return np.zeros((len(rows), 1), np.int64)
        if self._looked is None:
            self._looked = zeros_or_memmap((self.n_rows, self.probes), np.dtype(np.int32))
            self._looked -= 1
        fresh = rows[self._looked[rows, 0] < 0]
        for start in range(0, len(fresh), PLACED):
            some = fresh[start : start + PLACED]
            self._looked[some] = lists.probed(self._layout.units_of(some), self.probes)
        return self._looked[rows].astype(np.int64)

    def _sampled(self, rows: NDArray[np.int64]) -> list[Sampled]:
        """Compare sampled rows with all rows; return their pairs, without self-pairs, block by block.

        Of sampled rows with very many pairs in common (a crowd of near duplicates), only the first ones are used, and
        the sample is cut short if there are still too many pairs, to bound the time.
        """
        lists, sampled, n_pairs = self._layout.lists, [], 0
        open_rows = np.ones(self.n_rows, bool)
        start, size = 0, FIRST_SAMPLED
        while start < len(rows) and n_pairs < ENOUGH:
            chosen = rows[start : start + size]
            start, chosen = start + len(chosen), chosen[open_rows[chosen]]
            spans, pairs = lists.everything(np.arange(len(chosen))), [(chosen[:0], chosen[:0])]
            for query, place, _ in self._layout.scan(chosen, spans, self.threshold, open_rows):
                row = lists.order[place]
                other = row != chosen[query]
                pairs.append((query[other], row[other]))
            query, row = (np.concatenate(each) for each in zip(*pairs, strict=True))
            of_row = np.bincount(query, minlength=len(chosen))
            crowds = of_row > CROWD
            open_rows[row[crowds[query]]] = False
            sampled.append((chosen, query, lists.home[row]))
            n_pairs += int(np.minimum(of_row, CROWD).sum())
            size = FIRST_SAMPLED if crowds.any() else min(2 * size, SAMPLED_AT_ONCE)
        return sampled

    def _counts(self, lists: InvertedLists, sampled: list[Sampled]) -> NDArray[np.int64]:
        """Return the number of pairs of sampled rows by probe, shape (S, P + 1), for the given lists."""
        most = min(MOST_PROBES, lists.n_lists)
        counts = [np.zeros((0, most + 1), np.int64)]
        for chosen, query, home in sampled:
            pairs = ProbeCounts(lists.probed(self._layout.units_of(chosen), most), lists.n_lists)
            pairs.add(query, home)
            counts.append(pairs.counts)
        return np.concatenate(counts)
