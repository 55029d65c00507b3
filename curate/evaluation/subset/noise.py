"""The share of wrong labels in a subset, estimated from all other rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.evaluation.subset.pool import SubsetPool
from curate.noise.class_probabilities import ClassProbabilities
from curate.noise.joint import ConfidentJoint, Mistakes, confident_joint
from curate.noise.quality import judge
from curate.noise.share import shares
from curate.probes.crossed import crossed
from scoring.metrics.resampling import Interval

BELOW = 0.5  # quality of a label below which it is suspected, as in curate labels


@dataclass(frozen=True)
class Judgement:
    """Judged labels of P rows.

    Attributes:
        probabilities: of classes, from models of other rows.
        labels: classes of the rows, as labelled, shape (P,).
        confident: the class that each row is confidently of, shape (P,); -1 for none.
        quality: how likely a label is right, shape (P,); NaN where it cannot be judged.
        suggested: the class that is likelier, shape (P,).
        n_classes: C.
    """

    probabilities: ClassProbabilities
    labels: NDArray[np.int64]
    confident: NDArray[np.int32]
    quality: NDArray[np.float32]
    suggested: NDArray[np.int32]
    n_classes: int

    def wrong(self, rows: NDArray[np.int64]) -> Interval:
        """Return the estimated share of wrong labels among some rows, in [0, 1]; NaN if none can be judged.

        Every row is judged with the models and thresholds of all rows; see ``curate.noise.share.shares``.
        """
        kept = self.probabilities
        part = ClassProbabilities(kept.index[rows], kept.probability[rows], kept.of_label[rows])
        labels, confident = self.labels[rows], self.confident[rows]
        sure = confident >= 0
        pair, count = np.unique(labels[sure] * self.n_classes + confident[sure], return_counts=True)
        joint = ConfidentJoint(pair, count, self.n_classes, confident)
        return shares(part, labels, joint, self.quality[rows] < BELOW, self.suggested[rows]).overall

    def left(self, subset: NDArray[np.int64], all_rows: NDArray[np.int64]) -> Interval:
        """Return the estimated share of wrong labels left in a subset of all rows.

        A subset that was chosen by this evidence holds few rows that it suspects. Wrong labels that all rows may
        hold, and the dropped rows cannot, are then still in it: the upper end is no less than their share.
        """
        estimate = self.wrong(subset)
        dropped = np.setdiff1d(all_rows, subset, assume_unique=True)
        if not len(subset) or not len(dropped):
            return estimate
        remaining = self.wrong(all_rows).high * len(all_rows) - self.wrong(dropped).high * len(dropped)
        return Interval(estimate.value, estimate.low, min(1.0, max(estimate.high, remaining / len(subset))))

    def confirmed(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of some rows have a label that is not suspected, shape (M,)."""
        return np.asarray(self.quality[rows] >= BELOW)


def judge_labels(pool: SubsetPool, *, seed: int) -> Judgement:
    """Judge every label of a pool from the other rows, as ``curate labels`` does."""
    n_classes = len(pool.classes)
    probabilities = crossed(pool.vectors, pool.label, n_classes, seed=seed).probabilities
    joint = confident_joint(probabilities, pool.label, n_classes)
    judged = judge(probabilities, pool.label, Mistakes.of(joint))
    return Judgement(probabilities, pool.label, joint.confident, judged.quality, judged.suggested, n_classes)
