"""Anytime-valid intervals: the error is split over all looks in advance, so that all intervals hold at once."""

from bisect import bisect_left
from math import ceil, floor, log

from scoring.metrics.proportions import clopper_pearson

LOOKS = 10  # number of looks that share half of the error


def level_of_look(look: int, confidence: float = 0.95) -> float:
    """Return the level of the interval at one look such that the intervals of all looks hold simultaneously.

    Look j has an error of (1 - confidence) c / ((j + c - 1) (j + c)), where c is ``LOOKS``. These errors decrease
    slowly up to look c, when half of the total is spent, and sum to 1 - confidence over infinitely many looks. By the
    union bound, this also bounds the probability that any interval misses its parameter: the number of looks need not
    be fixed in advance, and stopping at any look is valid.

    Args:
        look: from 1.
        confidence: of all intervals simultaneously, in (0, 1).

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
        share: the accuracy, in [0, 1]; 1 gives the smallest possible number of rows.

    Returns:
        The smallest such number up to a few, since rounding to whole rows is not monotone; None if ``share`` is not
        above ``bound``.

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
