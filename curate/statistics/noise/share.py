"""Estimated shares of wrong labels: of all, of each class, and of each pair of classes, with intervals."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from curate.statistics.noise.quality import ClassProbabilities, ConfidentJoint, pairs
from scoring.metrics.proportions import wilson
from scoring.metrics.resampling import Interval

ANCHORS = 0.2  # of the rows predicted as each class: the most certain, which separate mistakes from rows that are hard
CLEARER = (0.1, 0.05, 0.02)  # shares that are tried too, since a weak model errs on the most certain fifth as well
FEWEST_CLEARER = 60  # rows that such a share has to contain


@dataclass(frozen=True)
class Pair:
    """Rows with one label that more likely belong to another class.

    Attributes:
        label: class of the label.
        true: suspected class.
        rows: number of suspected rows.
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
        of_class: of the labels of each class, C of them; NaN with bounds [0, 1] if unknown.
        pairs: pairs of classes, most rows first.
    """

    overall: Interval
    of_class: list[Interval]
    pairs: list[Pair]


def anchors(probabilities: ClassProbabilities, share: float = ANCHORS) -> NDArray[np.bool_]:
    """Return a mask of the rows whose class is the label with the highest probability, shape (N,).

    Args:
        probabilities: of N rows.
        share: of the rows of each label, in (0, 1]; at least one row each.
    """
    known = np.flatnonzero(~np.isnan(probabilities.of_label))
    called, chance = probabilities.index[known, 0], probabilities.probability[known, 0]
    rows = pl.DataFrame({"called": called, "doubt": -chance})
    place = pl.col("doubt").rank("ordinal").over("called") - 1  # ties in row order
    is_anchor = np.zeros(len(probabilities.of_label), bool)
    is_anchor[known] = rows.select(place < (pl.len().over("called") * share).ceil()).to_series().to_numpy()
    return is_anchor


def shares(
    probabilities: ClassProbabilities,
    labels: NDArray[np.integer],
    joint: ConfidentJoint,
    suspected: NDArray[np.bool_],
    suggested: NDArray[np.integer],
) -> Shares:
    """Estimate the share of wrong labels.

    Probabilities cannot separate wrong labels from hard rows, so there are two estimates. The confident joint counts
    every confident contradiction as a wrong label: too many if classes overlap. The anchors, the fifth of the rows with
    the most certain class, give the error rate of clear rows: too low if hard rows are mislabelled more often. The
    interval extends from the lower Wilson bound of one to the upper bound of the other; the estimate is the share of
    suspected labels, clipped to the interval. A weak model errs on its most certain fifth too, so the lower bound is
    the lowest of several shares of anchors.

    Args:
        probabilities: of N rows.
        labels: classes, shape (N,).
        joint: of the same rows.
        suspected: labels, shape (N,).
        suggested: the most likely class, shape (N,).
    """
    n_classes = joint.n_classes
    known = np.flatnonzero(~np.isnan(probabilities.of_label))
    fifth = _joint_of(anchors(probabilities), probabilities, labels, joint)
    clearer = [_joint_of(anchors(probabilities, share), probabilities, labels, joint) for share in CLEARER]
    large = [fifth, *(each for each in clearer if each.count.sum() >= FEWEST_CLEARER)]
    joints = (joint, fifth, min(large, key=_least_wrong))
    wrong, total = zip(*map(_of_labels, joints), strict=True)
    rows = np.bincount(labels[known], minlength=n_classes)
    doubted = known[suspected[known] & (suggested[known] != labels[known])]
    gone = np.bincount(labels[doubted], minlength=n_classes)
    overall = _estimate([(w.sum(), n.sum()) for w, n in zip(wrong, total, strict=True)], len(doubted), len(known))
    of_class = [
        _estimate([(w[label], n[label]) for w, n in zip(wrong, total, strict=True)], gone[label], rows[label])
        for label in range(n_classes)
    ]
    code, count = pairs(labels[doubted], suggested[doubted], n_classes)
    counted = [each.at(code // n_classes, code % n_classes) for each in joints]
    of_pair = []
    for at in np.lexsort((code, -count)).tolist():
        label, true = divmod(int(code[at]), n_classes)
        readings = [(each[at], n[label]) for each, n in zip(counted, total, strict=True)]
        of_pair.append(Pair(label, true, int(count[at]), _estimate(readings, count[at], rows[label])))
    return Shares(overall, of_class, of_pair)


def _joint_of(
    rows: NDArray[np.bool_], probabilities: ClassProbabilities, labels: NDArray[np.integer], joint: ConfidentJoint
) -> ConfidentJoint:
    """Return the joint of labels and most likely classes of some rows."""
    counted = pairs(labels[rows], probabilities.index[rows, 0], joint.n_classes)
    return ConfidentJoint(*counted, joint.n_classes, joint.confident)


def _least_wrong(joint: ConfidentJoint) -> float:
    """Return the lower bound of the share of wrong labels of a joint."""
    wrong, total = (float(each.sum()) for each in _of_labels(joint))
    return wilson(wrong, total).low if total else 0.0


def _of_labels(joint: ConfidentJoint) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the rows of each label that a joint counts as another class, and all its rows, shape (C,) each."""
    wrong = np.where(joint.label == joint.true, 0, joint.count)
    of_other, total = (np.bincount(joint.label, count, minlength=joint.n_classes) for count in (wrong, joint.count))
    return of_other.astype(np.float64), total.astype(np.float64)


def _estimate(readings: list[tuple[float, float]], count: int, n: int) -> Interval:
    """Return a share, the lowest bound of the estimates that have rows, and the highest of the first two."""
    bounds = [wilson(float(successes), float(rows)) if rows > 0 else None for successes, rows in readings]
    lows, highs = [each.low for each in bounds if each], [each.high for each in bounds[:2] if each]
    if not highs or not n:
        return Interval(float("nan"), 0.0, 1.0)
    low, high = min(lows), max(highs)
    return Interval(min(max(count / n, low), high), low, high)
