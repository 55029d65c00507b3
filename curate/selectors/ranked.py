"""Scores of single rows, and selectors that take the highest: fast, but they pick similar rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.selectors.contract import Selector, blocks, check
from curate.selectors.pool import Pool, Selection

Floats = NDArray[np.float64]


def least_confidence(probabilities: NDArray) -> Floats:
    """Return 1 - p1, p1 the probability of the most likely class; higher is less certain.

    Args:
        probabilities: shape (N, C), rows sum to 1.

    Returns:
        Shape (N,), in [0, 1 - 1/C].

    Source: Settles 2009, "Active Learning Literature Survey", sec. 3.1.

    >>> least_confidence(np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])).tolist()
    [0.5, 0.0]
    """
    return 1 - np.asarray(probabilities).max(1).astype(np.float64)


def margin(probabilities: NDArray) -> Floats:
    """Return 1 - (p1 - p2), p1 and p2 the probabilities of the two most likely classes; higher is less certain.

    Args:
        probabilities: shape (N, C), rows sum to 1; with one class there is no second, and p2 is 0.

    Returns:
        Shape (N,), in [0, 1].

    Source: Settles 2009, sec. 3.1; turned around, so that higher is picked first.

    >>> margin(np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])).tolist()
    [0.75, 0.0]
    """
    probabilities = np.asarray(probabilities)
    margins = np.empty(len(probabilities))
    for start, block in blocks(probabilities):
        if block.shape[1] > 1:
            top = np.partition(block, -2, axis=1)[:, -2:].astype(np.float64)
            margins[start : start + len(block)] = 1 - (top[:, 1] - top[:, 0])
        else:
            margins[start : start + len(block)] = 1 - block[:, 0]
    return margins


def entropy(probabilities: NDArray) -> Floats:
    """Return -sum_c p_c log p_c in nats; higher is less certain.

    Args:
        probabilities: shape (N, C), rows sum to 1.

    Returns:
        Shape (N,), in [0, ln C].

    Source: Settles 2009, sec. 3.1.

    >>> entropy(np.array([[0.5, 0.5], [1.0, 0.0]])).round(4).tolist()
    [0.6931, 0.0]
    """
    probabilities = np.asarray(probabilities)
    entropies = np.empty(len(probabilities))
    for start, block in blocks(probabilities):
        p = block.astype(np.float64)
        log = np.log(p, out=np.zeros_like(p), where=p > 0)
        entropies[start : start + len(p)] = 0.0 - (p * log).sum(1)
    return entropies


@dataclass(frozen=True)
class Ranked(Selector):
    """The candidates with the highest score, highest first; ties go to the lower row. Gains are the scores.

    Attributes:
        score: its name; each score has its own class.
        compute: the fields that the selector needs, in that order -> a number for each row of the pool, shape (N,)
            float64, finite where the pool is; higher is picked first.
    """

    score: ClassVar[str]
    compute: ClassVar[Callable[..., Floats]]
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(NC + N log N) time, O(N) memory"

    def scores(self, pool: Pool) -> Floats:
        """Return the score of every row of a pool, shape (N,)."""
        return type(self).compute(*(pool.array(need) for need in self.needs))

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows; see ``Selector``."""
        check(pool, budget, self.needs)
        values = self.scores(pool)[pool.candidates]
        order = np.argsort(-values, kind="stable")[:budget]
        return Selection(pool.candidates[order], values[order])


class LeastConfidence(Ranked):
    """The rows whose most likely class is the least likely: 1 - p1.

    Source: Settles 2009, "Active Learning Literature Survey", sec. 3.1.
    """

    needs = ("probabilities",)
    score = "least-confidence"
    compute = staticmethod(least_confidence)


class Margin(Ranked):
    """The rows whose two most likely classes are closest: 1 - (p1 - p2).

    The safe choice once there are many labels; with few, what it ranks by is noise. Buys ambiguous images: gate or
    discount by quality where there are many.

    Source: Settles 2009, sec. 3.1.
    """

    needs = ("probabilities",)
    score = "margin"
    compute = staticmethod(margin)


class Entropy(Ranked):
    """The rows with the highest entropy of the predicted classes; below random while labels are few.

    Source: Settles 2009, sec. 3.1.
    """

    needs = ("probabilities",)
    score = "entropy"
    compute = staticmethod(entropy)


class HighestScore(Ranked):
    """The rows with the highest value of a score column, kappa or unc, in the given direction.

    High uncertainty of a pretrained model is mostly bad quality: it is a gate or a discount, seldom a reason to label.
    """

    needs = ("uncertainty",)
    cost = "O(N log N) time, O(N) memory"
    score = "score"
    compute = staticmethod(lambda uncertainty: uncertainty.astype(np.float64))
