"""Rows relative to their dataset: similarity after centring, and the density around each row."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.tables.vectors import rows_of
from scoring.arrays import Array, Floats, Ints
from scoring.images.signature import SignatureView
from scoring.relative.space import mean_of, unit

SPAN = slice(1, 15)  # neighbours, nearest first, that measure the density at a row
COPY = 0.9  # cosine of signatures from which a neighbour is a copy
CROWDED = 0.95  # quantile at which the density is clipped, against groups of copies
LEAST = 0.3  # smallest density, since in a small dataset everything stands out
FEWEST = 17  # minimal rows for centring and densities
CAREFUL = 0.64  # density with fewer rows: about the largest in a large dataset
BLOCK = 4096  # rows at a time
PAIRS = 16_384  # pairs at a time


@dataclass(frozen=True)
class Side:
    """N rows of a table for the verifier, relative to one dataset.

    Attributes:
        vectors: embeddings, shape (N, D).
        signatures: shape (N, 255) int8.
        along: inner product of each normalised row with the dataset's mean, shape (N,).
        length: norm of each row minus that mean, shape (N,).
        crowding: mean centred cosine of a row with its 2nd to 15th nearest row of the dataset, without copies, shape
            (N,).
    """

    vectors: Array
    signatures: NDArray[np.int8]
    along: Floats
    length: Floats
    crowding: Floats


class Surroundings:
    """A dataset of M rows: its mean, and its density at each row.

    Args:
        vectors: embeddings of a table, shape (N, D).
        signatures: shape (N, 255) int8.
        at: the M rows, ascending, without zero embeddings.
        neighbours: nearest of these rows for each, nearest first, -1 for none, shape (M, k).
        views: of an image.
    """

    def __init__(
        self,
        vectors: Array,
        signatures: NDArray[np.int8],
        at: Ints,
        neighbours: NDArray[np.int32],
        views: tuple[SignatureView, ...],
    ) -> None:
        self.at, self.views = at, views
        few = len(at) < FEWEST
        self.mean = np.zeros(vectors.shape[1]) if few else mean_of(rows_of(vectors, at)).astype(np.float64)
        along, length = self._against_mean(vectors)
        bare = Side(vectors, signatures, along, length, np.zeros(len(vectors)))
        cosine = np.full(neighbours.shape, -np.inf)
        row, column = np.nonzero(neighbours >= 0)
        cosine[row, column] = self._content_without_copies(bare, at[row], bare, at[neighbours[row, column]])
        crowds = np.full(len(at), CAREFUL) if few else _crowding(cosine)
        self.most = max(LEAST, float(np.quantile(crowds, CROWDED))) if len(at) else CAREFUL
        crowding = np.zeros(len(vectors))
        crowding[at] = crowds.clip(LEAST, self.most)
        self.side = Side(vectors, signatures, along, length, crowding)

    def other(self, vectors: Array, signatures: NDArray[np.int8], near: Ints) -> Side:
        """Return rows of another table relative to this dataset.

        Args:
            vectors: shape (Q, D), no zero rows.
            signatures: shape (Q, 255) int8.
            near: nearest rows of the dataset, shape (Q, k).
        """
        along, length = self._against_mean(vectors)
        bare = Side(vectors, signatures, along, length, np.zeros(len(vectors)))
        row = np.repeat(np.arange(len(vectors)), near.shape[1])
        cosine = self._content_without_copies(bare, row, self.side, near.ravel()).reshape(near.shape)
        crowds = np.full(len(vectors), CAREFUL) if len(self.at) < FEWEST else _crowding(cosine)
        return Side(vectors, signatures, along, length, crowds.clip(LEAST, self.most))

    def content(self, side: Side, a: Ints, two: Side, b: Ints) -> Floats:
        """Return the cosine of centred rows, shape (P,); 0 for a row at the mean.

        (u - m)(v - m) = u v - u m - v m + m m, for rows u and v of length 1.
        """
        products = np.empty(len(a))
        for start in range(0, len(a), PAIRS):
            part = slice(start, start + PAIRS)
            left, right = unit(side.vectors[a[part]]), unit(two.vectors[b[part]])
            products[part] = np.einsum("pd,pd->p", left, right, dtype=np.float64)
        products += self.mean @ self.mean - side.along[a] - two.along[b]
        lengths = side.length[a] * two.length[b]
        return np.clip(np.divide(products, lengths, out=np.zeros(len(a)), where=lengths > 1e-9), -1, 1)

    def evidence(self, side: Side, a: Ints, two: Side, b: Ints) -> tuple[Floats, NDArray[np.int8]]:
        """Return the evidence for pairs (a, b), as for ``Weights``, and the view of a that is most similar to b."""
        signature, seen = signature_cosine(side.signatures, a, two.signatures, b, self.views)
        around = side.crowding[a], two.crowding[b]
        content = self.content(side, a, two, b)
        return np.stack([content, signature, np.maximum(*around), np.minimum(*around)], 1), seen

    def _content_without_copies(self, side: Side, a: Ints, two: Side, b: Ints) -> Floats:
        """Return ``content`` of pairs, but -inf for copies, which would count as density."""
        signature, _ = signature_cosine(side.signatures, a, two.signatures, b, self.views)
        return np.where(signature >= COPY, -np.inf, self.content(side, a, two, b))

    def _against_mean(self, vectors: Array) -> tuple[Floats, Floats]:
        along, square = np.empty(len(vectors)), np.empty(len(vectors))
        for start in range(0, len(vectors), BLOCK):
            rows = unit(vectors[start : start + BLOCK]).astype(np.float64)
            along[start : start + BLOCK] = rows @ self.mean
            square[start : start + BLOCK] = ((rows - self.mean) ** 2).sum(1)
        return along, np.sqrt(square)


def signature_cosine(
    signatures: NDArray[np.int8], a: Ints, others: NDArray[np.int8], b: Ints, views: tuple[SignatureView, ...]
) -> tuple[Floats, NDArray[np.int8]]:
    """Return the largest cosine of the signatures of pairs over the views of the first image, and that view."""
    best, seen = np.full(len(a), -1.0), np.zeros(len(a), np.int8)
    for start in range(0, len(a), PAIRS):
        part = slice(start, start + PAIRS)
        right = unit(others[b[part]])
        for number, view in enumerate(views):
            cosine = np.einsum("pd,pd->p", unit(view.apply(signatures[a[part]])), right, dtype=np.float64)
            better = cosine > best[part]
            best[part], seen[part] = np.where(better, cosine, best[part]), np.where(better, number, seen[part])
    return best, seen


def nearest_of(queries: Array, references: Array, k: int) -> Ints:
    """Return the references (M, D) nearest to each query (Q, D), shape (Q, min(k, M))."""
    k = min(k, len(references))
    if not k or not len(queries):
        return np.zeros((len(queries), k), np.int64)
    import torch

    from scoring.metrics.neighbours import nearest

    _, index = nearest(torch.from_numpy(unit(queries)), torch.from_numpy(unit(references)), k)
    return index.numpy()


def _crowding(cosine: Floats) -> Floats:
    """Return the mean of the neighbours in ``SPAN``, from cosines (M, k) in any order, -inf for none."""
    ordered = -np.sort(-cosine, axis=1)[:, SPAN]
    is_known = np.isfinite(ordered)
    counts = is_known.sum(1)
    total = np.where(is_known, ordered, 0).sum(1)
    return np.where(counts > 0, total / np.maximum(counts, 1), CAREFUL)
