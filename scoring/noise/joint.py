"""Confident learning: how often a class bears the label of another."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scoring.noise.chances import Chances

PRIOR_ROWS = 20.0  # rows of each class that speak for mistakes spread evenly
BLOCK = 65_536


@dataclass(frozen=True)
class ConfidentJoint:
    """How many rows of a given label are, with confidence, of a class: only the pairs that there are.

    Attributes:
        pair: given class times C plus class, ascending, shape (P,) int64.
        count: rows, shape (P,) int64.
        n_classes: C.
        confident: the class of each row that is counted, else -1, shape (N,) int32.
    """

    pair: NDArray[np.int64]
    count: NDArray[np.int64]
    n_classes: int
    confident: NDArray[np.int32]

    @property
    def given(self) -> NDArray[np.int64]:
        """The given class of each pair, shape (P,)."""
        return self.pair // self.n_classes

    @property
    def true(self) -> NDArray[np.int64]:
        """The class of each pair, shape (P,)."""
        return self.pair % self.n_classes

    def at(self, given: NDArray[np.integer], true: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the count of pairs, of any shape, 0 if absent."""
        wanted = given.astype(np.int64) * self.n_classes + true
        if not len(self.pair):
            return np.zeros(wanted.shape, np.int64)
        place = np.searchsorted(self.pair, wanted).clip(max=len(self.pair) - 1)
        return np.where(self.pair[place] == wanted, self.count[place], 0)


def confident_joint(chances: Chances, given: NDArray[np.integer], n_classes: int) -> ConfidentJoint:
    """Count rows by the label given and the class that they are confidently of.

    A row is confidently of the likeliest class whose probability reaches the mean probability that rows with that label
    have of it. Classes beyond the ones that ``Chances`` keeps are not looked at.

    Args:
        chances: of N rows.
        given: classes, shape (N,); of no account where ``chances.own`` is NaN.
        n_classes: C.

    Source: Northcutt, Jiang and Chuang 2021, arXiv:1911.00068, eq. 1 and 2.
    """
    known = np.flatnonzero(~np.isnan(chances.own))
    labels = given[known].astype(np.int64)
    rows = np.bincount(labels, minlength=n_classes)
    total = np.bincount(labels, chances.own[known], minlength=n_classes)
    threshold = np.where(rows > 0, total / np.maximum(rows, 1), np.inf) - 1e-9
    confident = np.full(len(chances.own), -1, np.int32)
    for start in range(0, len(known), BLOCK):
        at = known[start : start + BLOCK]
        index = chances.index[at]
        reached = chances.chance[at] >= threshold[index]
        first = reached.argmax(1)
        which = np.arange(len(at))
        confident[at] = np.where(reached[which, first], index[which, first], -1)
    counted = known[confident[known] >= 0]
    pairs = given[counted].astype(np.int64) * n_classes + confident[counted]
    pair, count = np.unique(pairs, return_counts=True)
    return ConfidentJoint(pair, count, n_classes, confident)


@dataclass(frozen=True)
class Mistakes:
    """How likely a row of one class is to bear the label of another, from a confident joint.

    Attributes:
        joint: as counted.
        of_class: confident rows of each class, shape (C,).
        rate: share of confident rows whose label is another class, with one of each kind added.
    """

    joint: ConfidentJoint
    of_class: NDArray[np.int64]
    rate: float

    @classmethod
    def of(cls, joint: ConfidentJoint) -> "Mistakes":
        """Return what a joint says."""
        of_class = np.bincount(joint.true, joint.count, minlength=joint.n_classes).astype(np.int64)
        wrong = int(joint.count[joint.given != joint.true].sum())
        return cls(joint, of_class, (wrong + 1) / (int(joint.count.sum()) + 2))

    def chance(self, given: NDArray[np.integer], true: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the probability of a label given the class, of any shape.

        As if ``PRIOR_ROWS`` more rows of each class were mistaken at the rate of all, for every other class alike.
        """
        even = np.where(given == true, 1 - self.rate, self.rate / max(self.joint.n_classes - 1, 1))
        return (self.joint.at(given, true) + PRIOR_ROWS * even) / (self.of_class[true] + PRIOR_ROWS)
