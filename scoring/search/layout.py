"""Rows laid out list by list in bfloat16, and the scan over them in blocks."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from scoring.search.inverted import InvertedLists, Spans
from scoring.search.rows import BLOCK, UnitRows, Vectors, unit_rows
from scoring.search.scan import Pairs, Side, close_pairs, lowest_product, margin

CPU_BLOCK = (1024, 2048)  # queries x rows: 4 MB of products, which stay in the cache
GPU_BLOCK = (2048, 8192)  # 64 MB of products


class Layout:
    """Rows at length 1 in bfloat16, the rows of a list side by side: 2 N D bytes on the device.

    Attributes:
        vectors: the rows as stored, shape (N, D).
        squares: squared length of each stored row, shape (N,), float64.
        lists: what lies where.
        device: where products are made.
    """

    def __init__(self, vectors: Vectors, lists: InvertedLists, device: torch.device) -> None:
        """Lay rows out.

        Args:
            vectors: shape (N, D), float16, float32 or int8.
            lists: of these rows.
            device: where products are made.

        Raises:
            ValueError: if a row holds NaN or infinity; names it.
        """
        n_rows, width = vectors.shape
        self.vectors, self.lists, self.device = vectors, lists, device
        self.squares, self._residual = np.empty(n_rows), 0.0
        self._units = torch.empty((n_rows, width), dtype=torch.bfloat16, device=device)
        place = np.empty(n_rows, np.int64)
        place[lists.order] = np.arange(n_rows)
        for start in range(0, n_rows, BLOCK):
            stop = min(start + BLOCK, n_rows)
            part = unit_rows(vectors[start:stop], numbers=range(start, stop))
            self._units[torch.from_numpy(place[start:stop]).to(device)] = part.units.to(device)
            self.squares[start:stop] = part.squares
            self._residual = max(self._residual, float(part.residual.max()))
        self._has_length = self.squares[lists.order] > 0  # by place

    def scan(
        self,
        queries: Vectors,
        rows: UnitRows,
        spans: Spans,
        threshold: float,
        among: NDArray[np.bool_] | None = None,
        *,
        first: bool = False,
    ) -> Iterator[Pairs]:
        """Yield query, place and cosine of the pairs at or above a cosine, block by block.

        Args:
            queries: as stored, shape (Q, D).
            rows: the same at length 1.
            spans: which of them look where; none of length zero looks anywhere.
            threshold: cosine.
            among: rows that may be found, shape (N,).
            first: of each place only the first query of its span; a place belongs to one span, or is found once a span.
        """
        allowed = margin(float(rows.residual.max(initial=0.0)), self._residual, self.vectors.shape[1])
        lowest = lowest_product(threshold, allowed, self.device)
        n_queries, n_places = CPU_BLOCK if self.device.type == "cpu" else GPU_BLOCK
        may = self._has_length if among is None else self._has_length & among[self.lists.order]
        for start, stop, looking in spans:
            places = start + np.flatnonzero(may[start:stop])
            if not len(places) or not len(looking):
                continue
            units = rows.units[torch.from_numpy(looking).to(self.device)]
            for begin in range(0, len(places), n_places):
                at = places[begin : begin + n_places]
                block = self._side(at)
                for low in range(0, len(looking), n_queries):
                    some = slice(low, low + n_queries)
                    part = Side(queries, rows.squares, looking[some], units[some])
                    query, row, cosine = close_pairs(part, block, threshold, lowest, first=first)
                    if len(query):
                        yield part.numbers[query], at[row], cosine
                    if first and len(row):  # what is found needs no later query
                        left = np.delete(np.arange(len(at)), row)
                        at, block = at[left], block.take(left)

    def _side(self, places: NDArray[np.int64]) -> Side:
        """Return the rows at some places, ascending; without a copy if none is missing between them."""
        low, high = int(places[0]), int(places[-1]) + 1
        whole = high - low == len(places)
        units = self._units[low:high] if whole else self._units[torch.from_numpy(places).to(self.device)]
        return Side(self.vectors, self.squares, self.lists.order[places], units)
