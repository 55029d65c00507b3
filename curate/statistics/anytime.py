"""Anytime-valid intervals: the error is split over all looks in advance, so that all intervals hold at once."""

from bisect import bisect_left
from math import ceil, floor, log

from scoring.metrics.proportions import clopper_pearson

LOOKS = 10  # looks among which half of the error is shared out


def level_of_look(look: int, confidence: float = 0.95) -> float:
    """Return the level of the interval at one look with which the intervals of all looks hold together.

    Look j may err with a probability of (1 - confidence) c / ((j + c - 1) (j + c)), where c is ``LOOKS``. These
    probabilities fall slowly up to look c, by when half of the error is spent, and sum to 1 - confidence over all looks
    there can ever be. By the union bound the probability that any of the intervals misses what it is of is no larger:
    the number of looks need not be fixed beforehand, and a caller that stops at any look stops at an
    interval that holds.

    Args:
        look: from 1.
        confidence: that all hold, in (0, 1).

    Returns:
        In (confidence, 1).

    Raises:
        ValueError: if either is out of range.

    Source: the union bound over looks (Darling and Robbins 1967, "Confidence sequences for mean, variance, and
        median"); the shares telescope, 1 / (j + c - 1) - 1 / (j + c) each.

    >>> round(1 - level_of_look(1), 6), round(sum(1 - level_of_look(j) for j in range(1, 11)), 6)
    (0.004545, 0.025)
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    if look < 1:
        raise ValueError(f"looks are counted from 1, got {look}")
    return 1 - (1 - confidence) * LOOKS / ((look + LOOKS - 1) * (look + LOOKS))


def fewest_rows(bound: float, level: float, share: float = 1.0) -> int | None:
    """Return the number of rows from which the exact interval of a given accuracy lies at or above a bound.

    Args:
        bound: on the accuracy, in (0, 1).
        level: of the interval, in (0, 1).
        share: that is right, in [0, 1]; 1 gives the least number with which it can be shown at all.

    Returns:
        The least such number up to a few (rounding to whole rows makes it waver); None where ``share`` is not above
        ``bound``, so that no number of rows shows it.

    >>> fewest_rows(0.9, 0.95), fewest_rows(0.9, 0.95, 0.92), fewest_rows(0.9, 0.95, 0.9)
    (36, 931, None)
    """
    if share <= bound:
        return None
    if share == 1:
        return ceil(log((1 - level) / 2) / log(bound))

    def shown(n: int) -> bool:
        return clopper_pearson(floor(share * n), n, level).low >= bound

    few, many = 0, 1
    while not shown(many):
        few, many = many, 2 * many
    return few + 1 + bisect_left(range(few + 1, many), True, key=shown)
