"""How many labels of a subset are wrong, by what all other rows say of them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.evaluation.subset.pool import SubsetPool
from curate.probes.crossed import crossed
from scoring.metrics.resampling import Interval
from scoring.noise.chances import Chances
from scoring.noise.joint import ConfidentJoint, Mistakes, confident_joint
from scoring.noise.quality import judge
from scoring.noise.share import shares

BELOW = 0.5  # quality of a label below which it is suspected, as in curate labels


@dataclass(frozen=True)
class Judgement:
    """What is thought of the labels of P rows.

    Attributes:
        chances: of classes, from models of other rows.
        given: classes that the rows bear, shape (P,).
        confident: the class that each row is confidently of, shape (P,); -1 for none.
        quality: how surely a label is right, shape (P,); NaN where it cannot be judged.
        suggested: the class that is likelier, shape (P,).
        n_classes: C.
    """

    chances: Chances
    given: NDArray[np.int64]
    confident: NDArray[np.int32]
    quality: NDArray[np.float32]
    suggested: NDArray[np.int32]
    n_classes: int

    def wrong(self, rows: NDArray[np.int64]) -> Interval:
        """Return the estimated share of wrong labels among some rows; NaN in [0, 1] where none can be judged.

        Every row is judged with the models and thresholds of all rows; see ``scoring.noise.share.shares``.
        """
        kept = self.chances
        part = Chances(kept.index[rows], kept.chance[rows], kept.own[rows])
        given, confident = self.given[rows], self.confident[rows]
        sure = confident >= 0
        pair, count = np.unique(given[sure] * self.n_classes + confident[sure], return_counts=True)
        joint = ConfidentJoint(pair, count, self.n_classes, confident)
        return shares(part, given, joint, self.quality[rows] < BELOW, self.suggested[rows]).overall

    def left(self, subset: NDArray[np.int64], whole: NDArray[np.int64]) -> Interval:
        """Return the estimated share of wrong labels that a subset of the whole still holds.

        A subset that was chosen by this evidence holds few rows that it suspects. Wrong labels that the whole may
        hold, and the dropped rows cannot, are then still there: the upper end is no less than their share.
        """
        found = self.wrong(subset)
        dropped = np.setdiff1d(whole, subset, assume_unique=True)
        if not len(subset) or not len(dropped):
            return found
        remaining = self.wrong(whole).high * len(whole) - self.wrong(dropped).high * len(dropped)
        return Interval(found.value, found.low, min(1.0, max(found.high, remaining / len(subset))))

    def borne_out(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of some rows bear a label that is not suspected, shape (M,)."""
        return np.asarray(self.quality[rows] >= BELOW)


def judge_labels(pool: SubsetPool, *, seed: int) -> Judgement:
    """Judge every label of a pool by the other rows, as ``curate labels`` does."""
    n_classes = len(pool.classes)
    chances = crossed(pool.vectors, pool.label, n_classes, seed=seed).chances
    joint = confident_joint(chances, pool.label, n_classes)
    judged = judge(chances, pool.label, Mistakes.of(joint))
    return Judgement(chances, pool.label, joint.confident, judged.quality, judged.suggested, n_classes)
