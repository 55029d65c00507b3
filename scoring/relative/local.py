"""The rank of a row among its neighbours, so that a cut drops the same share of every part of a dataset."""

import numpy as np
from numpy.typing import NDArray

from scoring.relative.neighbours import Near
from scoring.relative.rule import PICTURE
from scoring.relative.signals import CLOSE


def among_neighbours(fitted: NDArray[np.floating], near: Near, of_others: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the share of a row's 10 nearest rows that are less ambiguous, halved; junk keeps its score.

    Cut by it, each neighbourhood of images loses the same share, where a cut by the score itself empties the parts of
    a dataset in which all is hard to recognise: the parts from which a model has most to learn.

    Args:
        fitted: the score of N rows: at most .5 for an image, above for junk; shape (N,).
        near: their neighbours among R others.
        of_others: the score of those, shape (R,).

    Returns:
        Shape (N,): in [0, .5] for an image, rows with equally many clearer neighbours in the order of their scores;
        the score itself for junk.
    """
    index, exists = near.index[:, :CLOSE].clip(0), near.exists[:, :CLOSE]
    clearer = ((of_others[index] < np.asarray(fitted)[:, None]) & exists).sum(1)
    position = np.clip(np.asarray(fitted, np.float64) / PICTURE, 0, 1)
    standing = (clearer + position) / (exists.sum(1) + 1)
    return np.where(fitted > PICTURE, fitted, standing * PICTURE).astype(np.float32)
