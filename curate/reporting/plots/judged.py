"""Rows that are predicted right or wrong, and their certainty by column, as in ``curate evaluate``."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.counted import counted
from curate.evaluation.correctness import KNN, LINEAR, NEAREST, WHAT
from curate.evaluation.joined import named_column, open_labelled
from curate.evaluation.measures import widened_share
from curate.evaluation.options import EvaluateOptions
from curate.evaluation.rows import FEWEST_ROWS, sampled, score_columns, select_rows
from curate.evaluation.work import certainty_of, judge_table
from curate.options.values import part_of
from curate.reporting.plots.request import PlotRequest
from curate.statistics.weighted import RankOrder
from curate.tables.digests import plain
from curate.tables.needs import is_number
from scoring.arrays import Array, Floats
from scoring.errors import InputError
from scoring.lookup import require_known
from scoring.metrics.resampling import Interval, percentiles, resample

PREDICTIONS = (LINEAR, NEAREST, KNN)  # the first available one is the default


@dataclass(frozen=True)
class Outcomes:
    """N rows that are predicted right or wrong.

    Attributes:
        what: description of the predictor.
        right: shape (N,), bool.
        certainty: column -> higher is more certain, shape (N,).
        raw: column -> stored value, shape (N,).
        confidence: probability that the linear classifier gives its prediction, shape (N,); None without one.
    """

    what: str
    right: NDArray[np.bool_]
    certainty: dict[str, Floats]
    raw: dict[str, Floats]
    confidence: Floats | None = None


def outcomes(request: PlotRequest, notes: list[str]) -> Outcomes:
    """Return which rows are right, by the user's column, or by predicting labels from other rows' embeddings.

    Raises InputError if neither is available, or there are too few rows.
    """
    if (request.label is None) == (request.right is None):
        got = "both" if request.label is not None else "neither"
        raise InputError(
            f"expected --label (to judge predictions from embeddings) or --right (to judge yours), got {got}; pass one"
        )
    judged = _judged_by_user(request, notes) if request.right is not None else _judged_by_labels(request, notes)
    if judged.right.all() or not judged.right.any():
        which = "right" if judged.right.all() else "wrong"
        notes.append(f"the {judged.what} is {which} on every row, so all orders are equally good")
    return judged


def _judged_by_labels(request: PlotRequest, notes: list[str]) -> Outcomes:
    if request.prediction is not None:
        require_known(request.prediction, PREDICTIONS, "unknown prediction")
    rows, judged = judge_table(request.opened, part_of(EvaluateOptions, request))
    right, missing = judged.right, judged.missing
    name = request.prediction or next(each for each in PREDICTIONS if each in right)
    if name not in right:
        raise InputError(f"--prediction {name} is not available: {missing[name]}; leave it out")
    notes += [f"there is no {WHAT[each]}: {why}" for each, why in missing.items()]
    notes += [f"left out: {n:,} {why}" for why, n in rows.left_out.items()]
    confidence = judged.confidence if name == LINEAR else None
    return Outcomes(WHAT[name], right[name], certainty_of(rows, judged), rows.raw, confidence)


def _judged_by_user(request: PlotRequest, notes: list[str]) -> Outcomes:
    name = str(request.right)
    if request.prediction is not None:
        raise InputError("--prediction is for --label; with --right the predictions are yours; leave it out")
    values = plain(named_column(request.opened, name, "--right", open_labelled(request.labelled)).combine_chunks())
    names, _ = score_columns(request.opened, [each for each in request.column if each != name])
    truth = _truths(values, name)
    rows = select_rows(request.opened, names)
    known = truth[rows.index] >= 0
    if not known.all():
        notes.append(f"left out: {int((~known).sum()):,} rows without a value in {name}")
        rows = rows.part(known)
    if request.sample is not None:
        rows = rows.part(sampled(rows, request.sample, seed=request.seed))
    if len(rows.index) < FEWEST_ROWS:
        raise InputError(
            f"expected at least {FEWEST_ROWS} rows with scores and a {name!r} in {request.opened.path}, got "
            f"{len(rows.index)}; score more images"
        )
    return Outcomes(f"prediction of {name}", truth[rows.index] == 1, rows.certainty, rows.raw)


def _truths(values: pa.Array, name: str) -> NDArray[np.int8]:
    """Return 1 for right, 0 for wrong, -1 for neither, shape (N,)."""
    if not pa.types.is_boolean(values.type) and not is_number(values.type):
        raise InputError(
            f"--right: expected true and false, or 1 and 0, in {name!r}, got {values.type}; choose another"
        )
    numbers = pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    others = numbers[~np.isnan(numbers) & (numbers != 0) & (numbers != 1)]
    if len(others):
        raise InputError(f"--right: expected 1 or 0 in {name!r}, got {others[0]:g}; choose a column of 1 and 0")
    return np.where(np.isnan(numbers), -1, numbers).astype(np.int8)


@dataclass(frozen=True)
class Band:
    """Values along an axis with 95 % bootstrap intervals, shape (K,) each."""

    value: list[float]
    low: list[float]
    high: list[float]

    def widened(self, rows: Floats) -> "Band":
        """Return the band widened for shares of this many rows each, shape (K,), as in ``curate evaluate``."""
        ends = zip(map(Interval, self.value, self.low, self.high), rows.tolist(), strict=True)
        return Band(*map(list, zip(*(widened_share(end, n) for end, n in ends), strict=True)))


def bands_of(
    judged: Outcomes, curve: Callable[[RankOrder, Array, Floats, Floats], Floats], grid: Floats, request: PlotRequest
) -> dict[str, Band]:
    """Return a curve for each column, with the resamples of ``curate evaluate``.

    Args:
        judged: the predictions.
        curve: function of an order, counts of rows, targets and the grid (K, 1), such as ``RankOrder.accuracy_at``.
        grid: points of the curve, shape (K,).
        request: with the number and seed of resamples.
    """
    orders = {name: RankOrder(values) for name, values in judged.certainty.items()}
    targets = {name: order.sort(judged.right[:, None]) for name, order in orders.items()}
    n, k = len(judged.right), len(grid)

    def statistic(counts: NDArray[np.int64]) -> Floats:
        return np.concatenate([curve(order, counts, targets[name], grid)[:, 0] for name, order in orders.items()])

    request.announce(f"bands of {counted(len(orders), 'column')} from {request.repeats:,} resamples")
    values = statistic(np.ones(n, np.int64))
    low, high = percentiles(resample(statistic, n, repeats=request.repeats, seed=request.seed))
    return {
        name: Band(*(part[place * k : (place + 1) * k].tolist() for part in (values, low, high)))
        for place, name in enumerate(orders)
    }
