"""Calibration of predicted probabilities: calibration error and squared error, with intervals."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.statistics.weighted import RankOrder
from scoring.arrays import Array, Floats
from scoring.metrics.resampling import Interval, percentiles, resample

BINS = 10  # of equally many rows
BY_CHANCE = 200  # number of simulated outcomes


class EqualMass:
    """Equal-mass bins of predictions; rows with equal predictions are split evenly among bins.

    Args:
        p: predicted probabilities, shape (N,).
        lines: values averaged in each bin, shape (N, M); may include the prediction.
        n_bins: number of bins.

    Attributes:
        lines: sorted by p, shape (M, N).
    """

    def __init__(self, p: Array, lines: Array, n_bins: int = BINS) -> None:
        self._order = RankOrder(p)
        self._shares = np.arange(1, n_bins + 1) / n_bins
        self.n_bins = n_bins
        self.lines = self._order.sort(lines)

    def means(self, counts: Array, lines: Floats | None = None) -> Floats:
        """Return the mean of each line in each bin, lowest p first, shape (M, bins).

        Args:
            counts: weight of each row in the sample, shape (N,).
            lines: other lines, in the same order, shape (M, N).
        """
        used = self.lines if lines is None else lines
        sums = self._order.accuracy_at(counts, used, self._shares) * self._shares[:, None]  # of the highest
        return (np.diff(sums, axis=0, prepend=0.0) * self.n_bins)[::-1].T

    def sorted(self, values: Array) -> Floats:
        """Return another line, shape (1, N), in the sorted order."""
        return self._order.sort(np.asarray(values)[:, None])


@dataclass(frozen=True)
class Calibrated:
    """Quality of probabilities on held-out rows; lower is better except for ``gain``.

    Attributes:
        ece: expected calibration error: mean absolute difference of predicted and observed share in equal-mass bins.
        by_chance: mean ECE and its 95 % bounds for perfectly calibrated predictions; a lower ECE cannot be
            distinguished from 0.
        rms: debiased root mean squared calibration error; 0 if within sampling noise.
        brier: mean squared difference of prediction and outcome.
        gain: decrease of ``brier`` relative to the baseline.
        promised: mean prediction of each bin, lowest first.
        seen: share of bad rows in each bin, with intervals.
    """

    ece: Interval
    by_chance: Interval
    rms: Interval
    brier: Interval
    gain: Interval
    promised: tuple[float, ...]
    seen: tuple[Interval, ...]


def calibrated(
    predictions: Mapping[str, Floats], baseline: str, y: Floats, weights: Floats, *, repeats: int = 1000, seed: int = 0
) -> dict[str, Calibrated]:
    """Measure probabilities against outcomes.

    The bounds are percentile bootstraps over rows, with the same resamples for all predictions. Resampling adds its
    noise to the bins, so ``rms`` is debiased twice there, and the bounds of ``ece`` are shifted by the bias of the
    resamples' mean.

    Args:
        predictions: name -> out-of-sample probability of each row, shape (N,).
        baseline: name of the prediction that ``gain`` is relative to.
        y: badness of each row, in [0, 1], shape (N,).
        weights: of the rows, mean 1, shape (N,).
        repeats: number of resamples.
        seed: of the resamples.

    Source: ``rms``: Kumar, Liang and Ma 2019, "Verified uncertainty calibration", arXiv:1909.10155, the debiased
    estimator of the squared calibration error. ``by_chance``: Broecker and Smith 2007, "Increasing the reliability of
    reliability diagrams".
    """
    names = list(predictions)
    bins = [EqualMass(p, np.stack([p, y], 1)) for p in predictions.values()]
    squares = np.stack([(p - y) ** 2 for p in predictions.values()])  # (P, N)
    base, k = names.index(baseline), BINS

    def statistic(counts: NDArray[np.int64], noise: float = 2.0) -> Floats:
        """Return ECE, debiased squared error, Brier, gain, then prediction and share per bin, shape (P, 4 + 2 k)."""
        drawn = counts * weights
        rows = drawn.sum() ** 2 / (drawn * weights).sum() / k  # effective number of rows per bin
        brier = squares @ drawn / drawn.sum()
        measures = np.empty((len(names), 4 + 2 * k))
        for at, each in enumerate(bins):
            promised, seen = each.means(drawn)
            gap, variance = promised - seen, seen * (1 - seen) / max(rows - 1, 1)
            measures[at, :2] = np.abs(gap).mean(), (gap**2 - noise * variance).mean()
            measures[at, 4:] = np.concatenate([promised, seen])
        measures[:, 2], measures[:, 3] = brier, brier[base] - brier
        return measures

    value = statistic(np.ones(len(y), np.int64), noise=1.0)
    drawn = resample(lambda counts: statistic(counts).reshape(-1), len(y), repeats=repeats, seed=seed)
    low, high = (bound.reshape(value.shape) for bound in percentiles(drawn))
    moved = drawn.mean(0).reshape(value.shape)[:, 0] - value[:, 0]
    low[:, 0], high[:, 0] = np.maximum(low[:, 0] - moved, 0), np.maximum(high[:, 0] - moved, 0)
    result = {}
    for at, name in enumerate(names):
        bounds = zip(value[at], low[at], high[at], strict=True)
        ece, square, brier, gain, *rest = (Interval(*map(float, ends)) for ends in bounds)
        rms = Interval(*(float(np.sqrt(max(0.0, end))) for end in square))
        at_random = _ece_by_chance(bins[at], predictions[name], weights, seed)
        promised = tuple(interval.value for interval in rest[:k])
        result[name] = Calibrated(ece, at_random, rms, brier, gain, promised, tuple(rest[k:]))
    return result


def _ece_by_chance(bins: EqualMass, p: Floats, weights: Floats, seed: int) -> Interval:
    """Return mean and 95 % bounds of the ECE of perfectly calibrated predictions, by simulated outcomes."""
    generator = np.random.default_rng([seed, BY_CHANCE])
    promised, drawn = bins.lines[:1], []
    for _ in range(BY_CHANCE):
        lines = np.concatenate([promised, bins.sorted(generator.random(len(p)) < p)])
        expected, seen = bins.means(weights, lines)
        drawn.append(np.abs(expected - seen).mean())
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(float(np.mean(drawn)), float(low), float(high))
