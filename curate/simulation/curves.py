"""Learning curves of strategies, and their differences."""

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

ALL_SIGNS = 14  # seeds up to which every one of the 2^S signs is tried; beyond, a sample
SIGNS = 20_000


@dataclass(frozen=True)
class Curves:
    """Accuracy by the number of labels.

    Attributes:
        budgets: labels after each round, shape (B,) int64.
        seeds: shape (S,).
        accuracy: on the test rows, shape (S, B) float64, in [0, 1].
        picks: rows in the order labelled, shape (S, budgets[-1]) int64.
    """

    budgets: NDArray[np.int64]
    seeds: tuple[int, ...]
    accuracy: NDArray[np.float64]
    picks: NDArray[np.int64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean accuracy over the seeds, shape (B,)."""
        return self.accuracy.mean(0)

    @property
    def error(self) -> NDArray[np.float64]:
        """Standard error of the mean over the seeds, shape (B,); NaN for one seed."""
        return _standard_error(self.accuracy)

    @property
    def area(self) -> NDArray[np.float64]:
        """Mean height of each seed's curve between the first and last budget, shape (S,), in [0, 1]."""
        return area_under(self.budgets, self.accuracy)


def area_under(budgets: NDArray[np.int64], accuracy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean height of curves by the trapezoidal rule over the number of labels.

    Args:
        budgets: shape (B,), ascending.
        accuracy: shape (S, B).

    Returns:
        Shape (S,); with one budget the accuracy there.

    >>> area_under(np.array([10, 20, 40]), np.array([[0.0, 1.0, 1.0]])).round(4).tolist()
    [0.8333]
    """
    if len(budgets) == 1:
        return accuracy[:, 0]
    width = np.diff(budgets)
    return ((accuracy[:, 1:] + accuracy[:, :-1]) / 2 * width).sum(1) / width.sum()


@dataclass(frozen=True)
class Lift:
    """Difference of one strategy to another, seed by seed.

    Attributes:
        difference: mean accuracy above the other's, shape (B,).
        error: standard error of the difference, shape (B,); NaN for one seed.
        area: mean difference of the areas under the curves.
        area_error: its standard error.
        p: two-sided, of the areas being alike (sign flips of the seeds' differences); never below 2^(1-S).
        saved: share of the labels that the strategy does without to reach the other's accuracy at each budget, shape
            (B,), on mean curves made to never fall, against the labels with which the other first got there; negative
            where it takes more, NaN where it never gets there.
    """

    difference: NDArray[np.float64]
    error: NDArray[np.float64]
    area: float
    area_error: float
    p: float
    saved: NDArray[np.float64]


def lift(curves: Curves, baseline: Curves) -> Lift:
    """Compare two strategies simulated with the same seeds and budgets.

    Raises:
        ValueError: if seeds or budgets differ.
    """
    if curves.seeds != baseline.seeds or not np.array_equal(curves.budgets, baseline.budgets):
        raise ValueError("both strategies must be replayed with the same seeds and budgets")
    gap, areas = curves.accuracy - baseline.accuracy, curves.area - baseline.area
    return Lift(
        gap.mean(0),
        _standard_error(gap),
        float(areas.mean()),
        float(_standard_error(areas[:, None])[0]),
        sign_flip_p(areas),
        labels_saved(curves.budgets, curves.mean, baseline.mean),
    )


def sign_flip_p(differences: NDArray[np.float64]) -> float:
    """Return the sign-flip p value: how often random signs of the differences give a mean at least as far from 0.

    Every choice of signs is tried for up to 14 differences, else 20,000 at random, the real one among them.

    Args:
        differences: shape (S,).

    Source: Fisher's randomisation test for pairs.

    >>> sign_flip_p(np.array([1.0, 2.0, 3.0]))
    0.25
    """
    n = len(differences)
    if n <= ALL_SIGNS:
        signs = np.array(list(product((1.0, -1.0), repeat=n)))
    else:
        signs = np.random.default_rng(0).choice([1.0, -1.0], (SIGNS, n))
        signs[0] = 1.0
    reached = np.abs(signs @ differences)
    return float((reached >= abs(differences.sum()) * (1 - 1e-12)).mean())


def labels_saved(
    budgets: NDArray[np.int64], accuracy: NDArray[np.float64], other: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return 1 - a / b, where a and b are the labels that a strategy and another need for the other's accuracy.

    Curves are straight between budgets and made to never fall, so noise does not take back what was reached. Where
    the other's is flat, what counts is where it first got there: labels that taught it nothing are not saved.

    Args:
        budgets: shape (B,), ascending.
        accuracy: mean, of the strategy, shape (B,).
        other: the same of the other.

    Returns:
        Shape (B,); NaN where the strategy never gets there. What its first budget
        already reaches counts as that budget.

    >>> labels_saved(np.array([10, 20, 40]), np.array([0.5, 0.8, 0.9]), np.array([0.5, 0.65, 0.8])).tolist()
    [0.0, 0.25, 0.5]
    """
    accuracy, other = np.maximum.accumulate(accuracy), np.maximum.accumulate(other)
    saved = np.full(len(budgets), np.nan)
    for at, target in enumerate(other):
        if target <= accuracy[-1]:
            saved[at] = 1 - _labels_to_reach(target, budgets, accuracy) / _labels_to_reach(target, budgets, other)
    return saved


def _labels_to_reach(target: float, budgets: NDArray[np.int64], accuracy: NDArray[np.float64]) -> float:
    """Return where a non-decreasing curve first reaches an accuracy that it does reach."""
    right = int(np.argmax(accuracy >= target))
    if not right:
        return float(budgets[0])
    share = (target - accuracy[right - 1]) / (accuracy[right] - accuracy[right - 1])
    return float(budgets[right - 1] + share * (budgets[right] - budgets[right - 1]))


def _standard_error(values: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(values) < 2:
        return np.full(values.shape[1], np.nan)
    return values.std(0, ddof=1) / np.sqrt(len(values))
