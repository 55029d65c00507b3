"""Measures with their intervals: values, JSON, and notes for the reader."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.tables.typed_json import plain_json
from scoring.metrics.proportions import wilson
from scoring.metrics.ranking import auroc_interval
from scoring.metrics.resampling import Interval, percentiles, resample

Floats = NDArray[np.float64]
EMBEDDING = "embedding"  # the column of measures that are of the embedding and not of a score
BASELINE = "baseline"  # the column of what the same measure is without the embedding
FEW = 10  # rows of the rarer outcome, below which resamples vary far less than other rows would
MANY = 100  # from which on they vary as much


@dataclass(frozen=True)
class ColumnDifference:
    """Difference of two columns on the same resamples; an interval without 0 separates them."""

    first: str
    second: str
    interval: Interval


@dataclass
class Measure:
    """One measure for every column.

    Attributes:
        name: short, for a table.
        better: ``higher``, ``lower``, or empty where neither is.
        meaning: one sentence.
        n: rows (or images) that it is of; 0 where it could not be had.
        values: column -> value and bounds.
        p: column -> one-sided p value of a permutation test, where there is one.
        differences: of the best column against every other one.
        missing: why there are no values; empty where there are.
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
        """Return plain JSON values; a missing number is null."""
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


INFINITE, SEPARATED = "infinite", "separated"  # why a column has no logistic slope


@dataclass
class Caveats:
    """Caveats of the measures for the reader.

    Attributes:
        same_ranks: ``unc_X`` that were left out, for ``kappa_X`` gives the same ranks.
        other_model: name of the model that scored corrupted images, where another one scored the table; and the digest
            of that one.
        without_embeddings: why there are no measures against labels; empty where there are.
        n_twins: rows with an embedding that another row has too, bit for bit.
        without_slope: column -> INFINITE, or SEPARATED where it is constant but for a few rows or a threshold on it
            is never wrong.
        norm_unknown: whether the norm of embeddings would be a baseline; it is not stored.
        without_votes: rows that have none.
        unread: images that could not be read again.
        shared: rows to learn from that were left out, for they hold the images that are measured.
        unseen: rows of classes that the rows to learn from lack.
        few: prediction -> how many rows it is wrong on and how many right, where one of the two is below ``FEW``.
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
        """Return the measure without values, and the reason."""
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
        statistic: counts of n rows -> values, shape (C, K); all ones is the sample itself.
        n: rows.
        repeats: resamples.
        seed: of the resampling: the same for every column, which pairs them.
        centred: move the resamples to have the value as their mean, for measures that rows drawn twice raise.
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
    """Return the interval of a share, made to hold Wilson's of so many trials: without errors it has a width, too."""
    value, low, high = interval
    known = wilson(min(max(value, 0.0), 1.0) * trials, trials)
    return Interval(value, min(low, known.low), max(high, known.high))


def widened_area(area: Interval, wrong: int, right: int) -> Interval:
    """Return the interval of an AUROC of so many wrong and right rows, widened where one of the two is rare."""
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
    """Return the interval of a difference, made to hold the one that follows from wider intervals of its two values.

    Their correlation is estimated from the widths before.

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
    """Return the interval of a share of n rows, widened where fewer than ``FEW`` rows have the property, or lack it."""
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
