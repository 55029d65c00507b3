"""Rank measures of a weighted sample, for a bootstrap without sorting again; selective prediction.

A bootstrap sample is a count for each row. Every measure here takes counts and equals the measure on the repeated rows.
Rows are sorted once; then a resample costs one cumulative sum.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array, Floats


class Drawn(NamedTuple):
    """A resample of N rows in the order of a score, with R runs of equal scores, for M predictions.

    Attributes:
        rows: count of each row, shape (N,).
        weight: sum of the counts in each run, shape (R,).
        until: cumulative sum to the end of each run, shape (R,).
        true_runs: counts of the right rows in each run, shape (M, R); None without ties.
    """

    rows: Floats
    weight: Floats
    until: Floats
    true_runs: Floats | None


class RankOrder:
    """The order of one score, most certain first.

    Args:
        certainty: higher is more certain, shape (N,), without NaN.

    Attributes:
        order: rows from the highest certainty to the lowest, shape (N,).
    """

    def __init__(self, certainty: Array) -> None:
        certainty = np.asarray(certainty, np.float64)
        if np.isnan(certainty).any():
            raise ValueError("certainty must be without NaN")
        self.order = np.argsort(-certainty, kind="stable").astype(np.int32)
        ordered = certainty[self.order]
        differs = ordered[1:] != ordered[:-1]
        self._starts: NDArray[np.int64] | None = None  # where each run of equal values begins, if any are equal
        if not differs.all():
            self._starts = np.concatenate([[0], np.flatnonzero(differs) + 1])

    def ones(self) -> NDArray[np.int64]:
        """Return weights of one for each row."""
        return np.ones(len(self.order), np.int64)

    def sort(self, rows: Array) -> Floats:
        """Return values of rows (N, M) as M lines in the sorted order, shape (M, N), float64."""
        return np.ascontiguousarray(np.asarray(rows).T[:, self.order], np.float64)

    def _runs(self, values: Floats) -> Floats:
        """Return the sum over each run of equal values."""
        return values if self._starts is None else np.add.reduceat(values, self._starts, axis=-1)

    def midranks(self, counts: Array) -> Floats:
        """Return midranks in row order: ties share the middle of their ranks."""
        weight = self._runs(counts[self.order].astype(np.float64))
        until = weight.cumsum()
        middle = until - weight / 2
        if self._starts is not None:
            lengths = np.diff(self._starts, append=len(self.order))
            middle = np.repeat(middle, lengths)
        out = np.empty(len(self.order))
        out[self.order] = middle
        return out

    def auroc(self, counts: Array, targets: Floats) -> Floats:
        """Return the AUROC of certainty against M targets, shape (M,); NaN for constant targets.

        Args:
            counts: of each row, shape (N,), integers >= 0.
            targets: 0 or 1, shape (M, N), in this order (see ``sort``).
        """
        return self.auroc_and_aurc(counts, targets, None)[0]

    def drawn(self, counts: Array, right: Floats) -> Drawn:
        """Return a resample in this order, for several measures of it.

        Args:
            counts: of each row, shape (N,), integers >= 0.
            right: 0 or 1, shape (M, N), in this order.
        """
        rows = counts.take(self.order).astype(np.float64)
        weight = self._runs(rows)
        return Drawn(rows, weight, weight.cumsum(), None if self._starts is None else self._runs(rows * right))

    def auroc_and_aurc(
        self, counts: Array, right: Floats, sums: Floats | None, drawn: Drawn | None = None
    ) -> tuple[Floats, Floats]:
        """Return AUROC and AURC (lower is better) of M predictions that are right (1) or wrong (0), in one pass.

        An error at rank p of n adds 1/k for every k >= p, so (H(n) - H(p - 1)) / n in total, H being the harmonic
        numbers; it is averaged over ties.

        Args:
            counts: of each row, shape (N,), integers >= 0.
            right: 0 or 1, shape (M, N), in this order.
            sums: ``harmonic_sums`` of at least the sum of counts; None for AUROC alone.
            drawn: result of ``drawn``, if known.
        """
        rows, weight, until, true_runs = drawn or self.drawn(counts, right)
        total = until[-1]
        if true_runs is None:
            true = weighted_sums(right, rows)
            middle_sum = weighted_sums(right, (until - weight / 2) * rows)
        else:
            true = true_runs.sum(1)
            middle_sum = weighted_sums(true_runs, until - weight / 2)
        false = total - true
        with np.errstate(divide="ignore", invalid="ignore"):
            area = 1 - (middle_sum - true**2 / 2) / (true * false)
        if sums is None:
            return area, np.full_like(area, np.nan)
        places = sums[until.astype(np.int64)]
        inside = np.diff(places, prepend=0.0)  # sum over the run's places of H(place - 1)
        harmonic_total = sums[int(total) + 1] - sums[int(total)]
        if true_runs is None:
            spent = inside.sum() - weighted_sums(right, inside)
        else:
            with np.errstate(divide="ignore", invalid="ignore"):
                each = np.where(weight > 0, inside / weight, 0.0)
            spent = inside.sum() - weighted_sums(true_runs, each)
        return area, (false * harmonic_total - spent) / total

    def accuracy_at(self, counts: Array, right: Floats, coverage: Array, drawn: Drawn | None = None) -> Floats:
        """Return the accuracy of the most certain share of the sample, shape (K, M).

        Args:
            counts: of each row, shape (N,).
            right: 0 or 1, shape (M, N), in this order.
            coverage: shares, shape (K,), in (0, 1].
            drawn: result of ``drawn``, if known.
        """
        rows, weight, until, true_runs = drawn or self.drawn(counts, right)
        weight_kept = np.asarray(coverage, np.float64) * until[-1]
        cut = np.minimum(np.searchsorted(until, weight_kept), len(until) - 1)  # the run in which each share ends
        inside = 1 - (until[cut] - weight_kept) / weight[cut]  # how much of that run is kept
        ends = np.unique(np.concatenate([[0], cut, cut + 1]))
        if true_runs is None:
            pieces = [weighted_sums(right[:, a:b], rows[a:b]) for a, b in pairwise(ends.tolist())]
        else:
            pieces = [true_runs[:, a:b].sum(1) for a, b in pairwise(ends.tolist())]
        correct = np.stack([np.zeros(len(right)), *pieces]).cumsum(0)  # up to each of ends, (2K + 1 or fewer, M)
        before, after = (correct[np.searchsorted(ends, at)] for at in (cut, cut + 1))
        return np.asarray((before + (after - before) * inside[:, None]) / weight_kept[:, None])

    def true_positive_rate_at(self, counts: Array, right: Floats, rates: Array) -> Floats:
        """Return the true-positive rate at the threshold with a given false-positive rate, shape (K, M).

        Args:
            counts: of each row, shape (N,).
            right: 1 for true, 0 for false, shape (M, N), in this order.
            rates: false-positive rates, shape (K,), in [0, 1]; interpolated linearly within ties.

        Returns:
            In [0, 1], the highest at each false-positive rate; NaN for constant targets.
        """
        drawn = counts[self.order].astype(np.float64)
        columns = []
        for line in right:
            true, false = (np.append(0.0, self._runs(part).cumsum()) for part in (drawn * line, drawn * (1 - line)))
            target = np.asarray(rates, np.float64) * false[-1]
            at = np.minimum(np.searchsorted(false, target, side="right"), len(false) - 1)
            with np.errstate(divide="ignore", invalid="ignore"):
                inside = np.where(false[at] > target, (target - false[at - 1]) / (false[at] - false[at - 1]), 1.0)
                rate = (true[at - 1] + inside * (true[at] - true[at - 1])) / true[-1]
            columns.append(rate if false[-1] else np.full_like(rate, np.nan))
        return np.stack(columns, 1)


def weighted_sums(lines: Array, weights: Array) -> Floats:
    """Return the weighted sum of each line, shape (M,), of lines (M, N) and weights (N,).

    Without ``@``: for one long vector and few others, starting threads costs more than it gains.
    """
    return np.asarray(np.einsum("mn,n->m", lines, np.asarray(weights, np.float64)))


def harmonic_sums(n: int) -> Floats:
    """Return S(x) for x = 0 .. n + 1, the sum of the harmonic numbers H(t) over t < x.

    >>> harmonic_sums(2).round(2).tolist()
    [0.0, 0.0, 1.0, 2.5]
    """
    harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n + 1))])  # H(0) .. H(n)
    return np.concatenate([[0.0], np.cumsum(harmonic)])


def weighted_spearman(x: RankOrder, y: RankOrder, counts: Array) -> float:
    """Return the rank correlation of two scores on a weighted sample; NaN if either is constant."""
    a, b = x.midranks(counts), y.midranks(counts)
    total = counts.sum()
    a, b = a - (counts @ a) / total, b - (counts @ b) / total
    scale = np.sqrt((counts @ a**2) * (counts @ b**2))
    return float(counts @ (a * b) / scale) if scale > 0 else float("nan")


def aurc(certainty: Array, right: Array) -> float:
    """Return the area under the risk-coverage curve: the mean over k of the error rate of the k most certain rows.

    Lower is better; one minus the area under the accuracy-coverage curve.

    Args:
        certainty: higher is more certain, shape (N,), without NaN.
        right: shape (N,), bool.

    Source: Geifman et al. 2019, arXiv:1805.08206, sec. 2.
    """
    order = RankOrder(certainty)
    lines = order.sort(np.asarray(right, bool)[:, None])
    return float(order.auroc_and_aurc(order.ones(), lines, harmonic_sums(len(order.order)))[1][0])


def least_aurc(risk: Array | float) -> NDArray[np.float64]:
    """Return the AURC of a perfect order for many rows, r + (1 - r) log(1 - r), for an error rate r.

    With N rows the exact value is larger by less than (1 + log N) / N.

    Source: Geifman et al. 2019, arXiv:1805.08206, eq. 4.
    """
    risk = np.asarray(risk, np.float64)
    log = np.log1p(-risk, out=np.zeros_like(risk), where=risk < 1)
    return np.asarray(risk + (1 - risk) * log)
