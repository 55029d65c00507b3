"""Finder of near-duplicates by a model of annotators' judgements, from embeddings and signatures."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.crops import PartOf
from curate.policies.dedup.finders.nearby import NearPairs
from curate.policies.dedup.finders.surroundings import Side, Surroundings
from scoring.arrays import Array, Floats, Ints

ALIKE = 0.94  # cosine of whole images from which parts are not fitted
SLACK = 0.02  # added to 1 - cosine, as the resolution of cosines


@dataclass(frozen=True)
class Weights:
    """Weights of the log odds of near-duplicates: a sum of weighted closenesses and the intercept.

    Attributes:
        content: at least 0.
        signature: at least 0.
        denser: at most 0, so that a pair must be closer than its neighbourhood.
        sparser: at most 0.
        part: for the best fit of one image as a part of the other, at least 0; 0 without a fit.
        intercept: constant.
    """

    content: float
    signature: float
    denser: float
    sparser: float
    part: float
    intercept: float

    def log_odds(self, evidence: Floats, part: Floats | None = None) -> Floats:
        """Return the log odds of P pairs, shape (P,).

        Args:
            evidence: shape (P, 4): the centred cosine of the embeddings; the largest cosine of the signatures over the
                views; and ``Side.crowding`` of both rows, the larger one first.
            part: cosine of the best fit of one image as a part of the other, if any, shape (P,).
        """
        weights = np.array([self.content, self.signature, self.denser, self.sparser])
        odds = closeness(evidence) @ weights + self.intercept
        return np.asarray(odds if part is None else odds + self.part * closeness(part))


# By examples/train_verifier.py, on embeddings of ``world``.
FIRST = Weights(content=11.488, signature=4.535, denser=-1.772, sparser=-21.975, part=0.0, intercept=-1.992)
FITTED = Weights(content=7.465, signature=0.0, denser=-0.587, sparser=-22.684, part=2.948, intercept=-0.441)
LEAST_TO_FIT = 0.005  # probability by ``FIRST`` from which parts are fitted


def closeness(cosine: Array) -> Floats:
    """Return -log(1.02 - cosine): 3.9 for equal rows, 0 for almost unrelated rows.

    >>> closeness(np.array([1.0, 0.98, 0.52])).round(2).tolist()
    [3.91, 3.22, 0.69]
    """
    return -np.log(1 + SLACK - np.minimum(np.asarray(cosine, np.float64), 1))


def probability_of(log_odds: Floats) -> Floats:
    """Return 1 / (1 + exp(-x))."""
    return 0.5 * (1 + np.tanh(log_odds / 2))


class Verified(NearPairs[Side]):
    """Finder of pairs whose predicted probability of being near-duplicates reaches the threshold."""

    @cached_property
    def parts(self) -> PartOf:
        """The measure of fit between parts of images."""
        return PartOf(self.signatures, ALIKE, self.views)

    @cached_property
    def surroundings(self) -> Surroundings:
        """The neighbours of each row in this table, against which pairs are judged."""
        return Surroundings(self.vectors, self.signatures, self.compared, self.graph.index, self.views)

    @property
    def side(self) -> Side:
        """The rows of this table, for ``judge``."""
        return self.surroundings.side

    def other(self, vectors: Array, signatures: NDArray[np.int8], near: Ints) -> Side:
        """Return rows of another table relative to this dataset."""
        return self.surroundings.other(vectors, signatures, near)

    def judge(self, query: Ints, row: Ints, side: Side) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Return the probabilities and codes of pairs of a row of a side and a row of this table."""
        odds, view = self._odds(query, row, side)
        return probability_of(odds).astype(np.float32), view

    def _odds(self, query: Ints, row: Ints, side: Side) -> tuple[Floats, NDArray[np.int32]]:
        """Return log odds and codes of pairs; parts are only fitted if they may change the result."""
        evidence, seen = self.surroundings.evidence(side, query, self.surroundings.side, row)
        odds, view = FIRST.log_odds(evidence), seen.astype(np.int32)
        may = np.flatnonzero(probability_of(odds) >= LEAST_TO_FIT)
        fit = self.parts.measured(query[may], side.signatures, row[may])
        again = FITTED.log_odds(evidence[may], fit.similarity.astype(np.float64))
        more_certain = (
            again >= odds[may]
        )  # the larger one, since a fit of parts must not lower it for images that agree as a whole
        odds[may[more_certain]], view[may[more_certain]] = again[more_certain], fit.view[more_certain]
        return odds, view
