"""Rows that annotators would call near-duplicates: pairs that lie close, verified by all that the table knows."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.nearby import NearPairs
from curate.policies.dedup.finders.parts import PartOf
from curate.policies.dedup.finders.surroundings import Side, Surroundings
from curate.policies.dedup.finders.verifier import FIRST, FITTED, LEAST_TO_FIT, probability_of

ALIKE = 0.94  # cosine of whole images from which no part is looked for


class Verified(NearPairs[Side]):
    """Pairs whose probability of being near-duplicates, by the verifier, reaches the threshold."""

    @cached_property
    def parts(self) -> PartOf:
        """The fit of parts of images."""
        return PartOf(self.signatures, ALIKE, self.views)

    @cached_property
    def surroundings(self) -> Surroundings:
        """The dataset around the rows."""
        return Surroundings(self.vectors, self.signatures, self.compared, self.graph.index, self.views)

    @property
    def side(self) -> Side:
        """The rows of this table in their dataset."""
        return self.surroundings.side

    def other(self, vectors: NDArray, signatures: NDArray[np.int8], near: NDArray[np.int64]) -> Side:
        """Return rows of another table next to this dataset."""
        return self.surroundings.other(vectors, signatures, near)

    def judge(
        self, query: NDArray[np.int64], row: NDArray[np.int64], side: Side
    ) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Return the probabilities and looks of pairs of a row of a side and one of this table."""
        odds, view = self._odds(query, row, side)
        return probability_of(odds).astype(np.float32), view

    def _odds(
        self, query: NDArray[np.int64], row: NDArray[np.int64], side: Side
    ) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Return log odds and views of pairs; parts are fitted only where that may change what is reported."""
        evidence, seen = self.surroundings.evidence(side, query, self.surroundings.side, row)
        odds, view = FIRST.log_odds(evidence), seen.astype(np.int32)
        may = np.flatnonzero(probability_of(odds) >= LEAST_TO_FIT)
        fit = self.parts.measured(query[may], side.signatures, row[may])
        again = FITTED.log_odds(evidence[may], fit.similarity.astype(np.float64))
        more_certain = (
            again >= odds[may]
        )  # the more certain one counts: a fit of parts must not doubt images that agree as they are
        odds[may[more_certain]], view[may[more_certain]] = again[more_certain], fit.view[more_certain]
        return odds, view
