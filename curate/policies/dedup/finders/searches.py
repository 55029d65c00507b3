"""Finders on a table that query a few rows at a time, so that not all pairs are in memory."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.counted import counted
from curate.policies.dedup.finders.links import Links, best_of, first_of, joined
from curate.policies.dedup.options import Progress
from curate.tables.rows import Rows
from scoring.arrays import Array, Floats, Ints, Mask
from scoring.errors import InputError
from scoring.images.signature import AS_IT_IS, SignatureView, views
from scoring.search.few import FEW, FewCosines
from scoring.search.hamming import HammingIndex
from scoring.search.links import Links as Near
from scoring.search.links import Recall

if TYPE_CHECKING:
    from scoring.search.cosine import CosineIndex

EVERY_PAIR = "every pair was compared"
PAIRS = 65_536  # pairs per block
FLAT = np.uint64(1 << 63)  # the hash of every image of one colour, whatever the colour
Views = tuple[SignatureView, ...]
SINGLE_VIEW: Views = views()


class Search(Protocol):
    """A finder built on N rows."""

    higher: bool = True  # whether a larger similarity is more alike

    @property
    def recall(self) -> Recall | None:
        """Share of the pairs that are found; None for all."""
        return None

    @property
    def extent(self) -> str:
        """A text on which pairs are compared, if ``recall`` does not apply."""
        return EVERY_PAIR

    @property
    def notes(self) -> Sequence[str]:
        """Facts for the user, one sentence each."""
        return ()

    def links(self, rows: Ints, among: Mask) -> Links:
        """Return the pairs of a row in ``rows`` and a row in the mask ``among``, shape (N,)."""

    def first(self, rows: Ints, among: Mask) -> Links:
        """Return, for each row in the mask ``among``, the pair with the first of ``rows`` that matches it.

        At most N pairs. A row that is itself in ``rows`` is paired with an earlier one, if there is any.
        """

    def foreign(self, rows: Rows, among: Mask, some: Ints | None = None) -> Links:
        """Return the pairs of a row of another table, all or ``some``, and a row of this table."""

    def measure(self, query: Ints, row: Ints) -> Links:
        """Return the similarity of pairs of rows of this table, whether or not they reach the threshold."""

    def prepare(self, report: Progress) -> None:
        """Do the work before the first query, calling ``report`` with the numbers of done and all steps."""
        report(0, 1)

    def stricter(self, threshold: float) -> "Search | None":
        """Return the same finder for a stricter threshold; None if it has to be built again."""
        return None


class SameText(Search):
    """Finder of rows that are equal in a text column."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        encoded = pc.dictionary_encode(column).combine_chunks()
        self.known: pa.Array = encoded.dictionary
        self.codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        self.order = np.argsort(self.codes, kind="stable")

    def links(self, rows: Ints, among: Mask) -> Links:
        """Return the pairs of a row in ``rows`` and a row in the mask ``among``."""
        links = self._members(rows, self.codes[rows], among)
        return links.take(links.query != links.row)

    def first(self, rows: Ints, among: Mask) -> Links:
        """Return, for each row in the mask ``among``, the pair with the first of ``rows`` that matches it."""
        lead = np.full(len(self.known) + 1, -1, np.int64)  # the last is of rows without a text
        code, at = np.unique(self.codes[rows], return_index=True)
        lead[code] = rows[at]
        lead[-1] = -1
        row = np.flatnonzero(among)
        query = lead[self.codes[row]]
        is_pair = (query >= 0) & (query != row)
        n = int(is_pair.sum())
        return Links(query[is_pair], row[is_pair], np.ones(n, np.float32), np.zeros(n, np.int8))

    def foreign(self, rows: Rows, among: Mask, some: Ints | None = None) -> Links:
        """Return the pairs of a row of another table and one of this."""
        some = np.arange(len(rows)) if some is None else some
        texts = rows.texts["sha256"].take(pa.array(some))
        codes = pc.fill_null(pc.index_in(texts, self.known), -1).to_numpy().astype(np.int64)
        return self._members(some, codes, among)

    def _members(self, rows: Ints, codes: Ints, among: Mask) -> Links:
        rows, codes = rows[codes >= 0], codes[codes >= 0]
        members = self.order[among[self.order]]
        starts = np.searchsorted(self.codes[members], np.arange(len(self.known) + 1))
        counts = starts[codes + 1] - starts[codes]
        query = np.repeat(rows, counts)
        within = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)
        other = members[np.repeat(starts[codes], counts) + within]
        return Links(query, other, np.ones(len(query), np.float32), np.zeros(len(query), np.int8))

    def measure(self, query: Ints, row: Ints) -> Links:
        """Return 1 for equal pairs, else 0."""
        equal = (self.codes[query] == self.codes[row]) & (self.codes[query] >= 0)
        return Links(query, row, equal.astype(np.float32), np.zeros(len(row), np.int8))


