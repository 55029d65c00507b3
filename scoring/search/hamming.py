"""Search for all codes within a Hamming distance of a query, by multi-index hashing.

Cut 64 bits into four bands of 16 and let s_1 ... s_4 be integers with (s_1 + 1) + ... + (s_4 + 1) = r + 1. Two codes
that differ in at most r bits differ, in at least one band i, in at most s_i bits: else they would differ in more than
r. So it suffices to compare, for each i, the codes whose band i is within s_i bits of the query's.

Source: Norouzi, Punjani & Fleet 2012, "Fast search in Hamming space with multi-index hashing"; the uneven bands are in
Qin et al. 2018, "GPH: similarity search in Hamming space".
"""

from collections.abc import Iterable, Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from scoring.search.links import Links, sorted_links

BANDS = 4
VALUES = 1 << 16  # number of values of a band
FARTHEST = 20  # maximal radius; random codes differ in 32 bits
AT_ONCE = 2_097_152  # codes compared at once, in a row: 16 MB of them
LOOKED_UP = 131_072  # codes compared at once, looked up: 1 MB of them, which stays in the cache
SLOWER = 3  # cost of a lookup relative to a sequential comparison

Codes = NDArray[np.uint64]
Places = NDArray[np.int64]


class HammingIndex:
    """Finds every pair that differs in at most ``radius`` of 64 bits, exactly.

    Equal codes are searched once. Memory: about 60 bytes for each distinct code, and blocks of constant size.

    Attributes:
        radius: in bits.
        n_rows: number N of codes.
    """

    def __init__(self, codes: Codes, radius: int) -> None:
        """Sort the codes by each of their bands.

        Args:
            codes: shape (N,), uint64.
            radius: bits, 0 <= radius <= 20.

        Raises:
            ValueError: if an argument has another type or is out of range.
        """
        if codes.ndim != 1 or codes.dtype != np.uint64:
            raise ValueError(f"codes must be uint64 of shape (N,), got {codes.dtype} of shape {codes.shape}")
        if not 0 <= radius <= FARTHEST:
            raise ValueError(f"radius must be between 0 and {FARTHEST} bits, got {radius}")
        self.radius, self.n_rows = radius, len(codes)
        self._codes, self._of_row = np.unique(codes, return_inverse=True)
        self._members = np.argsort(self._of_row, kind="stable").astype(np.int64)
        spare = max(radius + 1 - BANDS, 0)
        reach = [spare // BANDS + (i < spare % BANDS) for i in range(BANDS)] if radius >= BANDS - 1 else []
        self._reach = reach or [0] * (radius + 1)  # with a radius below 3, fewer bands do
        self._bands = [_Band(self._codes, number, bits) for number, bits in enumerate(self._reach)]
        looked_up = sum(band.expected for band in self._bands) * SLOWER
        self._in_a_row = looked_up > len(self._codes)

    def search(self, queries: Codes, among: NDArray[np.bool_] | None = None, *, first: bool = False) -> Links:
        """Return the pairs of a query and a row that differ in at most ``radius`` bits.

        Args:
            queries: shape (Q,), uint64.
            among: rows that may be found, shape (N,); all of them by default.
            first: return only each row's link with its first matching query: at most N links.

        Returns:
            Links sorted by query and row; the similarity is the number of bits that differ, so less is closer.

        Raises:
            ValueError: if a shape or type does not fit.
        """
        if queries.ndim != 1 or queries.dtype != np.uint64:
            raise ValueError(f"queries must be uint64 of shape (Q,), got {queries.dtype} of shape {queries.shape}")
        if among is not None and (among.shape != (self.n_rows,) or among.dtype != np.bool_):
            raise ValueError(f"among must be bool of shape ({self.n_rows},), got {among.dtype} of {among.shape}")
        members = self._members if among is None else self._members[among[self._members]]
        n_members = np.bincount(self._of_row[members], minlength=len(self._codes)) if len(members) else None
        if n_members is None or not len(queries):
            return sorted_links([])
        codes, lowest, of_query = np.unique(queries, return_index=True, return_inverse=True)
        parts = (part for part in self._code_pairs(codes, n_members > 0) if len(part[0]))
        if first:
            query, code, bits = self._first_pairs(parts, lowest)
        else:
            every = list(parts)
            if not every:
                return sorted_links([])
            query, code, bits = (np.concatenate(column) for column in zip(*every, strict=True))
            query, code, bits = _expanded(query, code, bits, np.argsort(of_query, kind="stable"), np.bincount(of_query))
        code, query, bits = _expanded(code, query, bits, members, n_members)
        return sorted_links([(query, code, bits.astype(np.float32))])

    def _first_pairs(
        self, parts: Iterable[tuple[Places, Places, NDArray[np.uint8]]], lowest: Places
    ) -> tuple[Places, Places, NDArray[np.uint8]]:
        """Return each code's pair with its first query, from parts with pairs of distinct queries and distinct codes.

        ``lowest`` is the first query with each of the distinct codes. Only one part is in memory at a time.
        """
        nobody = np.iinfo(np.int64).max
        query, bits = np.full(len(self._codes), nobody), np.zeros(len(self._codes), np.uint8)
        for number, code, apart in parts:
            order = np.lexsort((lowest[number], code))
            at = order[np.unique(code[order], return_index=True)[1]]
            better = at[lowest[number[at]] < query[code[at]]]
            query[code[better]], bits[code[better]] = lowest[number[better]], apart[better]
        reached = np.flatnonzero(query != nobody)
        return query[reached], reached, bits[reached]

    def _code_pairs(
        self, queries: Codes, alive: NDArray[np.bool_]
    ) -> Iterator[tuple[Places, Places, NDArray[np.uint8]]]:
        """Yield the close pairs of distinct queries and distinct codes, each once."""
        if self._in_a_row:
            yield from self._all_pairs(queries, np.flatnonzero(alive))
            return
        for number, band in enumerate(self._bands):
            for query, code, apart in band.close_pairs(queries, self.radius):
                new = alive[code]
                for before in self._bands[:number]:  # already found by an earlier band
                    new &= ~before.holds(apart)
                yield query[new], code[new], np.bitwise_count(apart[new])

    def _all_pairs(self, queries: Codes, codes: Places) -> Iterator[tuple[Places, Places, NDArray[np.uint8]]]:
        """Yield the pairs of ``_code_pairs`` by comparing every query with every code."""
        step = max(1, AT_ONCE // max(1, min(len(codes), AT_ONCE)))
        for start in range(0, len(codes), AT_ONCE):
            some = codes[start : start + AT_ONCE]
            stored = self._codes[some]
            for low in range(0, len(queries), step):
                bits = np.bitwise_count(queries[low : low + step, None] ^ stored)
                query, code = np.nonzero(bits <= self.radius)
                yield query + low, some[code], bits[query, code]


class _Band:
    """Sixteen bits of the codes, and the codes sorted by them."""

    def __init__(self, codes: Codes, number: int, reach: int) -> None:
        """Sort by band ``number``; ``reach`` is the maximal number of different bits in this band."""
        self.shift, self.reach = np.uint64(16 * number), reach
        value = self.value(codes)
        self.order = np.argsort(value, kind="stable").astype(np.int32)
        self.codes = codes[self.order]
        count = np.bincount(value, minlength=VALUES)
        self.starts = (np.cumsum(count) - count).astype(np.int32)
        self.counts = count.astype(np.int32)
        self.flips = np.array(  # the 16-bit values with at most that many bits set
            [sum(1 << bit for bit in bits) for size in range(reach + 1) for bits in combinations(range(16), size)],
            np.uint16,
        )
        self.expected = len(self.flips) * float(np.square(count.astype(float)).sum()) / max(1, len(codes))

    def value(self, codes: Codes) -> NDArray[np.uint16]:
        """Return the band of each code."""
        return (codes >> self.shift).astype(np.uint16)

    def holds(self, apart: Codes) -> NDArray[np.bool_]:
        """Return a mask of the pairs that this band looks up, from the differences of their codes."""
        return np.bitwise_count((apart >> self.shift) & np.uint64(VALUES - 1)) <= self.reach

    def close_pairs(self, queries: Codes, radius: int) -> Iterator[tuple[Places, Places, Codes]]:
        """Yield the close pairs that this band finds, and their differences."""
        value = self.value(queries)
        by_value = np.argsort(value, kind="stable")  # so that compared codes are contiguous
        value, queries = value[by_value], queries[by_value]
        for flip in self.flips:
            near = value ^ flip
            start, size = self.starts[near], self.counts[near]
            total = np.cumsum(size, dtype=np.int64)
            for low, high in _query_ranges(total):
                some = size[low:high]
                ends = total[low:high] - (total[low] - some[0])
                begins = (start[low:high] - ends + some).astype(np.int32)
                at = np.repeat(begins, some)
                at += np.arange(len(at), dtype=np.int32)
                apart = np.repeat(queries[low:high], some)
                apart ^= self.codes[at]
                close = np.flatnonzero(np.bitwise_count(apart) <= radius)
                query = low + np.searchsorted(ends, close, side="right")
                yield by_value[query], self.order[at[close]].astype(np.int64), apart[close]


def _query_ranges(total: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield ranges of queries with about ``LOOKED_UP`` codes to compare; ``total`` (Q,) is the cumulative number."""
    low = 0
    while low < len(total):
        before = int(total[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(total, before + LOOKED_UP, side="right")))
        yield low, high
        low = high


def _expanded(
    group: Places, other: Places, bits: NDArray[np.uint8], members: Places, n_members: Places
) -> tuple[Places, Places, NDArray[np.uint8]]:
    """Return one pair for every member of the group that comes first in each pair.

    Args:
        group: shape (P,), in [0, G).
        other: shape (P,).
        bits: shape (P,).
        members: members of the groups, group by group.
        n_members: size of each group, shape (G,).
    """
    size = n_members[group]
    starts = (np.cumsum(n_members) - n_members)[group]
    inside = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
    return members[np.repeat(starts, size) + inside], np.repeat(other, size), np.repeat(bits, size)
