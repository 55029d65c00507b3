"""How likely the label of a row is right, and which label it should have."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.noise.class_probabilities import LEAST, ClassProbabilities
from curate.noise.joint import BLOCK, Mistakes

HALF = (
    0.5  # power of the probability of a mistake: between a score that knows no usual mistakes and one that trusts them
)
STEPS = 1e-4  # to which a quality is rounded, so that other machines say the same


@dataclass(frozen=True)
class LabelQuality:
    """The estimated quality of the labels of N rows.

    Attributes:
        quality: how surely the label is right, shape (N,) float32 in [0, 1]; NaN without a label that can be judged.
        suggested: the class that is likelier than all others, shape (N,) int32: the label itself where its quality is a
            half or more.
        rival: the most likely class but the label, shape (N,) int32.
    """

    quality: NDArray[np.float32]
    suggested: NDArray[np.int32]
    rival: NDArray[np.int32]


def judge(probabilities: ClassProbabilities, labels: NDArray[np.integer], mistakes: Mistakes) -> LabelQuality:
    """Weigh each label against the most likely other class.

    With p the probabilities of a row and T(k, g) how likely a row of class k has label g, the odds of label g
    are p_g T(g, g)^b over the largest p_k T(k, g)^b of the others, b = 1/2, and the quality is odds / (1 + odds).
    Without T that is the normalised margin on the scale of logarithms: it asks for one strong rival, not for many weak
    ones. T speaks against a label that is often taken for its rival.

    Args:
        probabilities: of N rows.
        labels: classes, shape (N,); of no account where ``probabilities.of_label`` is NaN.
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
