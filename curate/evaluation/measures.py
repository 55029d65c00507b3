"""Measures with their intervals: values, JSON, and notes for the reader."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.tables.typed_json import plain_json
from scoring.arrays import Floats
from scoring.metrics.proportions import wilson
from scoring.metrics.ranking import auroc_interval
from scoring.metrics.resampling import Interval, percentiles, resample

EMBEDDING = "embedding"  # column name for measures of the embedding, not of a score
BASELINE = "baseline"  # column name for the value without the embedding
FEW = 10  # rows of the rarer outcome below which the bootstrap underestimates the variance
MANY = 100  # rows from which the bootstrap is accurate


@dataclass(frozen=True)
class ColumnDifference:
    """Difference of two columns on the same resamples; significant if its interval excludes 0."""

    first: str
    second: str
    interval: Interval


@dataclass
class Measure:
    """One measure for every column.

    Attributes:
        name: short, for a table.
        better: ``higher``, ``lower``, or empty if neither is.
        meaning: one sentence.
        n: number of rows (or images); 0 if the measure is missing.
        values: value and bounds by column.
        p: one-sided p value of a permutation test by column, if there is one.
        differences: of the best column to every other one.
        missing: why there are no values; empty if there are.
    """

    name: str
    better: str
    meaning: str
    n: int = 0
    values: dict[str, Interval] = field(default_factory=dict)
    p: dict[str, float] = field(default_factory=dict)
    differences: list[ColumnDifference] = field(default_factory=list)
    missing: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; a missing number is null."""
        record: dict[str, Any] = {"name": self.name, "better": self.better, "meaning": self.meaning, "n": self.n}
        if self.missing:
            return {**record, "missing": self.missing}
        record["values"] = plain_json(self.values)
        if self.p:
            record["permutation_p"] = plain_json(self.p)
        if self.differences:
            record["differences"] = [
                {"column": difference.first, "minus": difference.second, **plain_json(difference.interval)}
                for difference in self.differences
            ]
        return record


INFINITE, SEPARATED = "infinite", "separated"  # reason for a missing logistic slope


@dataclass
class Caveats:
    """Caveats of the measures for the reader.

    Attributes:
        same_ranks: omitted ``unc_X``, which rank rows as ``kappa_X`` does.
        other_model: name of the model that scored corrupted images if it is not the table's, and the digest of the
            table's model.
        without_embeddings: why there are no measures against labels; else empty.
        n_twins: number of rows whose embedding is bit-identical to another row's.
        without_slope: column -> INFINITE, or SEPARATED if it is constant except for a few rows, or separates perfectly.
        norm_unknown: whether the embedding norm would be a baseline, but is not stored.
        without_votes: number of rows without votes.
        unread: number of images that could not be read again.
        shared: number of training rows that were excluded since their images are measured.
        unseen: number of rows whose class is not among the training rows.
        few: predictions with fewer than ``FEW`` wrong or right rows: numbers of both.
    """

    same_ranks: list[str] = field(default_factory=list)
    other_model: tuple[str, str] | None = None
    without_embeddings: str = ""
    n_twins: int = 0
    without_slope: dict[str, str] = field(default_factory=dict)
    norm_unknown: bool = False
    without_votes: int = 0
    unread: int = 0
    shared: int = 0
    unseen: int = 0
    few: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Shape:
    """A measure without values: name, direction, meaning; see ``Measure``."""

    name: str
    better: str
    meaning: str

    def without(self, why: str) -> Measure:
        """Return the measure without values, with the reason."""
        return Measure(self.name, self.better, self.meaning, missing=why)


