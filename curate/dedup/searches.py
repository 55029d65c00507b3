"""Finders at work: each answers for some of the rows at a time, so that nobody ever holds all pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.dedup.elk import Radius
from curate.dedup.rows import Rows
from scoring.images.views import AS_IT_IS, View
from scoring.search import CosineIndex, HammingIndex, Recall

PAIRS = 65_536  # pairs measured at a time
Views = tuple[View, ...]
ONE_VIEW: Views = (View(AS_IT_IS, lambda signatures: signatures),)


@dataclass(frozen=True)
class Links:
    """P pairs of rows that are the same.

    Attributes:
        query: row asked about, shape (P,) int64; of the table, or of another one for ``Search.foreign``.
        row: the other row, shape (P,) int64; never the row asked about.
        similarity: in the unit of the finder, shape (P,) float32.
        view: which view of the row asked about matched, shape (P,) int8, an index into the run's views.
    """

    query: NDArray[np.int64]
    row: NDArray[np.int64]
    similarity: NDArray[np.float32]
    view: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.query)

    def take(self, at: NDArray) -> "Links":
        """Return some of the pairs: a mask, or indices."""
        return Links(self.query[at], self.row[at], self.similarity[at], self.view[at])


class Search(Protocol):
    """A finder that has been built on N rows."""

    higher: bool  # whether a larger similarity is more alike

    @property
    def recall(self) -> Recall | None:
        """What share of the pairs it finds; None where it finds all by its nature."""

    @property
    def notes(self) -> Sequence[str]:
        """What a person should know."""

    def links(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row in ``rows`` and one that ``among``, shape (N,), marks."""

    def foreign(self, rows: Rows, among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row of another table and one of this that ``among`` marks."""

    def measure(self, query: NDArray[np.int64], row: NDArray[np.int64]) -> Links:
        """Return the similarity of pairs of rows of this table, whether or not they reach the threshold."""


class SameText:
    """Rows that are equal in a text column."""

    higher = True
    recall: Recall | None = None
    notes: tuple[str, ...] = ()

    def __init__(self, column: pa.ChunkedArray, name: str = "sha256") -> None:
        self.name = name
        encoded = pc.dictionary_encode(column).combine_chunks()
        self.known: pa.Array = encoded.dictionary
        self.codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        self.order = np.argsort(self.codes, kind="stable")
        self.starts = np.searchsorted(self.codes[self.order], np.arange(len(self.known) + 1))

    def links(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row in ``rows`` and one that ``among`` marks."""
        found = self._members(rows, self.codes[rows], among)
        return found.take(found.query != found.row)

    def foreign(self, rows: Rows, among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row of another table and one of this."""
        codes = pc.fill_null(pc.index_in(rows.texts[self.name], self.known), -1).to_numpy().astype(np.int64)
        return self._members(np.arange(len(codes)), codes, among)

    def _members(self, rows: NDArray[np.int64], codes: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        rows, codes = rows[codes >= 0], codes[codes >= 0]
        counts = self.starts[codes + 1] - self.starts[codes]
        query = np.repeat(rows, counts)
        within = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)
        other = self.order[np.repeat(self.starts[codes], counts) + within]
        keep = among[other]
        n = int(keep.sum())
        return Links(query[keep], other[keep], np.ones(n, np.float32), np.zeros(n, np.int8))

    def measure(self, query: NDArray[np.int64], row: NDArray[np.int64]) -> Links:
        """Return 1 for each pair that is equal, else 0."""
        equal = (self.codes[query] == self.codes[row]) & (self.codes[query] >= 0)
        return Links(query, row, equal.astype(np.float32), np.zeros(len(row), np.int8))


class NearHash:
    """Rows whose perceptual hashes differ in few bits."""

    higher = False
    recall: Recall | None = None
    notes: tuple[str, ...] = ()

    def __init__(self, rows: Rows, radius: float) -> None:
        if rows.phash is None or rows.has_phash is None:
            raise ValueError("rows were read without phash")
        self.there = np.flatnonzero(rows.has_phash & rows.ok)
        self.codes = rows.phash
        self.index = HammingIndex(rows.phash[self.there], int(radius))

    def links(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row in ``rows`` and one that ``among`` marks."""
        rows = rows[np.isin(rows, self.there)]
        found = self._search(rows, self.codes[rows], among)
        return found.take(found.query != found.row)

    def foreign(self, rows: Rows, among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row of another table and one of this."""
        if rows.phash is None or rows.has_phash is None:
            raise ValueError("rows were read without phash")
        theirs = np.flatnonzero(rows.has_phash & rows.ok)
        return self._search(theirs, rows.phash[theirs], among)

    def _search(self, rows: NDArray[np.int64], codes: NDArray[np.uint64], among: NDArray[np.bool_]) -> Links:
        found = self.index.search(codes, among[self.there])
        n = len(found.query)
        return Links(rows[found.query], self.there[found.row], found.similarity, np.zeros(n, np.int8))

    def measure(self, query: NDArray[np.int64], row: NDArray[np.int64]) -> Links:
        """Return the bits in which each pair differs."""
        bits = np.bitwise_count(self.codes[query] ^ self.codes[row]).astype(np.float32)
        return Links(query, row, bits, np.zeros(len(row), np.int8))


class NearVector:
    """Rows whose vectors have a cosine of at least a threshold, in any of the views asked for."""

    higher = True
    notes: tuple[str, ...] = ()

    def __init__(self, vectors: NDArray, threshold: float, name: str, views: Views = ONE_VIEW) -> None:
        self.vectors, self.name, self.views = vectors, name, views
        self.index = CosineIndex(vectors, threshold)

    @property
    def recall(self) -> Recall | None:
        """What share of the pairs the index finds, by a sample."""
        return self.index.recall

    def links(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row in ``rows`` and one that ``among`` marks."""
        found = self._search(rows, self.vectors[rows], among)
        return found.take(found.query != found.row)

    def foreign(self, rows: Rows, among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row of another table and one of this."""
        vectors = getattr(rows, self.name)
        return self._search(np.arange(len(vectors)), vectors, among)

    def _search(self, rows: NDArray[np.int64], vectors: NDArray, among: NDArray[np.bool_]) -> Links:
        parts = []
        for number, view in enumerate(self.views):
            found = self.index.search(view.apply(vectors), among)
            seen = np.full(len(found.query), number, np.int8)
            parts.append(Links(rows[found.query], found.row, found.similarity, seen))
        return best_of(parts)

    def measure(self, query: NDArray[np.int64], row: NDArray[np.int64]) -> Links:
        """Return the largest cosine of each pair over the views of the first; 0 where one has no vector."""
        best, seen = np.full(len(row), -np.inf, np.float32), np.zeros(len(row), np.int8)
        for start in range(0, len(row), PAIRS):
            here = slice(start, start + PAIRS)
            other = unit(self.vectors[row[here]])
            for number, view in enumerate(self.views):
                cosine = np.einsum("pd,pd->p", unit(view.apply(self.vectors[query[here]])), other)
                better = cosine > best[here]
                best[here], seen[here] = np.where(better, cosine, best[here]), np.where(better, number, seen[here])
        return Links(query, row, best, seen)


class NearDistribution:
    """Rows whose distributions overlap: by the expected likelihood kernel, told as the cosine at the median kappa."""

    higher = True

    def __init__(self, rows: Rows, threshold: float, kappa: str) -> None:
        if rows.embedding is None:
            raise ValueError("rows were read without embedding")
        self.kappas = rows.numbers[kappa]
        self.kappa = kappa
        self.there = rows.embedding.any(1) & rows.ok
        self.radius = Radius.of(self.kappas[self.there], threshold, rows.embedding.shape[1], name=kappa)
        self.near = NearVector(rows.embedding, self.radius.loosest, "embedding")
        self.notes = tuple(f"elk: {line}" for line in self.radius.lines())

    @property
    def recall(self) -> Recall | None:
        """What share of the pairs the index finds at the loosest cosine of any pair, by a sample."""
        return self.near.recall

    def links(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row in ``rows`` and one that ``among`` marks."""
        found = self.near.links(rows, among)
        return self._matching(found, self.kappas[found.query])

    def foreign(self, rows: Rows, among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row of another table and one of this; this table's median kappa counts."""
        found = self.near.foreign(rows, among)
        return self._matching(found, rows.numbers[self.kappa][found.query])

    def measure(self, query: NDArray[np.int64], row: NDArray[np.int64]) -> Links:
        """Return the similarity of each pair."""
        found = self.near.measure(query, row)
        similarity = self.radius.similarity(found.similarity, self.kappas[query], self.kappas[row])
        return Links(query, row, similarity.astype(np.float32), found.view)

    def _matching(self, found: Links, kappas: NDArray[np.float64]) -> Links:
        similarity = self.radius.similarity(found.similarity, kappas, self.kappas[found.row])
        told = Links(found.query, found.row, similarity.astype(np.float32), found.view)
        return told.take(similarity >= self.radius.threshold)


def unit(vectors: NDArray) -> NDArray[np.float64]:
    """Return rows of length 1 in float64; rows of zeros stay zero."""
    wide = vectors.astype(np.float64)
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / np.where(length > 0, length, 1)


def best_of(parts: list[Links]) -> Links:
    """Return each pair once, with its largest similarity; of equal ones the earlier part's."""
    if len(parts) == 1:
        return parts[0]
    query = np.concatenate([part.query for part in parts])
    row = np.concatenate([part.row for part in parts])
    similarity = np.concatenate([part.similarity for part in parts])
    view = np.concatenate([part.view for part in parts])
    order = np.lexsort((-similarity, row, query))  # stable: equal ones keep the order of the parts
    first = np.ones(len(order), bool)
    first[1:] = (query[order][1:] != query[order][:-1]) | (row[order][1:] != row[order][:-1])
    at = order[first]
    return Links(query[at], row[at], similarity[at], view[at])
