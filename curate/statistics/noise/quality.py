"""Class probabilities of rows, and the quality of their labels, by confident learning."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_KEPT = 16  # classes stored per row
LEAST = 1e-9  # smallest probability of a class


@dataclass(frozen=True)
class ClassProbabilities:
    """Out-of-fold class probabilities of rows.

    Attributes:
        index: the K most likely classes, most likely first, shape (N, K) int32.
        probability: of each, shape (N, K) float32.
        of_label: of the row's label, shape (N,) float32; NaN without a label, or for a class unknown to the models.
    """

    index: NDArray[np.int32]
    probability: NDArray[np.float32]
    of_label: NDArray[np.float32]

    @classmethod
    def room(cls, n: int, n_classes: int) -> "ClassProbabilities":
        """Return uninitialised probabilities of n rows, to be filled by ``put``."""
        k = min(MOST_KEPT, n_classes)
        return cls(np.zeros((n, k), np.int32), np.zeros((n, k), np.float32), np.full(n, np.nan, np.float32))

    def put(self, rows: NDArray[np.int64], labels: NDArray[np.int64], probabilities: NDArray[np.floating]) -> None:
        """Store the most likely classes of rows.

        Args:
            rows: shape (B,).
            labels: class of each, shape (B,); -1 for none.
            probabilities: of all classes, shape (B, C).
        """
        k = self.index.shape[1]
        top = np.argpartition(-probabilities, k - 1, axis=1)[:, :k]
        largest = np.take_along_axis(probabilities, top, 1)
        order = np.lexsort((top, -largest), axis=1)  # ties go to the lower class
        self.index[rows] = np.take_along_axis(top, order, 1)
        self.probability[rows] = np.take_along_axis(largest, order, 1)
        of_label = probabilities[np.arange(len(rows)), labels.clip(0)]
        self.of_label[rows] = np.where(labels >= 0, of_label, np.nan)


def trust(probabilities: ClassProbabilities) -> NDArray[np.float32]:
    """Return the weight of each row's label in training, shape (N,), in [0, 1].

    The probability of the label over the largest probability: 1 if the label is the most likely class, 0 if unknown.
    """
    share = probabilities.of_label / np.maximum(probabilities.probability[:, 0], LEAST)
    return np.nan_to_num(np.minimum(share, 1), nan=0.0).astype(np.float32)


PRIOR_ROWS = 20.0  # prior rows per class with evenly spread errors
BLOCK = 65_536
HALF = 0.5  # exponent of the label noise: 0 ignores it, 1 trusts it fully
STEPS = 1e-6  # rounding of a quality, below the tolerance of `curate verify`: last bits differ between machines


@dataclass(frozen=True)
class ConfidentJoint:
    """Counts of rows by label and confidently predicted class, for each pair that occurs.

    Attributes:
        pair: label times C plus class, ascending, shape (P,) int64.
        count: rows, shape (P,) int64.
        n_classes: C.
        confident: the class of each counted row, else -1, shape (N,) int32.
    """

    pair: NDArray[np.int64]
    count: NDArray[np.int64]
    n_classes: int
    confident: NDArray[np.int32]

    @property
    def label(self) -> NDArray[np.int64]:
        """The label of each pair, shape (P,)."""
        return self.pair // self.n_classes

    @property
    def true(self) -> NDArray[np.int64]:
        """The class of each pair, shape (P,)."""
        return self.pair % self.n_classes

    def at(self, labels: NDArray[np.integer], true: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the counts of pairs, any shape, 0 if absent."""
        code = labels.astype(np.int64) * self.n_classes + true
        if not len(self.pair):
            return np.zeros(code.shape, np.int64)
        place = np.searchsorted(self.pair, code).clip(max=len(self.pair) - 1)
        return np.where(self.pair[place] == code, self.count[place], 0)


def confident_joint(probabilities: ClassProbabilities, labels: NDArray[np.integer], n_classes: int) -> ConfidentJoint:
    """Count rows by their label and their confidently predicted class.

    The confident class is the most likely one whose probability reaches the mean probability of that class over rows
    with that label. Only the classes in ``ClassProbabilities`` are considered.

    Args:
        probabilities: of N rows.
        labels: classes, shape (N,); ignored where ``probabilities.of_label`` is NaN.
        n_classes: C.

    Source: Northcutt, Jiang and Chuang 2021, arXiv:1911.00068, eq. 1 and 2.
    """
    known = np.flatnonzero(~np.isnan(probabilities.of_label))
    known_labels = labels[known].astype(np.int64)
    rows = np.bincount(known_labels, minlength=n_classes)
    total = np.bincount(known_labels, probabilities.of_label[known], minlength=n_classes)
    threshold = np.where(rows > 0, total / np.maximum(rows, 1), np.inf) - 1e-9
    confident = np.full(len(probabilities.of_label), -1, np.int32)
    for start in range(0, len(known), BLOCK):
        at = known[start : start + BLOCK]
        index = probabilities.index[at]
        reached = probabilities.probability[at] >= threshold[index]
        first = reached.argmax(1)
        which = np.arange(len(at))
        confident[at] = np.where(reached[which, first], index[which, first], -1)
    counted = known[confident[known] >= 0]
    pair, count = pairs(labels[counted], confident[counted], n_classes)
    return ConfidentJoint(pair, count, n_classes, confident)