class NearHash(Search):
    """Finder of rows whose perceptual hashes differ in few bits; the hash of an image of one colour is ignored."""

    higher = False
    notes: Sequence[str] = ()

    def __init__(self, rows: Rows, radius: float) -> None:
        self.codes, self.has = rows.array("phash"), _hashed(rows)
        n_flat = int((rows.array("has_phash") & rows.ok).sum() - self.has.sum())
        self.notes = (not_compared("hash", n_flat, "of one flat colour"),) if n_flat else ()
        self.there = np.flatnonzero(self.has)
        self.index = HammingIndex(self.codes[self.there], int(radius))

    def links(self, rows: Ints, among: Mask) -> Links:
        """Return the pairs of a row in ``rows`` and a row in the mask ``among``."""
        rows = rows[self.has[rows]]
        links = self._search(rows, self.codes[rows], among)
        return links.take(links.query != links.row)

    def first(self, rows: Ints, among: Mask) -> Links:
        """Return, for each row in the mask ``among``, the pair with the first of ``rows`` that matches it."""
        rows = rows[self.has[rows]]
        links = self._search(rows, self.codes[rows], among, first=True)
        return links.take(links.query != links.row)

    def foreign(self, rows: Rows, among: Mask, some: Ints | None = None) -> Links:
        """Return the pairs of a row of another table and one of this."""
        has = _hashed(rows)
        other_rows = np.flatnonzero(has) if some is None else some[has[some]]
        return self._search(other_rows, rows.array("phash")[other_rows], among)

    def _search(self, rows: Ints, codes: NDArray[np.uint64], among: Mask, *, first: bool = False) -> Links:
        near = self.index.search(codes, among[self.there], first=first)
        n = len(near.query)
        return Links(rows[near.query], self.there[near.row], near.similarity, np.zeros(n, np.int8))

    def measure(self, query: Ints, row: Ints) -> Links:
        """Return the Hamming distance of each pair."""
        bits = np.bitwise_count(self.codes[query] ^ self.codes[row]).astype(np.float32)
        return Links(query, row, bits, np.zeros(len(row), np.int8))


def not_compared(finder: str, n: int, why: str) -> str:
    """Return a note on rows that a finder ignores; ``why`` is their property.

    >>> not_compared("hash", 1, "of one flat colour"), not_compared("embedding", 2, "an embedding of zeros")
    ('1 row of one flat colour: not compared by hash', '2 rows have an embedding of zeros: not compared by embedding')
    """
    rows = counted(n, "row has", "rows have") if why.startswith("an ") else counted(n, "row")
    return f"{rows} {why}: not compared by {finder}"


def _hashed(rows: Rows) -> Mask:
    """Return a mask of the rows with a hash that can be compared."""
    return np.asarray(rows.array("has_phash") & rows.ok & (rows.array("phash") != FLAT))


def cosine_index(vectors: Array, threshold: float, ties: NDArray[np.uint64] | None) -> "FewCosines | CosineIndex":
    """Return an index of rows (N, D), exact for few rows; results depend on ``ties`` instead of the row order."""
    if len(vectors) <= FEW:
        return FewCosines(vectors, threshold)
    from scoring.search.cosine import CosineIndex

    return CosineIndex(vectors, threshold, order=None if ties is None else np.argsort(ties, kind="stable"))


