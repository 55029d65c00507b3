"""Calibration of predicted probabilities: calibration error and squared error, with intervals."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.statistics.weighted import RankOrder
from scoring.metrics.resampling import Interval, percentiles, resample

Floats = NDArray[np.float64]
BINS = 10  # of equally many rows
BY_CHANCE = 200  # draws of outcomes that it is likely right of


class EqualMass:
    """Equal-mass bins of predictions; rows with equal predictions are split evenly among bins.

    Args:
        p: promised, shape (N,).
        lines: what is averaged in each bin, shape (N, M); the prediction itself may be one of them.
        n_bins: how many.

    Attributes:
        lines: by the order of p, shape (M, N).
    """

    def __init__(self, p: NDArray, lines: NDArray, n_bins: int = BINS) -> None:
        self._order = RankOrder(p)
        self._shares = np.arange(1, n_bins + 1) / n_bins
        self.n_bins = n_bins
        self.lines = self._order.sort(lines)

    def means(self, counts: NDArray, lines: Floats | None = None) -> Floats:
        """Return the mean of each line in each bin, lowest p first, shape (M, bins).

        Args:
            counts: of each row in the sample, shape (N,): whole numbers, or weights.
            lines: others than those given, in the same order, shape (M, N).
        """
        used = self.lines if lines is None else lines
        sums = self._order.accuracy_at(counts, used, self._shares) * self._shares[:, None]  # of the highest
        return (np.diff(sums, axis=0, prepend=0.0) * self.n_bins)[::-1].T

    def sorted(self, values: NDArray) -> Floats:
        """Return one more line, shape (1, N), in the sorted order."""
        return self._order.sort(np.asarray(values)[:, None])


@dataclass(frozen=True)
class Calibrated:
    """Quality of probabilities on held-out rows; lower is better except for ``gain``.

    Attributes:
        ece: expected calibration error: mean distance of promise and share in bins of equally many rows.
        by_chance: the mean of that and its 95 % bounds if every promise were right: none below can be separated from 0.
        rms: the root of the same squared, less its value by chance; 0 where probability explains all.
        brier: mean squared distance of promise and outcome.
        gain: how much lower that is than the baseline's.
        promised: mean promise of each bin, the lowest first.
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

    The bounds are percentile bootstraps over rows; resamples are the same for all predictions. A resample adds the
    noise of its draw to the bins once more, so it is taken off twice from ``rms`` there, and the bounds of ``ece`` are
    moved by how much the mean of the resamples lies above the value.

    Args:
        predictions: name -> probability of each row, made without that row, shape (N,).
        baseline: which of them ``gain`` is over.
        y: how bad each row was, in [0, 1], shape (N,).
        weights: of the rows, mean 1, shape (N,).
        repeats: resamples.
        seed: of resamples and draws.

    Source: ``rms``: Kumar, Liang and Ma 2019, "Verified uncertainty calibration", arXiv:1909.10155, the debiased
    estimator of the squared calibration error. ``by_chance``: Broecker and Smith 2007, "Increasing the reliability of
    reliability diagrams".
    """
    names = list(predictions)
    bins = [EqualMass(p, np.stack([p, y], 1)) for p in predictions.values()]
    squares = np.stack([(p - y) ** 2 for p in predictions.values()])  # (P, N)
    base, k = names.index(baseline), BINS

    def statistic(counts: NDArray[np.int64], noise: float = 2.0) -> Floats:
        """Shape (P, 4 + 2 k): ECE, squared error without noise, Brier, gain, then promise and share of each bin."""
        drawn = counts * weights
        rows = drawn.sum() ** 2 / (drawn * weights).sum() / k  # in a bin, as many as would show as much
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
        at_random = _by_chance(bins[at], predictions[name], weights, seed)
        promised = tuple(interval.value for interval in rest[:k])
        result[name] = Calibrated(ece, at_random, rms, brier, gain, promised, tuple(rest[k:]))
    return result


def _by_chance(bins: EqualMass, p: Floats, weights: Floats, seed: int) -> Interval:
    """Return mean and 95 % bounds of the ECE of perfectly calibrated predictions, by drawing outcomes."""
    generator = np.random.default_rng([seed, BY_CHANCE])
    promised, drawn = bins.lines[:1], []
    for _ in range(BY_CHANCE):
        lines = np.concatenate([promised, bins.sorted(generator.random(len(p)) < p)])
        expected, seen = bins.means(weights, lines)
        drawn.append(np.abs(expected - seen).mean())
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(float(np.mean(drawn)), float(low), float(high))