def pairs(
    labels: NDArray[np.integer], true: NDArray[np.integer], n_classes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct pairs, label times C plus class, ascending, and their numbers of rows, shape (P,) each."""
    return np.unique(labels.astype(np.int64) * n_classes + true, return_counts=True)


@dataclass(frozen=True)
class Mistakes:
    """The label noise T: probabilities of labels given the class, from a confident joint.

    Attributes:
        joint: the counts.
        of_class: confident rows of each class, shape (C,).
        rate: share of confident rows with the label of another class, with one row of each kind added.
    """

    joint: ConfidentJoint
    of_class: NDArray[np.int64]
    rate: float

    @classmethod
    def of(cls, joint: ConfidentJoint) -> "Mistakes":
        """Estimate the label noise from a confident joint."""
        of_class = np.bincount(joint.true, joint.count, minlength=joint.n_classes).astype(np.int64)
        wrong = int(joint.count[joint.label != joint.true].sum())
        return cls(joint, of_class, (wrong + 1) / (int(joint.count.sum()) + 2))

    def probability(self, label: NDArray[np.integer], true: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the probability of a label given the class, any shape.

        Smoothed by ``PRIOR_ROWS`` additional rows of each class with the overall error rate, spread evenly over other
        classes.
        """
        even = np.where(label == true, 1 - self.rate, self.rate / max(self.joint.n_classes - 1, 1))
        return np.asarray((self.joint.at(label, true) + PRIOR_ROWS * even) / (self.of_class[true] + PRIOR_ROWS))


@dataclass(frozen=True)
class LabelQuality:
    """The estimated quality of the labels of N rows.

    Attributes:
        quality: odds / (1 + odds) of the label against its rival, shape (N,) float32 in [0, 1]; NaN without a label
            or probability.
        suggested: the most likely class, shape (N,) int32: the label if its quality is at least 0.5.
        rival: the most likely class other than the label, shape (N,) int32.
    """

    quality: NDArray[np.float32]
    suggested: NDArray[np.int32]
    rival: NDArray[np.int32]


def judge(probabilities: ClassProbabilities, labels: NDArray[np.integer], mistakes: Mistakes) -> LabelQuality:
    """Return the quality of labels, compared with the most likely other class.

    With p the probabilities of a row and T(k, g) how likely a row of class k has label g, the odds of label g
    are p_g T(g, g)^b over the largest p_k T(k, g)^b of the others, b = 1/2, and the quality is odds / (1 + odds).
    Without T this is the normalised margin in log probabilities, which is low for one strong rival, not for many weak
    ones. T lowers the quality of labels that are often confused with the rival.

    Args:
        probabilities: of N rows.
        labels: classes, shape (N,); ignored where ``probabilities.of_label`` is NaN.
        mistakes: T.
    """
    n = len(probabilities.of_label)
    quality, suggested, rival = np.full(n, np.nan, np.float32), probabilities.index[:, 0].copy(), np.zeros(n, np.int32)
    for start in range(0, n, BLOCK):
        at = slice(start, start + BLOCK)
        index, of_label = probabilities.index[at], probabilities.of_label[at].astype(np.float64)
        known_labels = np.where(np.isnan(of_label), -1, labels[at])
        wide = np.broadcast_to(known_labels.clip(0)[:, None], index.shape)
        logs = np.log(np.maximum(probabilities.probability[at], LEAST)) + HALF * np.log(
            mistakes.probability(wide, index)
        )
        logs[index == known_labels[:, None]] = -np.inf
        best = logs.argmax(1)
        which = np.arange(len(index))
        rival[at] = index[which, best]
        itself = known_labels.clip(0)
        mine = np.log(np.maximum(of_label, LEAST)) + HALF * np.log(mistakes.probability(itself, itself))
        odds = np.clip(mine - logs[which, best], -50, 50)
        rounded = np.round(1 / (1 + np.exp(-odds)) / STEPS) * STEPS
        quality[at] = np.where(np.isnan(of_label), np.nan, rounded)
        suggested[at] = np.where(np.isnan(of_label), index[:, 0], np.where(rounded < HALF, rival[at], known_labels))
    return LabelQuality(quality, suggested, rival)
