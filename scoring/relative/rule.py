"""The rule that combines signals to the ambiguity of a row, and ambiguity and junk to the default score."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Floats
from scoring.relative.columns import USABLE

# Equal weights of the signals: weights fitted on six development sets were no better on the seventh.
WEIGHTS: Mapping[str, float] = {"distance": 1.0, "contrast": 1.0, "unshared": 1.0, "disagreement": 1.0}
# Weights with labels, which separate kinds better than clusters do.
PROPAGATED_WEIGHTS: Mapping[str, float] = {"distance": 1.0, "contrast": 1.5, "unshared": 1.0, "disagreement": 0.5}
WORSE_BY, BY_ODDS = 0.05, 2.0  # largest increase of a corrupted version over its original; scale in log odds
SUSPECT = -2.2  # log odds of junk (a probability of 0.1) below which differences are due to content, not quality


def combined(ranks: Mapping[str, Floats], weights: Mapping[str, float] = WEIGHTS) -> Floats:
    """Return the weighted mean of ranks in [0, 1], shape (N,), in [0, 1]; higher is more ambiguous."""
    total = sum(weights.values())
    return np.sum([weight / total * ranks[name] for name, weight in weights.items()], axis=0)


def composed(junk: NDArray[np.floating], ambiguity: Floats) -> Floats:
    """Return the default score: the probability of junk if it is above 0.5, else half the ambiguity.

    Args:
        junk: probability that an image is unusable, in [0, 1], shape (N,); 0 if unknown.
        ambiguity: share of the dataset that is less ambiguous, in [0, 1], shape (N,).

    Returns:
        Shape (N,), higher is less certain.

    >>> composed(np.array([0.0, 0.5, 0.9]), np.array([0.2, 1.0, 0.1])).round(2).tolist()
    [0.1, 0.5, 0.9]
    """
    return np.where(junk > USABLE, junk, USABLE * ambiguity)


def lifted(
    share: NDArray[np.floating],
    level: NDArray[np.floating],
    nearest: NDArray[np.int64],
    of_others: tuple[NDArray[np.floating], NDArray[np.floating]],
) -> NDArray[np.floating]:
    """Return the ambiguity of rows, raised above the ambiguity of a nearest row of better quality.

    A corrupted version of an image lies close to the original, so its neighbours make it look clear. By the data
    processing inequality it has no more information than the original. So its ambiguity is set to at least the
    original's plus .05 (1 - exp(-d / 2)), d being the difference in log odds of junk. Rows that are clearly no junk are
    unchanged.

    Args:
        share: ambiguity of the rows, shape (N,).
        level: log odds of junk of the rows, shape (N,); all equal if unknown.
        nearest: the nearest row of each among R others, shape (N,); -1 if absent.
        of_others: ambiguity and level of the others, shape (R,) each.
    """
    at = nearest.clip(0)
    above = level - of_others[1][at]
    raised = of_others[0][at] - WORSE_BY * np.expm1(-np.maximum(above, 0) / BY_ODDS)
    return np.where((nearest >= 0) & (above > 0) & (level > SUSPECT), np.maximum(share, np.minimum(raised, 1)), share)
