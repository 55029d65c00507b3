"""Pairs in which one image is a part of the other, as opposed to many images that fit equally well."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from curate.columns import SIGNATURE
from curate.policies.dedup.finders.links import Links
from curate.policies.dedup.finders.nearby import NearPairs
from curate.policies.dedup.finders.parts import PartOf
from curate.policies.dedup.finders.passing import Marked, OfColour
from curate.policies.dedup.finders.surroundings import signature_cosine
from curate.tables.rows import Rows
from scoring.images.crops import coarse_fits
from scoring.images.views import SignatureView

CROWD = 16  # of the nearest rows by embedding, whose median fit is the crowd's
OUTSTANDING = 0.1  # of what the crowd lacks to fit: what a part may lack
FEW = 0.64  # fit of a neighbour that is missing: about what a crowd of plain images has
ALIKE = 0.95  # cosine of whole images, of which the colours are compared: parts of other images show other places


@dataclass(frozen=True)
class Crowd:
    """N rows with the fit of their neighbouring images.

    Attributes:
        signatures: shape (N, 255) int8.
        near: rows of the dataset that lie nearest to each by embedding, the nearest first, -1 for none, shape (N, k).
    """

    signatures: NDArray[np.int8]
    near: NDArray[np.int64]


class NearParts(NearPairs[Crowd]):
    """Pairs in which one image is a part of the other and fits far better than neighbouring images.

    Two products on white fit each other well, and all others as well: a part must lack no more than 10 % of what the
    crowd of either image lacks. One that does not stand out so has the similarity 0.
    """

    n_nearest = CROWD
    n_alike = 0

    @cached_property
    def parts(self) -> PartOf:
        """The fit of parts of images."""
        return PartOf(self.signatures, self.threshold, self.views)

    @cached_property
    def side(self) -> Crowd:
        """The rows of this table within their dataset."""
        neighbours = self.graph.index[:, :CROWD]
        near = np.full((len(self.there), CROWD), -1)
        near[self.compared, : neighbours.shape[1]] = np.where(neighbours >= 0, self.compared[neighbours], -1)
        return Crowd(self.signatures, near)

    def other(self, vectors: NDArray, signatures: NDArray[np.int8], near: NDArray[np.int64]) -> Crowd:
        """Return rows of another table, compared with this dataset."""
        return Crowd(signatures, near)

    def judge(
        self, query: NDArray[np.int64], row: NDArray[np.int64], side: Crowd
    ) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Return the cosines and transformations of pairs of a row of a side and a row of this table.

        A pair that reaches the threshold and does not stand out has 0.
        """
        links = self.parts.likely(query, side.signatures, row)
        similarity, some = links.similarity.copy(), np.flatnonzero(links.similarity >= np.float32(self.threshold))
        crowd = np.maximum(self._fits(side, query[some]), self._fits(self.side, row[some]))
        similarity[some[1 - similarity[some] > OUTSTANDING * (1 - crowd)]] = 0
        return similarity, links.view.astype(np.int32)

    def _fits(self, side: Crowd, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the fit of images near rows of a side, shape (P,).

        The median, over the 16 nearest rows by embedding, of the coarse cosine of the row's best frame with the other.
        """
        some, place = np.unique(rows, return_inverse=True)
        near = side.near[some, :CROWD]
        at, column = np.nonzero(near >= 0)
        every = np.full((len(some), CROWD), FEW)
        every[at, column], _ = coarse_fits(side.signatures, some[at], self.signatures, near[at, column])
        return np.median(every, axis=1)[place]


class PartOfColour(OfColour):
    """A search for parts that links no whole images of different colours, even if their shapes fit."""

    def agree(self, links: Links, side: Rows, view: SignatureView) -> Marked:
        """Return which pairs agree in colour, or are not whole images of one shape, shape (P,)."""
        mine = self.rows.array(SIGNATURE)
        cosine, _ = signature_cosine(side.array(SIGNATURE), links.query, mine, links.row, (view,))
        return (cosine < ALIKE) | super().agree(links, side, view)