class NearVector(Search):
    """Finder of rows whose vectors have a cosine of at least a threshold, in any of the requested views."""

    def __init__(
        self,
        vectors: Array,
        threshold: float,
        name: str,
        views: Views = SINGLE_VIEW,
        *,
        ties: NDArray[np.uint64] | None = None,
    ) -> None:
        self.vectors, self.name, self.views = vectors, name, views
        self.threshold, self.ties = threshold, ties

    @cached_property
    def index(self) -> "FewCosines | CosineIndex":
        """The index of all rows."""
        return cosine_index(self.vectors, self.threshold, self.ties)

    @property
    def recall(self) -> Recall | None:
        """Share of the pairs that the index finds, measured on a sample."""
        return self.index.recall

    def links(self, rows: Ints, among: Mask) -> Links:
        """Return the pairs of a row in ``rows`` and a row in the mask ``among``."""
        return best_of(self.search_rows(rows, among)).of_rows(rows)

    def first(self, rows: Ints, among: Mask) -> Links:
        """Return, for each row in the mask ``among``, the pair with the first of ``rows`` that matches it."""
        return first_of(self.search_rows(rows, among, first=True)).of_rows(rows)

    def foreign(self, rows: Rows, among: Mask, some: Ints | None = None) -> Links:
        """Return the pairs of a row of another table and one of this."""
        others = rows.array(self.name)
        if others.shape[1] != self.vectors.shape[1] and len(others) and len(self.vectors):
            raise InputError(
                f"expected vectors of {self.vectors.shape[1]} numbers in the {self.name} column of both tables, got "
                f"{others.shape[1]} in the other; score both with one model"
            )
        some = np.arange(len(others)) if some is None else some
        if not len(some) or not len(self.vectors):
            return joined([])
        vectors = others[some] if others.dtype == self.vectors.dtype else unit(others[some]).astype(self.vectors.dtype)
        links = [self.index.search(view.apply(vectors), among) for view in self.views]
        best_links = best_of([_links_of_view(number, each) for number, each in enumerate(links)])
        return Links(some[best_links.query], best_links.row, best_links.similarity, best_links.view)

    def search_rows(self, rows: Ints, among: Mask, *, first: bool = False) -> list[Links]:
        """Return the pairs that each view finds; with ``first``, only the first pair of each row in a view.

        Queries are indices into ``rows``, and self-pairs are included.
        """
        parts = []
        for number, view in enumerate(self.views):
            if view.name == AS_IT_IS:
                near = self.index.search_rows(rows, among, first=first)
            else:
                near = self.index.search(view.apply(self.vectors[rows]), among, first=first)
            parts.append(_links_of_view(number, near))
        return parts

    def measure(self, query: Ints, row: Ints) -> Links:
        """Return the largest cosine of each pair over the views of the first row; 0 without a vector."""
        best, seen = np.full(len(row), -np.inf, np.float32), np.zeros(len(row), np.int8)
        for start in range(0, len(row), PAIRS):
            part = slice(start, start + PAIRS)
            other = unit(self.vectors[row[part]])
            for number, view in enumerate(self.views):
                cosine = np.einsum("pd,pd->p", unit(view.apply(self.vectors[query[part]])), other)
                better = cosine > best[part]
                best[part], seen[part] = np.where(better, cosine, best[part]), np.where(better, number, seen[part])
        return Links(query, row, best, seen)


def _links_of_view(view: int, near: Near) -> Links:
    """Return links from matches in a view."""
    return Links(near.query, near.row, near.similarity, np.full(len(near), view, np.int8))


def unit(vectors: Array) -> Floats:
    """Return normalised rows in float64; zero rows stay zero."""
    wide = vectors.astype(np.float64)
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / np.where(length > 0, length, 1)
