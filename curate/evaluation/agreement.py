"""Certainty compared with annotator votes, and with another set of images."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from curate.evaluation.measures import Floats, Measure, Shape, measured
from curate.statistics.weighted import RankOrder, weighted_spearman
from scoring.metrics.ranking import entropy, ranks
from scoring.metrics.resampling import permutation_test_linear

VOTES = Shape(
    "Spearman, votes", "higher", "rank correlation of uncertainty with the entropy of human votes; 0 means no relation"
)
APART = Shape(
    "AUROC, against",
    "",
    "probability that a row of this table is more certain than one of the other; 0.5 cannot be separated",
)


def against_votes(certainty: Mapping[str, Floats], votes: NDArray, *, repeats: int, seed: int) -> Measure:
    """Return the rank correlation of uncertainty and annotator disagreement.

    Args:
        certainty: by column, higher is more certain, shape (N,).
        votes: per class, shape (N, C), each row with at least one vote.
        repeats: resamples and permutations.
        seed: of resamples and permutations.
    """
    disagreement = entropy(votes)
    if len(np.unique(disagreement)) < 2:
        return VOTES.without("the votes of every row have the same entropy")
    people = RankOrder(disagreement)
    orders = [RankOrder(-values) for values in certainty.values()]

    def statistic(counts: NDArray[np.int64]) -> Floats:
        return np.array([[weighted_spearman(order, people, counts)] for order in orders])

    (measure,) = measured([VOTES], list(certainty), statistic, len(disagreement), repeats=repeats, seed=seed)
    x = np.stack([ranks(-values) for values in certainty.values()])
    chance = permutation_test_linear(x, ranks(disagreement), repeats=repeats, seed=seed)
    measure.p = dict(zip(certainty, chance.tolist(), strict=True))
    return measure


def separation(certainty: Mapping[str, Floats], is_first: NDArray[np.bool_], *, repeats: int, seed: int) -> Measure:
    """Return the AUROC with which certainty separates two sets of images.

    Args:
        certainty: by column, higher is more certain, shape (N,), rows of both sets.
        is_first: whether a row is of the first set, shape (N,).
        repeats: resamples, which also vary the sizes of the two sets.
        seed: of the resampling.
    """
    orders = [RankOrder(values) for values in certainty.values()]
    targets = [order.sort(is_first[:, None]) for order in orders]

    def statistic(counts: NDArray[np.int64]) -> Floats:
        return np.stack([order.auroc(counts, target) for order, target in zip(orders, targets, strict=True)])

    (measure,) = measured([APART], list(certainty), statistic, len(is_first), repeats=repeats, seed=seed)
    return measure
