"""The junk threshold: above the tail of a dataset's images, below most of their corrupted copies."""

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Floats

TAIL = 4.2  # of ``tail_bound``: measured on 15 datasets, about one clean image in 500 lies above
LEAST = 0.0  # log odds: images more like the dataset are never junk
UPPER = 0.8  # quantile that measures the tail; not affected by up to half as much junk as images
MISSED = 0.1  # largest share of corrupted copies below the threshold
FEW, EXPLAINED = 0.001, 1.5  # see ``flagged_most``


def tail_bound(log_odds: Floats, tail: float) -> float:
    """Return a bound above nearly all images: the median plus ``tail`` times its distance to the 80 % quantile.

    Both quantiles are in the bulk of the dataset, so that a small share of junk hardly moves the bound.
    """
    middle, upper = np.quantile(log_odds, [0.5, UPPER])
    return float(middle + tail * (upper - middle))


def threshold_of(judged: Floats, copies: Floats, normal: NDArray[np.bool_]) -> float:
    """Return the log odds above which an image is junk.

    Args:
        judged: log odds of the images of a dataset, shape (N,).
        copies: log odds of corrupted copies, shape (P,).
        normal: mask of the images that measure the tail, without suspects, shape (N,).
    """
    highest = float(np.quantile(copies, MISSED))
    lowest = float(np.clip(tail_bound(judged[normal], TAIL), LEAST, max(LEAST, highest)))
    return max(lowest, min(flagged_most(judged, copies, lowest), highest))


def flagged_most(judged: Floats, copies: Floats, lowest: float) -> float:
    """Return the lowest threshold, >= ``lowest``, above which few flagged images are left unexplained by junk.

    With junk in a dataset, some images lie above the median of the corrupted copies, and about as many below it. Other
    images between the threshold and that median are the tail of the dataset. It may hold 0.1 % of all images, so that
    few are flagged in a clean dataset, plus half the share of junk, since not all junk is like the corrupted copies.
    """
    middle = float(np.median(copies))
    share = min(1.0, 2 * float((judged > middle).mean()))
    between = np.sort(judged[(judged > lowest) & (judged < middle)])
    for threshold in (lowest, *between.tolist()):
        unexplained = ((judged > threshold) & (judged <= middle)).mean()
        unexplained -= share * ((copies > threshold) & (copies <= middle)).mean()
        if unexplained <= FEW + EXPLAINED * share:
            return float(threshold)
    return middle
