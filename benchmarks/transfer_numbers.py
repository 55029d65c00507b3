"""Numbers with their intervals, and how often chance level does as well: over images, and over sets for a mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from curate.statistics.weighted import RankOrder
from scoring.metrics.ranking import ranks, spearman
from scoring.metrics.resampling import percentiles, resample

REPEATS = 300
SHUFFLES = 999


@dataclass(frozen=True)
class Measured:
    """A number, what it is on resamples, and what it is when the target is shuffled.

    Attributes:
        value: on all rows.
        resampled: shape (R,).
        shuffled: shape (M,); empty where chance level is no question.
    """

    value: float
    resampled: np.ndarray
    shuffled: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def to_json(self) -> list[float | None]:
        """Return value, low, high, p; the bounds hold 95 % of the resamples, p is one-sided, null if unknown."""
        low, high = percentiles(self.resampled[:, None])
        slack = 1e-9  # sums in another order differ in their last digits
        reached = (1 + (self.shuffled >= self.value - slack).sum()) / (1 + len(self.shuffled))
        numbers = [self.value, low[0], high[0], reached if len(self.shuffled) else np.nan]
        return [None if np.isnan(number) else round(float(number), 4) for number in numbers]

    def minus(self, other: "Measured") -> "Measured":
        """Return the difference to another number on the same resamples."""
        return Measured(self.value - other.value, self.resampled - other.resampled)


def mean_of(measured: Sequence[Measured], seed: int = 0) -> Measured:
    """Return the mean over sets: a resample draws sets with repeats, and takes a resample of each."""
    generator = np.random.default_rng(seed)
    lines = np.stack([each.resampled for each in measured])  # (S, R)
    drawn = generator.integers(0, len(lines), lines.shape)
    resampled = np.nanmean(np.take_along_axis(lines, drawn, 0), 0)
    shuffled = (
        np.mean([each.shuffled for each in measured], 0) if all(len(m.shuffled) for m in measured) else np.zeros(0)
    )
    return Measured(float(np.nanmean([each.value for each in measured])), resampled, shuffled)


def average(measured: Sequence[Measured]) -> Measured:
    """Return the mean of one number over draws, on the same resamples."""
    value, resampled, shuffled = zip(*((m.value, m.resampled, m.shuffled) for m in measured), strict=True)
    return Measured(float(np.mean(value)), np.mean(resampled, 0), np.mean(shuffled, 0))


def aurocs(scores: Mapping[str, np.ndarray], target: np.ndarray, rows: np.ndarray | None = None) -> dict[str, Measured]:
    """Return for each score the probability that it is higher where the target is true; all see the same resamples.

    Args:
        scores: name -> shape (N,).
        target: shape (N,), bool.
        rows: those that count, shape (N,) bool; resamples are of all N.
    """
    counted = np.ones(len(target), bool) if rows is None else rows
    inside = target[counted]
    n_true, n_false = int(inside.sum()), int((~inside).sum())
    shuffled = np.stack([np.random.default_rng(seed).permutation(inside) for seed in range(SHUFFLES)]).astype(float)
    measures = {}
    for name, score in scores.items():
        order = RankOrder(score)
        lines = order.sort(target[:, None])
        value = float(order.auroc(order.ones() * counted, lines)[0])
        draws = resample(lambda n, o=order, t=lines: o.auroc(n * counted, t), len(target), repeats=REPEATS)[:, 0]
        chance_level = (shuffled @ ranks(score[counted]) - n_true * (n_true + 1) / 2) / max(n_true * n_false, 1)
        measures[name] = Measured(value, draws, chance_level)
    return measures


def spearmans(scores: Mapping[str, np.ndarray], target: np.ndarray) -> dict[str, Measured]:
    """Return for each score its rank correlation with the target; all see the same resamples."""
    generator = np.random.default_rng(0)
    drawn = generator.integers(0, len(target), (REPEATS, len(target)))
    middle = ranks(target) - ranks(target).mean()
    shuffled = np.stack([np.random.default_rng(seed).permutation(middle) for seed in range(SHUFFLES)])
    measures = {}
    for name, score in scores.items():
        centred = ranks(score) - ranks(score).mean()
        chance_level = shuffled @ centred / max(float(np.sqrt((centred @ centred) * (middle @ middle))), 1e-12)
        resampled = np.array([spearman(score[at], target[at]) for at in drawn])
        measures[name] = Measured(spearman(score, target), resampled, chance_level)
    return measures


def share(flags: np.ndarray) -> Measured:
    """Return the mean of numbers of rows, shape (N,), such as flags."""
    values = np.asarray(flags, float)
    resampled = resample(lambda counts: np.array([counts @ values / len(values)]), len(values), repeats=REPEATS)
    return Measured(float(values.mean()), resampled[:, 0])
