"""Selectors that take the rows with the highest score: cheap, and blind to rows that resemble one another."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from curate.selectors.contract import Selector, check
from curate.selectors.pool import Pool, Selection
from curate.selectors.scores import SCORES


@dataclass(frozen=True)
class Ranked(Selector):
    """The candidates with the highest score, the highest first; ties go to the lower row. Gains are the scores.

    Attributes:
        score: a name of ``SCORES``; each score has its own class.
    """

    score: ClassVar[str]
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(NC + N log N) time, O(N) memory"

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        check(pool, budget, self.needs)
        values = SCORES[self.score].compute(pool)[pool.candidates]
        order = np.argsort(-values, kind="stable")[:budget]
        return Selection(pool.candidates[order], values[order])


class LeastConfidence(Ranked):
    """The rows whose likeliest class is the least likely: 1 - p1.

    Source: Settles 2009, "Active Learning Literature Survey", sec. 3.1.
    """

    needs = ("probabilities",)
    score = "least-confidence"


class Margin(Ranked):
    """The rows whose two likeliest classes are closest: 1 - (p1 - p2).

    The safe choice once there are many labels; with few, what it ranks by is noise. Buys ambiguous images: gate or
    discount by quality where there are many.

    Source: Settles 2009, sec. 3.1.
    """

    needs = ("probabilities",)
    score = "margin"


class Entropy(Ranked):
    """The rows with the highest entropy of the predicted classes; below random while labels are few.

    Source: Settles 2009, sec. 3.1.
    """

    needs = ("probabilities",)
    score = "entropy"


class Bald(Ranked):
    """The rows whose label would show most about the model, by the disagreement of several models.

    Source: Houlsby et al. 2011, arXiv:1112.5745, eq. 2.
    """

    needs = ("draws",)
    cost = "O(MNC + N log N) time for M models, O(NC) memory"
    score = "bald"


class HighestScore(Ranked):
    """The rows with the highest value of a score column, kappa or unc, in the direction that the caller gave it.

    High uncertainty of a pretrained model is mostly bad quality: it is a gate or a discount, seldom a reason to label.
    """

    needs = ("uncertainty",)
    cost = "O(N log N) time, O(N) memory"
    score = "score"


class RhoLoss(Ranked):
    """Of rows that have labels, those that are learnable and not yet learnt: loss - holdout loss.

    For choosing what to train on, never what to label: its candidates carry labels.

    Source: Mindermann et al. 2022, arXiv:2206.07137, eq. 3.
    """

    needs = ("loss", "holdout_loss")
    cost = "O(N log N) time, O(N) memory"
    score = "rho-loss"
