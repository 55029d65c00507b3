"""Detection of rows with the same image: equal bytes, or near copies by signature and embedding."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import EMBEDDING, SIGNATURE
from curate.tables.needs import PHASH, SHA256
from curate.tables.rows import Rows
from scoring.arrays import Array
from scoring.relative.space import COPY
from scoring.search.hamming import HammingIndex

NEAR_BITS = 3  # of the perceptual hash, in which near copies may differ,
NEAR_COSINE = 0.98  # and the least cosine of their signatures; neither of the two sees noise or mild blur
BLOCK = 65_536
LEAST_NAMED = 2  # copies of one image from which a group is reported
FEWEST_SHARE = 0.01  # of rows that are copies, below which nothing is reported


@dataclass(frozen=True)
class Copies:
    """Groups of M rows with the same image.

    Attributes:
        first: first row of each row's group, shape (M,).
        unique: first rows of the groups, shape (U,), ascending.
        place: index into ``unique`` for each row, shape (M,).
        count: size of each row's group, shape (M,).
    """

    first: NDArray[np.int64]
    unique: NDArray[np.int64]
    place: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def of(cls, first: NDArray[np.int64]) -> "Copies":
        """Return groups from the first row of each row's group."""
        unique, place, size = np.unique(first, return_inverse=True, return_counts=True)
        return cls(first, unique, place, size[place])

    def words(self) -> str:
        """Return a note on the number of copies; empty for very few."""
        sizes = self.count[self.unique]
        several = sizes[sizes >= LEAST_NAMED]
        n_rows = int(several.sum())
        if n_rows < max(1, FEWEST_SHARE * len(self.first)):
            return ""
        images = f"{len(several):,} image{'s' if len(several) > 1 else ''}"
        return (
            f"{n_rows:,} of {len(self.first):,} rows are copies of {images}; the largest group has "
            f"{int(several.max()):,}: each image counts once in the scores"
        )


def columns_for_copies(names: list[str]) -> frozenset[str]:
    """Return the columns of a table that identify copies."""
    looks = {PHASH, SIGNATURE, EMBEDDING}
    return frozenset((looks if looks <= set(names) else set()) | ({SHA256} & set(names)))


def find_copies(rows: Rows, at: NDArray[np.int64]) -> Copies:
    """Return the groups of rows that show the same image: equal digests, then nearly equal signatures.

    Near copies have close hashes, similar signatures and similar embeddings: a blurred or noisy version of an image
    looks the same at 32 pixels, but not to the model, and is not a copy.

    Args:
        rows: with the columns of ``columns_for_copies``; without embeddings only equal digests are copies.
        at: rows to group, shape (M,), ascending; the result has indices into them.
    """
    first = np.arange(len(at))
    if SHA256 in rows.texts:
        first = first_equal(rows.texts[SHA256].take(pa.array(at)))
    looks = rows.signature, rows.embedding
    if rows.phash is not None and rows.has_phash is not None and looks[0] is not None and looks[1] is not None:
        some = np.flatnonzero((first == np.arange(len(at))) & rows.has_phash[at])
        cosines = [(looks[0], NEAR_COSINE), (looks[1], COPY)]
        first[some] = some[_first_near(rows.phash[at[some]], cosines, at[some])]
        first = roots(first)
    return Copies.of(first)


def first_equal(values: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the first row with the same text for each row; the row itself without text."""
    rows = pl.DataFrame({"text": pl.Series(values), "row": np.arange(len(values))})
    first = pl.when(pl.col("text").is_null()).then("row").otherwise(pl.col("row").first().over("text"))
    return rows.select(first).to_series().to_numpy(writable=True)


def _first_near(
    phash: NDArray[np.uint64], looks: Sequence[tuple[Array, float]], at: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return, for each of S rows, the first near copy: close hashes, confirmed by vectors.

    Args:
        phash: shape (S,).
        looks: pairs of vectors of all rows of the table, shape (N, D), and the minimal cosine of copies.
        at: the rows in the table, shape (S,).
    """
    first = np.arange(len(phash))
    if len(phash) < LEAST_NAMED:
        return first
    links = HammingIndex(phash, NEAR_BITS).search(phash, first=True)
    candidate = first.copy()
    candidate[links.row] = np.minimum(links.query, links.row)
    linked = np.flatnonzero(candidate != first)
    for start in range(0, len(linked), BLOCK):
        some = linked[start : start + BLOCK]
        near = np.logical_and.reduce([_cosine(of, at[some], at[candidate[some]]) >= least for of, least in looks])
        first[some[near]] = candidate[some[near]]
    return first


def _cosine(vectors: Array, rows: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the cosine of pairs of rows; 0 for a zero row."""
    a, b = vectors[rows].astype(np.float32), vectors[others].astype(np.float32)
    length = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray(np.divide((a * b).sum(1), length, out=np.zeros(len(a), np.float32), where=length > 0))


def roots(parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the root of each row, shape (N,), from a row above it, or itself."""
    while True:
        above = parent[parent]
        if np.array_equal(above, parent):
            return parent
        parent = above
