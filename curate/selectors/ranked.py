"""Selectors that take the rows with the highest score: cheap, and blind to rows that resemble one another."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from curate.selectors.contract import check
from curate.selectors.pool import Pool, Selection
from curate.selectors.scores import SCORES


def take_best(score: str, pool: Pool, budget: int) -> Selection:
    """Pick the candidates with the highest score, the highest first; ties go to the lower row.

    Args:
        score: a name of ``SCORES``.
        pool: the rows.
        budget: picks.

    Returns:
        Gains are the scores, in their own unit.

    Raises:
        InputError: as ``check``.
    """
    check(pool, budget, SCORES[score].needs)
    values = SCORES[score].compute(pool)[pool.candidates]
    order = np.argsort(-values, kind="stable")[:budget]
    return Selection(pool.candidates[order], values[order])


@dataclass(frozen=True)
class LeastConfidence:
    """The rows whose likeliest class is the least likely: 1 - p1.

    Source: Settles 2009, "Active Learning Literature Survey", sec. 3.1.
    """

    needs: ClassVar[tuple[str, ...]] = ("probabilities",)
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(NC + N log N) time, O(N) memory"
    score: ClassVar[str] = "least-confidence"

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        return take_best(self.score, pool, budget)


@dataclass(frozen=True)
class Margin:
    """The rows whose two likeliest classes are closest: 1 - (p1 - p2).

    The safe choice once there are many labels; with few, what it ranks by is noise. Buys ambiguous images: gate or
    discount by quality where there are many.

    Source: Settles 2009, sec. 3.1.
    """

    needs: ClassVar[tuple[str, ...]] = ("probabilities",)
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(NC + N log N) time, O(N) memory"
    score: ClassVar[str] = "margin"

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        return take_best(self.score, pool, budget)


@dataclass(frozen=True)
class Entropy:
    """The rows with the highest entropy of the predicted classes; below random while labels are few.

    Source: Settles 2009, sec. 3.1.
    """

    needs: ClassVar[tuple[str, ...]] = ("probabilities",)
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(NC + N log N) time, O(N) memory"
    score: ClassVar[str] = "entropy"

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        return take_best(self.score, pool, budget)


@dataclass(frozen=True)
class Bald:
    """The rows whose label would tell most about the model, by the disagreement of several models.

    Source: Houlsby et al. 2011, arXiv:1112.5745, eq. 2.
    """

    needs: ClassVar[tuple[str, ...]] = ("draws",)
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(MNC + N log N) time for M models, O(NC) memory"
    score: ClassVar[str] = "bald"

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        return take_best(self.score, pool, budget)


@dataclass(frozen=True)
class JensenShannon:
    """BALD as a share of the most that M models can disagree, in [0, 1]: comparable between numbers of models.

    Source: Lin 1991, eq. 5.1, with equal weights.
    """

    needs: ClassVar[tuple[str, ...]] = ("draws",)
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(MNC + N log N) time for M models, O(N) memory"
    score: ClassVar[str] = "jensen-shannon"

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        return take_best(self.score, pool, budget)


@dataclass(frozen=True)
class HighestScore:
    """The rows with the highest value of a score column, kappa or unc, in the direction that the caller gave it.

    High uncertainty of a pretrained model is mostly bad quality: it is a gate or a discount, seldom a reason to label.
    """

    needs: ClassVar[tuple[str, ...]] = ("uncertainty",)
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(N log N) time, O(N) memory"
    score: ClassVar[str] = "score"

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        return take_best(self.score, pool, budget)


@dataclass(frozen=True)
class RhoLoss:
    """Of rows that have labels, those that are learnable and not yet learnt: loss - holdout loss.

    For choosing what to train on, never what to label: its candidates carry labels.

    Source: Mindermann et al. 2022, arXiv:2206.07137, eq. 3.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss", "holdout_loss")
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(N log N) time, O(N) memory"
    score: ClassVar[str] = "rho-loss"

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        return take_best(self.score, pool, budget)