def measured(
    shapes: Sequence[Shape],
    columns: Sequence[str],
    statistic: Callable[[NDArray[np.int64]], Floats],
    n: int,
    *,
    repeats: int,
    seed: int,
    centred: bool = False,
) -> list[Measure]:
    """Return measures with intervals, and paired differences between the best column and the others.

    Args:
        shapes: K measures.
        columns: C columns.
        statistic: counts of n rows -> values, shape (C, K); counts of 1 give the sample's values.
        n: number of rows.
        repeats: resamples.
        seed: of the resampling; equal for all columns, which pairs them.
        centred: shift the resamples to have the sample's value as mean, for measures that duplicate rows bias upwards.
    """
    shape = (len(columns), len(shapes))
    values = np.asarray(statistic(np.ones(n, np.int64)), np.float64).reshape(shape)
    samples = resample(lambda counts: statistic(counts).reshape(-1), n, repeats=repeats, seed=seed)
    if centred:
        samples += values.reshape(-1) - samples.mean(0)
    low, high = (bound.reshape(shape) for bound in percentiles(samples))
    samples = samples.reshape(-1, *shape)
    measures = []
    for k, about in enumerate(shapes):
        intervals = {
            column: Interval(float(values[c, k]), float(low[c, k]), float(high[c, k]))
            for c, column in enumerate(columns)
        }
        differences = _differences(columns, values[:, k], samples[:, :, k], about.better)
        measures.append(Measure(about.name, about.better, about.meaning, n, intervals, differences=differences))
    return measures


def widened(interval: Interval, trials: float) -> Interval:
    """Return the interval of a share, extended to contain Wilson's for so many trials, which has no zero width."""
    value, low, high = interval
    known = wilson(min(max(value, 0.0), 1.0) * trials, trials)
    return Interval(value, min(low, known.low), max(high, known.high))


def widened_area(area: Interval, wrong: int, right: int) -> Interval:
    """Return the interval of an AUROC of so many wrong and right rows, widened if one of the two is rare."""
    rarer = min(wrong, right)
    if not 0 < rarer < MANY or np.isnan(area.value):
        return area
    if rarer < FEW:
        return widened(area, rarer)
    value, low, high = auroc_interval(area.value, wrong, right)
    return Interval(value, min(area.low, low), max(area.high, high))


def widen_areas(measure: Measure, wrong: int, right: int) -> None:
    """Widen the intervals of the AUROC of so many wrong and right rows, and of their differences."""
    before = measure.values
    measure.values = {column: widened_area(area, wrong, right) for column, area in before.items()}
    if measure.values == before:
        return
    measure.differences = [
        replace(each, interval=_widened_gap(each, before, measure.values)) for each in measure.differences
    ]


def _widened_gap(gap: ColumnDifference, before: Mapping[str, Interval], after: Mapping[str, Interval]) -> Interval:
    """Return the interval of a difference, extended to contain the one implied by wider intervals of its two values.

    Their correlation is estimated from the original widths.

    Source: Zou 2007, "Toward using confidence intervals to compare correlations" (MOVER, for dependent values).
    """
    first, second = after[gap.first], after[gap.second]
    widths = [each.high - each.low for each in (before[gap.first], before[gap.second], gap.interval)]
    product = 2 * widths[0] * widths[1]
    related = (widths[0] ** 2 + widths[1] ** 2 - widths[2] ** 2) / product if product > 0 else 0.0
    related = min(max(related, -1.0), 1.0)

    def reach(a: float, b: float) -> float:
        return math.sqrt(max(0.0, a * a - 2 * related * a * b + b * b))

    value, low, high = gap.interval
    lowest = value - reach(first.value - first.low, second.high - second.value)
    return Interval(
        value, min(low, lowest), max(high, value + reach(first.high - first.value, second.value - second.low))
    )


def widened_share(share: Interval, n: float) -> Interval:
    """Return the interval of a share of n rows, widened if fewer than ``FEW`` rows have or lack the property."""
    return widened(share, n) if min(share.value, 1 - share.value) * n < FEW else share


def _differences(columns: Sequence[str], values: Floats, samples: Floats, better: str) -> list[ColumnDifference]:
    known = np.flatnonzero(~np.isnan(values))
    if not better or len(known) < 2:
        return []
    best = int(known[np.argmax(values[known] if better == "higher" else -values[known])])
    differences = []
    for other in known.tolist():
        if other != best:
            low, high = percentiles((samples[:, best] - samples[:, other])[:, None])
            gap = Interval(float(values[best] - values[other]), float(low[0]), float(high[0]))
            differences.append(ColumnDifference(columns[best], columns[other], gap))
    return differences
