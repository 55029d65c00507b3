"""Scores of rows on their own, and the selectors that take the highest: cheap, and blind to rows that are alike."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.selectors.contract import Selector, blocks, check
from curate.selectors.pool import Pool, Selection

Floats = NDArray[np.float64]


def least_confidence(probabilities: NDArray) -> Floats:
    """Return 1 - p1, p1 the probability of the likeliest class; higher is less certain.

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
    """Return 1 - (p1 - p2), p1 and p2 the probabilities of the two likeliest classes; higher is less certain.

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


def bald(draws: NDArray) -> Floats:
    """Return H[mean of the draws] - mean of H[draw] in nats: what the label would show about the model.

    Noise that all draws agree on does not count: coin flips that every model calls coin flips score 0.

    Args:
        draws: probabilities by M models, shape (M, N, C).

    Returns:
        Shape (N,), in [0, min(ln M, ln C)].

    Source: Houlsby et al. 2011, arXiv:1112.5745, eq. 2.

    >>> bald(np.array([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]])).round(4).tolist()
    [0.6931, 0.0]
    """
    mean, inner = np.zeros(draws.shape[1:], np.float64), np.zeros(draws.shape[1])
    for draw in draws:
        mean += draw
        inner += entropy(draw)
    return np.maximum(entropy(mean / len(draws)) - inner / len(draws), 0.0)


def rho_loss(loss: NDArray, holdout_loss: NDArray) -> Floats:
    """Return the loss that training can still take away: loss - holdout loss; higher is picked first.

    Rows that are learnt have a low loss, and rows that cannot be learnt (noise, wrong labels) a high one under both.

    Args:
        loss: of each row's label under the model in training, shape (N,).
        holdout_loss: of each row's label under a model that was trained on other rows, shape (N,).

    Source: Mindermann et al. 2022, arXiv:2206.07137, eq. 3.

    >>> rho_loss(np.array([2.0, 2.0, 0.1]), np.array([0.1, 2.0, 0.1])).round(2).tolist()
    [1.9, 0.0, 0.0]
    """
    return np.asarray(loss, np.float64) - np.asarray(holdout_loss, np.float64)


@dataclass(frozen=True)
class Ranked(Selector):
    """The candidates with the highest score, the highest first; ties go to the lower row. Gains are the scores.

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
        """Pick rows, as every ``Selector`` does."""
        check(pool, budget, self.needs)
        values = self.scores(pool)[pool.candidates]
        order = np.argsort(-values, kind="stable")[:budget]
        return Selection(pool.candidates[order], values[order])


class LeastConfidence(Ranked):
    """The rows whose likeliest class is the least likely: 1 - p1.

    Source: Settles 2009, "Active Learning Literature Survey", sec. 3.1.
    """

    needs = ("probabilities",)
    score = "least-confidence"
    compute = staticmethod(least_confidence)


class Margin(Ranked):
    """The rows whose two likeliest classes are closest: 1 - (p1 - p2).

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


class Bald(Ranked):
    """The rows whose label would show most about the model, by the disagreement of several models.

    Source: Houlsby et al. 2011, arXiv:1112.5745, eq. 2.
    """

    needs = ("draws",)
    cost = "O(MNC + N log N) time for M models, O(NC) memory"
    score = "bald"
    compute = staticmethod(bald)


class HighestScore(Ranked):
    """The rows with the highest value of a score column, kappa or unc, in the direction that the caller gave it.

    High uncertainty of a pretrained model is mostly bad quality: it is a gate or a discount, seldom a reason to label.
    """

    needs = ("uncertainty",)
    cost = "O(N log N) time, O(N) memory"
    score = "score"
    compute = staticmethod(lambda uncertainty: uncertainty.astype(np.float64))


class RhoLoss(Ranked):
    """Labelled rows that are learnable and not yet learnt: loss - holdout loss.

    For choosing what to train on, never what to label: its candidates carry labels.

    Source: Mindermann et al. 2022, arXiv:2206.07137, eq. 3.
    """

    needs = ("loss", "holdout_loss")
    cost = "O(N log N) time, O(N) memory"
    score = "rho-loss"
    compute = staticmethod(rho_loss)
