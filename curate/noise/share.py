"""How many labels are wrong: in all, of each class, and between each pair, with intervals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.noise.class_probabilities import ClassProbabilities
from curate.noise.joint import ConfidentJoint
from scoring.metrics.proportions import wilson
from scoring.metrics.resampling import Interval

ANCHORS = 0.2  # of the rows called each class: the most certain, which separate mistakes from rows that are hard


@dataclass(frozen=True)
class Pair:
    """Rows with one label that more likely belong to another class.

    Attributes:
        label: class that they are labelled as.
        true: class that they are of.
        rows: that are suspected so.
        share: of the rows with that label.
    """

    label: int
    true: int
    rows: int
    share: Interval


@dataclass(frozen=True)
class Shares:
    """Estimated shares of labels that are wrong.

    Attributes:
        overall: of all labels.
        of_class: of the labels of each class, C of them; NaN in [0, 1] where nothing is known.
        pairs: of classes, the most rows first.
    """

    overall: Interval
    of_class: list[Interval]
    pairs: list[Pair]


def anchors(probabilities: ClassProbabilities, share: float = ANCHORS) -> NDArray[np.bool_]:
    """Return which rows are surely of the class that they are called, shape (N,): the most certain of each class.

    Args:
        probabilities: of N rows.
        share: of the labelled rows that are called a class, in (0, 1]; at least one of each.
    """
    known = np.flatnonzero(~np.isnan(probabilities.of_label))
    called, chance = probabilities.index[known, 0], probabilities.probability[known, 0]
    order = np.lexsort((-chance, called))
    called = called[order]
    _, first, size = np.unique(called, return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(first, size)
    is_anchor = np.zeros(len(probabilities.of_label), bool)
    is_anchor[known[order[place < np.ceil(np.repeat(size, size) * share)]]] = True
    return is_anchor


def shares(
    probabilities: ClassProbabilities,
    labels: NDArray[np.integer],
    joint: ConfidentJoint,
    suspected: NDArray[np.bool_],
    suggested: NDArray[np.integer],
    level: float = 0.95,
) -> Shares:
    """Estimate how many labels are wrong.

    Whether a label is wrong or its row is hard to separate cannot be known from probabilities alone, so there are two
    readings. The confident joint takes every confident contradiction for a wrong label: too many where classes overlap.
    The anchors, the fifth of the rows that is most certain of its class, show how often a label is wrong where the row
    is clear: too few where hard rows are labelled wrong more often. An interval reaches from the lower Wilson bound of
    the one to the upper bound of the other; the estimate is the share that is suspected, or the end of the interval
    next to it.

    Args:
        probabilities: of N rows.
        labels: classes, shape (N,).
        joint: of the same rows.
        suspected: labels, shape (N,).
        suggested: the class that is likelier, shape (N,).
        level: of each Wilson interval.
    """
    n_classes = joint.n_classes
    known = np.flatnonzero(~np.isnan(probabilities.of_label))
    sure = np.flatnonzero(anchors(probabilities))
    readings = [
        _Reading.of(joint.label, joint.true, joint.count, n_classes),
        _Reading.of(labels[sure], probabilities.index[sure, 0], np.ones(len(sure), np.int64), n_classes),
    ]
    rows = np.bincount(labels[known], minlength=n_classes)
    doubted = known[suspected[known] & (suggested[known] != labels[known])]
    gone = np.bincount(labels[doubted], minlength=n_classes)
    overall = _between([reading.all() for reading in readings], len(doubted), len(known), level)
    of_class = [
        _between([reading.of_class(label) for reading in readings], gone[label], rows[label], level)
        for label in range(n_classes)
    ]
    code, count = np.unique(labels[doubted].astype(np.int64) * n_classes + suggested[doubted], return_counts=True)
    pairs = []
    for at in np.lexsort((code, -count)).tolist():
        label, true = divmod(int(code[at]), n_classes)
        share = _between([reading.of_pair(label, true) for reading in readings], count[at], rows[label], level)
        pairs.append(Pair(label, true, int(count[at]), share))
    return Shares(overall, of_class, pairs)


@dataclass(frozen=True)
class _Reading:
    """Rows counted by given and true class: how many in each pair, and of each given class in all and as given."""

    counts: dict[int, int]
    rows: NDArray[np.float64]
    wrong: NDArray[np.float64]

    @classmethod
    def of(cls, labels: NDArray, true: NDArray, count: NDArray, n_classes: int) -> "_Reading":
        code, place = np.unique(labels.astype(np.int64) * n_classes + true, return_inverse=True)
        total = np.bincount(place, count, minlength=len(code)).astype(np.int64)
        rows = np.bincount(labels, count.astype(np.float64), minlength=n_classes)
        wrong = np.bincount(labels, np.where(labels == true, 0.0, count), minlength=n_classes)
        counts = dict(zip(code.tolist(), total.tolist(), strict=True))
        return cls(counts, rows.astype(np.float64), wrong.astype(np.float64))

    def all(self) -> tuple[float, float]:
        return float(self.wrong.sum()), float(self.rows.sum())

    def of_class(self, label: int) -> tuple[float, float]:
        return float(self.wrong[label]), float(self.rows[label])

    def of_pair(self, label: int, true: int) -> tuple[float, float]:
        return float(self.counts.get(label * len(self.rows) + true, 0)), float(self.rows[label])


def _between(readings: list[tuple[float, float]], count: int, n: int, level: float) -> Interval:
    """Return a share and the bounds from the lowest of the readings that have rows to the highest."""
    bounds = [wilson(successes, rows, level) for successes, rows in readings if rows > 0]
    if not bounds or not n:
        return Interval(float("nan"), 0.0, 1.0)
    low, high = min(each.low for each in bounds), max(each.high for each in bounds)
    return Interval(min(max(count / n, low), high), low, high)
