"""Rows stored list by list in bfloat16, and block-wise scans of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.search.inverted import InvertedLists, Spans
from scoring.search.rows import BLOCK, UnitRows, Vectors, rows_at, unit_rows
from scoring.search.scan import Pairs, ScanBlock, close_pairs, lowest_product, margin
from scoring.tasks import IN_PROCESS, Held, Shared, cuts, tasks_for

CPU_BLOCK = (1024, 2048)  # queries x rows: 4 MB of products, which stay in the cache
GPU_BLOCK = (2048, 8192)  # 64 MB of products
WRITTEN = 2 << 30  # bytes written per pass


@dataclass(frozen=True)
class ScanRows:
    """N rows for the tasks of a scan.

    Attributes:
        vectors: as stored, shape (N, D).
        squares: squared norm of each stored row, shape (N,), float64.
        order: the row at each position, shape (N,), int64.
        units: normalised rows by position, shape (N, D), bfloat16.
    """

    vectors: Shared[Vectors]
    squares: Shared[NDArray[np.float64]]
    order: Shared[NDArray[np.int64]]
    units: Shared[Tensor]

    def side(self, places: NDArray[np.int64]) -> ScanBlock:
        """Return the rows at ascending positions; without a copy if they are contiguous."""
        low, high = int(places[0]), int(places[-1]) + 1
        units = self.units.value
        is_contiguous = high - low == len(places)
        some = units[low:high] if is_contiguous else rows_at(units, places)
        return ScanBlock(self.vectors.value, self.squares.value, self.order.value[places], some)


@dataclass(frozen=True)
class TaskQueries:
    """Q queries for the tasks of a scan: as ``UnitRows``, and as stored.

    Attributes:
        vectors: a table with the queries as stored.
        squares: squared norm of each row of the table.
        units: normalised rows, bfloat16, that include the queries.
        rows: index of each query in the table, shape (Q,), int64; None if the queries are the table.
        places: index of each query in ``units``; None as for ``rows``.
    """

    vectors: Shared[Vectors]
    squares: Shared[NDArray[np.float64]]
    units: Shared[Tensor]
    rows: Shared[NDArray[np.int64]] | None = None
    places: Shared[NDArray[np.int64]] | None = None

    def side(self, queries: NDArray[np.int64]) -> ScanBlock:
        """Return a subset of the queries."""
        rows = queries if self.rows is None else self.rows.value[queries]
        places = queries if self.places is None else self.places.value[queries]
        return ScanBlock(self.vectors.value, self.squares.value, rows, rows_at(self.units.value, places))


@dataclass(frozen=True)
class Look:
    """Queries and the positions that they search.

    Attributes:
        queries: ascending, shape (A,).
        start: the first position that may be found.
        may: a bit mask of the positions from ``start`` that may be found.
        n: number of positions in the mask.
    """

    queries: NDArray[np.int64]
    start: int
    may: NDArray[np.uint8]
    n: int

    @classmethod
    def at(cls, queries: NDArray[np.int64], places: NDArray[np.int64]) -> "Look":
        """Return the lookup for queries at ascending positions, at least one."""
        start = int(places[0])
        may = np.zeros(int(places[-1]) + 1 - start, bool)
        may[places - start] = True
        return cls(queries, start, np.packbits(may), len(may))

    @property
    def places(self) -> NDArray[np.int64]:
        """The positions, ascending."""
        return self.start + np.flatnonzero(np.unpackbits(self.may, count=self.n))


@dataclass(frozen=True)
class Scan:
    """A task: the pairs of queries with the rows at their positions."""

    rows: ScanRows
    queries: TaskQueries
    looks: list[Look]
    threshold: float
    lowest: float
    first: bool


@dataclass(frozen=True)
class OutsideQueries:
    """Queries that are not rows of a layout: as stored, shape (Q, D), and normalised."""

    vectors: Vectors
    rows: UnitRows


class SearchLayout:
    """Normalised rows in bfloat16, sorted by list: 2 N D bytes on the device, or in a file.

    Attributes:
        vectors: the rows as stored, shape (N, D).
        squares: squared norm of each stored row, shape (N,), float64.
        lists: the lists of the rows.
        device: torch device of the products.
    """

    def __init__(self, vectors: Vectors, lists: InvertedLists, device: torch.device) -> None:
        """Store rows (N, D), float16, float32 or int8, by list; ValueError, with the row, for NaN or infinity."""
        n_rows, width = vectors.shape
        self.vectors, self.lists, self.device = vectors, lists, device
        self.squares, self._residual = np.empty(n_rows), 0.0
        self._place = np.empty(n_rows, np.int64)
        self._place[lists.order] = np.arange(n_rows)
        on_device = device.type != "cpu"
        self._tasks = IN_PROCESS if on_device else tasks_for(float(n_rows) ** 2 * width)
        shape = (n_rows, width)
        room = Held(torch.empty(shape, dtype=torch.bfloat16, device=device)) if on_device else None
        units: Shared[Tensor] = room or self._tasks.room(shape, torch.bfloat16)
        at_once = max(BLOCK, WRITTEN // (2 * width))
        for start in range(0, n_rows, at_once):  # a file is written in parts that fit in memory
            rows = np.sort(lists.order[start : start + at_once])
            for low in range(0, len(rows), BLOCK):
                self._store(rows[low : low + BLOCK], units.value)
        share = self._tasks.shared
        self._laid = ScanRows(share(vectors), share(self.squares), share(lists.order), units)
        self._has_length = self.squares[lists.order] > 0  # by position

    def _store(self, rows: NDArray[np.int64], units: Tensor) -> None:
        part = unit_rows(self.vectors[rows], numbers=rows)
        units[torch.from_numpy(self._place[rows]).to(self.device)] = part.units.to(self.device)
        self.squares[rows] = part.squares
        self._residual = max(self._residual, float(part.residual.max()))

    def units_of(self, rows: NDArray[np.int64]) -> Tensor:
        """Return normalised rows, shape (A, D), bfloat16."""
        return rows_at(self._laid.units.value, self._place[rows])

    def scan(
        self,
        queries: OutsideQueries | NDArray[np.int64],
        spans: Spans,
        threshold: float,
        among: NDArray[np.bool_] | None = None,
        *,
        first: bool = False,
    ) -> Iterator[Pairs]:
        """Yield query, position and cosine of the pairs whose cosine reaches the threshold, block by block.

        Args:
            queries: outside queries, or indices of rows of this layout, shape (Q,).
            spans: positions that each query searches; none for zero queries.
            threshold: minimal cosine.
            among: rows that may be found, shape (N,).
            first: return only the first query of each position within a span.
        """
        residual = (
            float(queries.rows.residual.max(initial=0.0)) if isinstance(queries, OutsideQueries) else self._residual
        )
        allowed = margin(residual, self._residual, self.vectors.shape[1])
        lowest = lowest_product(threshold, allowed, self.device)
        may = self._has_length if among is None else self._has_length & among[self.lists.order]
        width = self.vectors.shape[1]
        work = float(sum((stop - start) * len(looking) for start, stop, looking in spans)) * width
        tasks = self._tasks if work >= self._tasks.least else IN_PROCESS
        if isinstance(queries, OutsideQueries):
            rows = queries.rows
            held = TaskQueries(tasks.shared(queries.vectors), tasks.shared(rows.squares), tasks.shared(rows.units))
        else:
            laid, places = self._laid, self._place[queries]
            held = TaskQueries(laid.vectors, laid.squares, laid.units, tasks.shared(queries), tasks.shared(places))
        looks = _portions(_lookups(spans, may, tasks.grain / width), tasks.grain / width)
        scans = (Scan(self._laid, held, some, threshold, lowest, first) for some in looks)
        for pairs in tasks.run(scanned, scans):
            yield from pairs


def _lookups(spans: Spans, may: NDArray[np.bool_], most: float) -> Iterator[Look]:
    """Yield lookups, span by span, split at ``most`` pairs between blocks."""
    for start, stop, looking in spans:
        places = start + np.flatnonzero(may[start:stop])
        if not len(places) or not len(looking):
            continue
        for begin, end in cuts(len(places), CPU_BLOCK[1], len(looking), most):
            yield Look.at(looking, places[begin:end])


def _portions(looks: Iterable[Look], least: float) -> Iterator[list[Look]]:
    """Yield lookups in batches of at least a given number of pairs."""
    some: list[Look] = []
    pairs = 0
    for look in looks:
        some.append(look)
        pairs += len(look.queries) * look.n
        if pairs >= least:
            yield some
            some, pairs = [], 0
    if some:
        yield some


def scanned(scan: Scan) -> list[Pairs]:
    """Return query, position and cosine of the pairs found by a task, block by block."""
    pairs: list[Pairs] = []
    n_queries, n_places = CPU_BLOCK if scan.queries.units.value.device.type == "cpu" else GPU_BLOCK
    for look in scan.looks:
        looking, places = look.queries, look.places
        for begin in range(0, len(places), n_places):
            at = places[begin : begin + n_places]
            block = scan.rows.side(at)
            for low in range(0, len(looking), n_queries):
                some = looking[low : low + n_queries]
                part = scan.queries.side(some)
                query, row, cosine = close_pairs(part, block, scan.threshold, scan.lowest, first=scan.first)
                if len(query):
                    pairs.append((some[query], at[row], cosine))
                if scan.first and len(row):  # found rows need no later query
                    left = np.delete(np.arange(len(at)), row)
                    at, block = at[left], block.take(left)
    return pairs
