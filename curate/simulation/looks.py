"""The view of few held-out rows in each round of a replay: coverage of intervals, and stops."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.rounds.measures.rules import LIFT, StopRule
from curate.simulation.curves import Curves
from curate.statistics.anytime import level_of_look
from curate.statistics.paired import paired_interval
from scoring.metrics.proportions import clopper_pearson
from scoring.metrics.resampling import Interval

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Looks:
    """Intervals of a measure after every round of every run, and the truth.

    Attributes:
        truth: on all test rows, shape (S, B).
        low: ends that hold at every look, shape (S, B).
        high: the same.
        alone_low: ends of the exact interval of each round on its own, as who looks once would make it, shape (S, B).
        alone_high: the same.
    """

    truth: Floats
    low: Floats
    high: Floats
    alone_low: Floats
    alone_high: Floats

    @property
    def held(self) -> NDArray[np.bool_]:
        """Whether the truth was inside at every look of a run, shape (S,)."""
        return np.asarray(((self.low <= self.truth) & (self.truth <= self.high)).all(1))

    @property
    def alone_held(self) -> NDArray[np.bool_]:
        """The same for the interval of each single round, shape (S,)."""
        return np.asarray(((self.alone_low <= self.truth) & (self.truth <= self.alone_high)).all(1))


def accuracy_looks(curves: Curves, confidence: float) -> Looks:
    """Return the intervals of the accuracy that rounds would have shown.

    Args:
        curves: replayed with rows held out.
        confidence: that the intervals of all looks hold.
    """
    right = _held_right(curves)
    counts, n = right.sum(2), right.shape[2]
    return _looks(curves.accuracy, confidence, lambda at, level: clopper_pearson(int(counts[at]), n, level))


def lift_looks(curves: Curves, baseline: Curves, confidence: float) -> Looks:
    """Return the intervals of the lift over random labels, seed by seed on the same rows held out."""
    right, baseline_right = _held_right(curves), _held_right(baseline)
    better, worse, n = (right & ~baseline_right).sum(2), (baseline_right & ~right).sum(2), right.shape[2]
    return _looks(
        curves.accuracy - baseline.accuracy,
        confidence,
        lambda at, level: paired_interval(int(better[at]), int(worse[at]), n, level),
    )


def _held_right(curves: Curves) -> NDArray[np.bool_]:
    if curves.held_right is None or not curves.held_right.shape[2]:
        raise ValueError("expected curves that were replayed with rows held out")
    return curves.held_right


def _looks(truth: Floats, confidence: float, interval: Callable[[tuple[int, ...], float], Interval]) -> Looks:
    ends = np.empty((4, *truth.shape))
    for at in np.ndindex(truth.shape):
        every, alone = interval(at, level_of_look(at[1] + 1, confidence)), interval(at, confidence)
        ends[(slice(None), *at)] = every.low, every.high, alone.low, alone.high
    return Looks(truth, *ends)


@dataclass(frozen=True)
class Stops:
    """Where a rule would have stopped the runs of a strategy.

    Attributes:
        rule: as text.
        truly: rounds until it was true, shape (S,) float64, NaN where it never was.
        stopped: rounds until it was shown, by the intervals that hold at every look; NaN for never.
        wrong: whether it was not true when it was shown, shape (S,) bool.
        alone_stopped: the same by the intervals of each round on its own.
        alone_wrong: the same.
    """

    rule: str
    truly: Floats
    stopped: Floats
    wrong: NDArray[np.bool_]
    alone_stopped: Floats
    alone_wrong: NDArray[np.bool_]


def stops(rule: StopRule, looks: Looks) -> Stops:
    """Return where a rule stops each run, and whether it is right to."""
    if rule.at_least:
        true, shown, alone = (part >= rule.bound for part in (looks.truth, looks.low, looks.alone_low))
    else:
        true, shown, alone = (part <= rule.bound for part in (looks.truth, looks.high, looks.alone_high))
    return Stops(str(rule), _first(true), _first(shown), _wrong(true, shown), _first(alone), _wrong(true, alone))


def _first(shown: NDArray[np.bool_]) -> Floats:
    """Return the first round, from 1, in which something is shown, shape (S,); NaN for none."""
    return np.where(shown.any(1), shown.argmax(1) + 1.0, np.nan)


def _wrong(true: NDArray[np.bool_], shown: NDArray[np.bool_]) -> NDArray[np.bool_]:
    at_stop = np.take_along_axis(true, shown.argmax(1)[:, None], 1)[:, 0]
    return np.asarray(shown.any(1) & ~at_stop)


@dataclass(frozen=True)
class Watched:
    """The measures of a strategy.

    Attributes:
        accuracy: intervals of its accuracy.
        lift: of its lift over random; None of random itself.
        stops: of each rule.
    """

    accuracy: Looks
    lift: Looks | None
    stops: tuple[Stops, ...]


def watch(curves: Curves, baseline: Curves | None, confidence: float, rules: Sequence[StopRule]) -> Watched:
    """Return the reports of a strategy from rounds with few rows held out.

    Args:
        curves: of the strategy.
        baseline: of random labels; None where the strategy is that.
        confidence: that the intervals of all looks hold.
        rules: by which to stop; those on the lift are left out if absent.
    """
    accuracy = accuracy_looks(curves, confidence)
    lift = lift_looks(curves, baseline, confidence) if baseline is not None else None
    of_rule = ((rule, lift if rule.measure == LIFT else accuracy) for rule in rules)
    return Watched(accuracy, lift, tuple(stops(rule, looks) for rule, looks in of_rule if looks is not None))
