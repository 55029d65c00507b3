"""Anytime-valid intervals of a round's accuracy, and of its lift over random labels.

A look is an import: the model of all labels after the j-th one is looked at as often as one likes, always with the
error of look j. Rows held out are random and nothing that picks or learns sees them, so to each model they are new,
independent rows, however many models came before; what several looks cost is the union bound of ``level_of_look``.
"""

from dataclasses import dataclass

import numpy as np

from curate.probes.accuracy import Accuracy
from curate.rounds.measures.lift import LEAST_CONTROL, LEAST_HELD_OUT, Arms
from curate.statistics.anytime import level_of_look
from curate.statistics.paired import paired_interval
from scoring.metrics.proportions import clopper_pearson


@dataclass(frozen=True)
class Anytime:
    """An interval that is valid jointly with the intervals of all other looks.

    Attributes:
        look: imports that the model knows, from 1.
        confidence: that the intervals of all looks hold, in (0, 1).
        low: lower end.
        high: upper end.
    """

    look: int
    confidence: float
    low: float
    high: float


@dataclass(frozen=True)
class PairLift:
    """Accuracy of two models on the same rows, fitted on equally many labels of the strategy and of the control arm.

    The interval is of the difference between these two models on images like those held out; that other labels would
    have given other models is not in it.

    Attributes:
        n: labels of each.
        n_held_out: rows measured on.
        better: of them, on which the strategy's model alone is right.
        worse: on which the other alone is.
        strategy: accuracy of the strategy's.
        control: accuracy of the other.
        anytime: of strategy - control.
    """

    n: int
    n_held_out: int
    better: int
    worse: int
    strategy: float
    control: float
    anytime: Anytime


def anytime_accuracy(accuracy: Accuracy, look: int, confidence: float) -> Anytime:
    """Return the anytime-valid interval of an accuracy; [0, 1] without rows."""
    share = clopper_pearson(accuracy.right, accuracy.n, level_of_look(look, confidence))
    return Anytime(look, confidence, share.low, share.high)


def pair_lift(arms: Arms, look: int, confidence: float) -> PairLift | None:
    """Return the lift of the strategy's first labels over as many random ones; None with too few to fit on."""
    n, n_held_out = arms.n, len(arms.held_out)
    if n < LEAST_CONTROL or n_held_out < LEAST_HELD_OUT:
        return None
    first = np.arange(n)
    strategy, control = (arms.right(arm, first) > 0 for arm in (arms.strategy, arms.control))
    better, worse = int((strategy & ~control).sum()), int((control & ~strategy).sum())
    interval = anytime_difference(better, worse, n_held_out, look, confidence)
    return PairLift(n, n_held_out, better, worse, float(strategy.mean()), float(control.mean()), interval)


def anytime_difference(better: int, worse: int, n: int, look: int, confidence: float) -> Anytime:
    """Return the anytime-valid interval of the difference of two accuracies.

    Args:
        better: rows on which the first model alone is right.
        worse: rows on which the second alone is.
        n: rows.
        look: from 1.
        confidence: in (0, 1).
    """
    share = paired_interval(better, worse, n, level_of_look(look, confidence))
    return Anytime(look, confidence, share.low, share.high)
