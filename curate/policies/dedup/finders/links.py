"""Pairs of copies as arrays, and operations on them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array, Ints, Mask

FIRST = 64  # rows in the first chunk


@dataclass(frozen=True)
class Links:
    """P pairs of similar rows.

    Attributes:
        query: queried row, shape (P,) int64; in the other table for ``Search.foreign``.
        row: the other row, shape (P,) int64; never the queried row.
        similarity: in the unit of the finder, shape (P,) float32.
        view: matching view of the queried row, an index into the run's views, or a code of
            ``curate.policies.dedup.finders.looks`` that includes a part; shape (P,), int8 or int32.
    """

    query: Ints
    row: Ints
    similarity: NDArray[np.float32]
    view: NDArray[np.int8] | NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.query)

    def take(self, at: Array) -> "Links":
        """Return a subset of the pairs, by mask or indices."""
        return Links(self.query[at], self.row[at], self.similarity[at], self.view[at])

    def of_rows(self, rows: Ints) -> "Links":
        """Return the pairs with queries, indices into ``rows``, replaced by rows, without self-pairs."""
        pairs = Links(rows[self.query], self.row, self.similarity, self.view)
        return pairs.take(pairs.query != pairs.row)

    def first_of_each(self, *keys: Array) -> "Links":
        """Return the first pair of each row, by keys of shape (P,), the most important one first; then in order."""
        ordered = self.take(np.lexsort((*reversed(keys), self.row)))
        return ordered.take(np.unique(ordered.row, return_index=True)[1])


def joined(parts: Sequence[Links]) -> Links:
    """Return the pairs of all parts, one part after another."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Links(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.int8))
    query, row, similarity, view = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("query", "row", "similarity", "view")
    )
    return Links(query, row, similarity, view)


def best_of(parts: Sequence[Links]) -> Links:
    """Return each pair once, with its largest similarity; ties go to the earlier part."""
    if len(parts) == 1:
        return parts[0]
    every = joined(parts)
    every = every.take(np.lexsort((-every.similarity, every.row, every.query)))  # stable sort: parts keep their order
    first = np.ones(len(every), bool)
    first[1:] = (every.query[1:] != every.query[:-1]) | (every.row[1:] != every.row[:-1])
    return every.take(first)


def first_of(parts: Sequence[Links]) -> Links:
    """Return for each row the pair with its lowest query; among several, the most similar."""
    every = joined(parts)
    return every.first_of_each(every.query, -every.similarity)


def in_chunks(
    search: Callable[[Ints], Links], rows: Ints, *, most: int = 4096, least: int | None = None, many: int = 1_000_000
) -> Iterator[Links]:
    """Yield the pairs of rows, queried in growing chunks: twice as many as before, or a quarter after many pairs.

    Args:
        search: rows -> pairs.
        rows: to query, shape (R,).
        most: maximal size of a chunk.
        least: minimal size after many pairs; None for the size of the first chunk.
        many: number of pairs above which chunks shrink.
    """
    at, size, least = 0, FIRST, FIRST if least is None else least
    while at < len(rows):
        links = search(rows[at : at + size])
        yield links
        at += size
        size = max(size // 4, least) if len(links) > many else min(2 * size, most)


def mask_of(rows: Ints, n: int) -> Mask:
    """Return a mask of n rows, True for the given ones."""
    mask = np.zeros(n, bool)
    mask[rows] = True
    return mask
