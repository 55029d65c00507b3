"""The nearest rows of rows and queries, among the inverted lists that they search."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.search.inverted import InvertedLists, Spans
from scoring.search.links import Links
from scoring.search.rows import Vectors, inverse_lengths, unit_rows, units_float32

PRODUCTS = 8_388_608  # cosines at a time: 32 MB
CLOSE = 2e-6  # cosines nearer than this may be in the wrong order after a float32 product
SLACK = 4  # neighbours beyond k that are kept until the last look, for cosines too close to call
AT_ONCE = 8192  # pairs at a time that are measured again
WAITING = 4_194_304  # neighbours that wait to be sorted, 20 bytes each


class NearestSearch:
    """Finds nearest rows in inverted lists; rows are read from storage on demand.

    Args:
        vectors: shape (N, D).
        lists: of these rows.
        inverse: ``inverse_lengths`` of the rows, where they are known.
    """

    def __init__(self, vectors: Vectors, lists: InvertedLists, inverse: NDArray[np.float64] | None = None) -> None:
        self.vectors, self.lists = vectors, lists
        self.inverse = inverse_lengths(vectors) if inverse is None else inverse

    def _unit(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return rows at length 1, shape (B, D)."""
        return units_float32(self.vectors, self.inverse, rows)

    def probed(self, rows: NDArray[np.int64], probes: int) -> NDArray[np.int64]:
        """Return the lists nearest to rows, shape (B, probes), a row's own list first."""
        return self.lists.probed(unit_rows(self.vectors[rows], numbers=rows).units, probes)

    def neighbours(
        self, rows: NDArray[np.int64], k: int, probes: int | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the nearest other rows of rows and their cosines, in the lists searched, (B, k) each.

        Args:
            rows: shape (B,).
            k: neighbours.
            probes: lists that each row looks at; None for all.
        """
        probed = None if probes is None else self.probed(rows, probes)
        return self._nearest(torch.from_numpy(self._unit(rows)), rows, probed, k)

    def neighbours_of(
        self, queries: Vectors, excluded: NDArray[np.int64], k: int, probes: int | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the rows nearest to queries, which need not be rows, and their cosines, shape (Q, k) each.

        Args:
            queries: shape (Q, D), of any length.
            excluded: the row that each query is, which is no neighbour of it; -1 where it is not one; shape (Q,).
            k: neighbours; where there are fewer rows, -1 with a cosine of -inf.
            probes: lists that each query looks at; None for all.
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
            bounds: cosines, shape (Q,).
            most: links; None is returned where there are more.

        Returns:
            Links by query, the nearest first and ties by row; cosines as measured in float64.
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
            cosines[block] = torch.einsum("pd,pd->p", stored, unit[torch.from_numpy(query[block])].double()).numpy()
        return cosines

    def _nearest(
        self, unit: Tensor, excluded: NDArray[np.int64], probed: NDArray[np.int64] | None, k: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the nearest rows of unit rows (B, D) in the lists searched (B, P), or in all, shape (B, k) each.

        Each is compared with its nearest list first. That reports how near a row of another one has to be: few are, and
        only these are sorted.
        """
        nearest = NearestSoFar(excluded, k + SLACK)
        for begin, end, looking in self._spans(len(unit), probed):
            members, queries = self.lists.order[begin:end], unit[torch.from_numpy(looking)]
            step = max(1, PRODUCTS // max(1, len(looking)))
            for start in range(0, len(members), step):
                some = members[start : start + step]
                nearest.update(looking, some, queries @ torch.from_numpy(self._unit(some)).T)
        return self._settled(unit, *nearest.result(), k)

    def _spans(self, n: int, probed: NDArray[np.int64] | None) -> Spans:
        """Return which of n rows search which positions, nearest lists first."""
        numbers = np.arange(n)
        if probed is None:
            return self.lists.everything(numbers)
        return self.lists.spans(numbers, probed[:, :1]) + self.lists.spans(numbers, probed[:, 1:])

    def _settled(
        self, unit: Tensor, best: Tensor, index: Tensor, k: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the best k; nearly equal cosines are computed again in float64, ties by row."""
        near = ((best[:, :-1] - best[:, 1:]) < CLOSE) & (index[:, 1:] >= 0)
        close = torch.zeros_like(index, dtype=torch.bool)
        close[:, :-1] |= near
        close[:, 1:] |= near
        query, place = close.nonzero(as_tuple=True)
        for start in range(0, len(query), AT_ONCE):
            block = slice(start, start + AT_ONCE)
            stored = torch.from_numpy(self._unit(index[query[block], place[block]].numpy())).double()
            exact = torch.einsum("pd,pd->p", stored, unit[query[block]].double())
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


class NearestSoFar:
    """The nearest rows found so far for B rows: a sorted part, and later candidates.

    Args:
        rows: the B rows, none of which is its own neighbour; -1 for what is no row.
        width: how many neighbours are kept of each.
    """

    def __init__(self, rows: NDArray[np.int64], width: int) -> None:
        self.rows, self.width = rows, width
        self.best = torch.full((len(rows), width), -torch.inf)
        self.index = torch.full((len(rows), width), -1, dtype=torch.long)
        self.floor = np.full(len(rows), -np.inf, np.float32)  # a row that is kept is nearer than this
        self._waiting: list[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]] = []
        self._n_waiting = 0

    def update(self, looking: NDArray[np.int64], members: NDArray[np.int64], cosine: Tensor) -> None:
        """Take candidates: cosines (A, M) of some of the rows, shape (A,), with members, shape (M,)."""
        fresh = np.isneginf(self.floor[looking])
        if fresh.any():
            self._sort(looking[fresh], members, cosine[torch.from_numpy(fresh)])
            looking, cosine = looking[~fresh], cosine[torch.from_numpy(~fresh)]
        value = cosine.numpy()
        query, place = np.divmod(np.flatnonzero(value > self.floor[looking, None]), max(1, len(members)))
        other = self.rows[looking[query]] != members[place]
        query, place = query[other], place[other]
        self._waiting.append((looking[query], value[query, place], members[place]))
        self._n_waiting += len(query)
        if self._n_waiting >= WAITING:
            self._settle_waiting()

    def result(self) -> tuple[Tensor, Tensor]:
        """Return cosines and rows, nearest first, shape (B, width) each; -inf and -1 if absent."""
        self._settle_waiting()
        return self.best, self.index

    def _sort(self, looking: NDArray[np.int64], members: NDArray[np.int64], cosine: Tensor) -> None:
        """Sort the first members into rows that have too few so far."""
        numbers = torch.from_numpy(members)
        cosine = cosine.masked_fill(torch.from_numpy(self.rows[looking]).view(-1, 1) == numbers, -torch.inf)
        value, at = cosine.topk(min(self.width, len(members)), dim=1)
        self._merge(looking, value, numbers[at])

    def _settle_waiting(self) -> None:
        """Sort the later candidates: by row, then nearest first."""
        if not self._n_waiting:
            return
        query, value, row = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
        self._waiting, self._n_waiting = [], 0
        bits = value.view(np.int32)
        rank = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # floats in the order of integers
        order = np.argsort((query << 32) - rank, kind="stable")
        query, value, row = query[order], value[order], row[order]
        place = np.arange(len(query)) - np.searchsorted(query, query)
        near = place < self.width
        some, at = np.unique(query[near], return_inverse=True)
        best = np.full((len(some), self.width), -np.inf, np.float32)
        index = np.full((len(some), self.width), -1, np.int64)
        best[at, place[near]], index[at, place[near]] = value[near], row[near]
        self._merge(some, torch.from_numpy(best), torch.from_numpy(index))

    def _merge(self, looking: NDArray[np.int64], cosine: Tensor, row: Tensor) -> None:
        """Merge with new candidates, shape (A, W), and keep the best."""
        at = torch.from_numpy(looking)
        both, which = torch.cat([self.best[at], cosine], 1), torch.cat([self.index[at], row], 1)
        which = which.masked_fill(both == -torch.inf, -1)
        best, place = both.topk(self.width, dim=1)
        self.best[at], self.index[at] = best, which.gather(1, place)
        self.floor[looking] = best[:, -1].numpy()
