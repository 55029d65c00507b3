"""The rule: from signals to one number that says how ambiguous a row is, and that with junk to the default score."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Of the ranks of signals: equal, for weights fitted on six development sets did no better on the seventh.
WEIGHTS: Mapping[str, float] = {"distance": 1.0, "contrast": 1.0, "unshared": 1.0, "disagreement": 1.0}
# Beside what labels say, which tells kinds apart better than clusters do.
TAUGHT_WEIGHTS: Mapping[str, float] = {"distance": 1.0, "contrast": 1.5, "unshared": 1.0, "disagreement": 0.5}
PICTURE = 0.5  # the most that a row gets that is surely no junk
WORSE_BY, BY_ODDS = 0.05, 2.0  # the most that a worse version lies above what it was made from; the odds it takes
SURE, SUSPECT = 0.4, 0.6  # chances of junk between which a row passes from the one question to the other
STEEP, USUAL = 2.0, 2.5  # deviations from the median: how fast a row turns to junk, and where it is as likely as not
STEEP_OUTLIER = (
    15.0  # how fast a row turns to an outlier, by the logarithm of how much less alike it is than the median
)
# Where it is as likely as not: a crowd of outliers moves the median towards itself, so the valley before it counts.
OUTLIER_FROM, OUTLIER_AT, VALLEY = 0.25, 0.45, 0.05


def combined(ranks: Mapping[str, Floats], weights: Mapping[str, float] = WEIGHTS) -> Floats:
    """Return the weighted mean of ranks in [0, 1], shape (N,), in [0, 1]; higher is more ambiguous."""
    total = sum(weights.values())
    return np.sum([weight / total * ranks[name] for name, weight in weights.items()], axis=0)


def composed(junk: Floats, ambiguity: Floats) -> Floats:
    """Return the default score: junk above all else and by how sure it is, the rest by ambiguity.

    A row whose chance of junk is at most .4 gets half its ambiguity, in [0, .5]; one of at least .6 gets
    (1 + chance) / 2, in [.8, 1]; between, the one passes smoothly into the other. It never falls when either grows.

    Args:
        junk: chance that there is nothing to learn from, in [0, 1], shape (N,).
        ambiguity: share of the heap that is less ambiguous, in [0, 1], shape (N,).

    Returns:
        In [0, 1], shape (N,); higher is less certain.

    >>> composed(np.array([0.0, 0.0, 0.9]), np.array([0.2, 1.0, 0.1])).round(2).tolist()
    [0.1, 0.5, 0.95]
    """
    part = np.clip((junk - SURE) / (SUSPECT - SURE), 0, 1)
    gate = part * part * (3 - 2 * part)
    return (1 - gate) * ambiguity * PICTURE + gate * (1 + junk) / 2


def junk_level(deviations: Floats) -> Floats:
    """Return the log odds of junk from how far scores that rise on junk lie above the heap's median.

    Args:
        deviations: in robust standard deviations of the heap, shape (N,).

    Returns:
        Shape (N,); 0 at two and a half deviations.
    """
    return STEEP * (np.clip(deviations, -50, 50) - USUAL)


def chance_of(level: Floats) -> Floats:
    """Return the chance of log odds, in [0, 1]."""
    return 1 / (1 + np.exp(-level))


def lifted(
    share: NDArray[np.floating],
    level: NDArray[np.floating],
    nearest: NDArray[np.int64],
    of_others: tuple[NDArray[np.floating], NDArray[np.floating]],
) -> NDArray[np.floating]:
    """Return shares of rows, each above that of a nearest row that is more of a picture.

    A worse version of an image lies close to it, and its place would call it clear. By the data processing inequality
    it cannot show more than what it was made from. It lies above that by .05 (1 - exp(-d / 2)), d being how far its log
    odds of junk lie above: the worse of two versions of one picture is the less clear.

    Args:
        share: how ambiguous rows are, shape (N,).
        level: their log odds of junk, shape (N,); all equal where nothing tells.
        nearest: the nearest row of each among R others, shape (N,); -1 where there is none.
        of_others: share and level of those, shape (R,) each.
    """
    at = nearest.clip(0)
    above = level - of_others[1][at]
    raised = of_others[0][at] - WORSE_BY * np.expm1(-np.maximum(above, 0) / BY_ODDS)
    return np.where((nearest >= 0) & (above > 0), np.maximum(share, np.minimum(raised, 1)), share)


def outlier(likeness: Floats, usual: float) -> Floats:
    """Return how unlike the heap as a whole rows are: the logarithm of the median likeness over theirs, shape (N,).

    Args:
        likeness: mean cosine to the heap's rows, shape (N,).
        usual: its median in the heap.

    Returns:
        0 for the median row; at most log 100, also for a likeness below 0; 0 where the heap has no direction.

    >>> outlier(np.array([0.4, 0.2]), 0.4).round(2).tolist()
    [0.0, 0.69]
    """
    if usual <= 0:
        return np.zeros(len(likeness))
    return np.log(usual / np.maximum(likeness, usual / 100))


def outlier_cut(outliers: Floats) -> float:
    """Return where a row of a heap is as likely as not to belong to another: where the fewest rows lie.

    Of the places from .25 to .45 (.78 to .64 of the usual likeness), in steps of .005, that with the fewest rows within
    .05 of it; of equal ones the highest, so that a heap without a valley is cut at .45.

    >>> outlier_cut(np.array([0.0, 0.1, 0.2, 0.39, 0.4, 0.41]))
    0.335
    """
    places = np.linspace(OUTLIER_AT, OUTLIER_FROM, 41)
    ordered = np.sort(outliers)
    crowd = np.searchsorted(ordered, places + VALLEY, "right") - np.searchsorted(ordered, places - VALLEY)
    return round(float(places[crowd.argmin()]), 3)


def outlier_chance(outliers: Floats, cut: float = OUTLIER_AT) -> Floats:
    """Return the chance that rows belong to another heap, in [0, 1]; 1/2 at the cut."""
    return chance_of(STEEP_OUTLIER * (outliers - cut))
