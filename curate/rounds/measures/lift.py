"""Measures of rounds: lift over random labels, accuracy, agreement of two models, and coverage of the pool.

A look is an import: results for the model after the j-th import always use the error level of look j. Held-out rows are
random and never used for picking or training, so they are independent test rows for every model; several looks only
cost the union bound of ``level_of_look``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from curate.probes.accuracy import Accuracy, fit
from curate.probes.probabilities import Labelled
from curate.statistics.paired import level_of_look, paired_interval
from curate.tables.table import open_table
from scoring.arrays import Array
from scoring.metrics.proportions import clopper_pearson

if TYPE_CHECKING:
    from curate.probes.linear import FeatureScale

LEAST_CONTROL = 20  # labels an arm below which nothing is reported
LEAST_HELD_OUT = 50  # rows to measure on below which nothing is reported
LEVEL = 1.96  # standard errors of a 95 % interval
HALVES = 40  # of both arms, for the interval


@dataclass(frozen=True)
class ArmLift:
    """Accuracy of probes fitted on equally many first labels of each arm.

    Attributes:
        n: number of labels per arm.
        n_held_out: number of test rows.
        strategy: accuracy with the strategy's labels.
        control: accuracy with labels drawn at random.
        difference: strategy minus control.
        low: lower end of its 95 % interval.
        high: upper end.
        needed: labels per arm at which the interval would exclude 0 for the same difference; None if it already does,
            if more held-out rows are needed first, or if unknown.
        few_held_out: whether the held-out rows are too few to show the difference with any number of labels.
    """

    n: int
    n_held_out: int
    strategy: float | None = None
    control: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    needed: int | None = None
    few_held_out: bool = False


@dataclass(frozen=True)
class Arms:
    """Labelled rows by arm, in the order sent out, and the rows to measure on.

    Attributes:
        vectors: of the table, shape (N, D).
        strategy: rows picked by the strategy, in the order of picking.
        control: random rows.
        held_out: test rows.
        kind: of the probe.
        spread: scaling by the pool.
    """

    vectors: Array
    strategy: Labelled
    control: Labelled
    held_out: Labelled
    kind: str
    spread: "FeatureScale | None" = None

    @property
    def n(self) -> int:
        """Number of labels available in both arms."""
        return min(len(self.strategy), len(self.control))

    def right(self, arm: Labelled, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return 1 for each test row that a model of labels of an arm predicts correctly, else 0, shape (T,)."""
        part = Labelled(arm.rows[chosen], arm.codes[chosen], arm.classes)
        probe = fit(self.kind, self.vectors, part, spread=self.spread, calibrate=False)
        predicted = probe.predict(self.vectors[self.held_out.rows]).argmax(1)
        return np.asarray((predicted == self.held_out.codes).astype(np.float64))


def arm_lift(arms: Arms, seed: int = 0) -> ArmLift:
    """Compare the arms at equal numbers of labels.

    The first labels of the larger arm are used; a random subset would be biased, since each pick depends on the earlier
    ones. The interval includes both sampling errors: the variance of the difference over halves of the labels, plus the
    variance of its mean over the held-out rows.

    Args:
        arms: the rows of both arms.
        seed: of the halves.

    Source: Shao and Wu 1989, "A general theory for jackknife variance estimation".
    """
    n, n_held_out = arms.n, len(arms.held_out)
    if n < LEAST_CONTROL or n_held_out < LEAST_HELD_OUT:
        return ArmLift(n, n_held_out, needed=LEAST_CONTROL if n < LEAST_CONTROL else None)
    generator = np.random.default_rng([seed, 4])
    strategy, control = arm_accuracy(arms, n)
    of_labels, of_rows = _errors(arms, n, generator)
    difference, error = strategy - control, math.hypot(of_labels, of_rows)
    low, high = difference - LEVEL * error, difference + LEVEL * error
    needed = None if low > 0 or high < 0 else _needed(n, abs(difference), of_labels, of_rows)
    return ArmLift(
        n, n_held_out, strategy, control, difference, low, high, needed, few_held_out=of_rows * LEVEL >= abs(difference)
    )


def arm_accuracy(arms: Arms, n: int) -> tuple[float, float]:
    """Return the accuracy with the first n labels of the strategy, and of the control arm."""
    first = np.arange(n)
    return float(arms.right(arms.strategy, first).mean()), float(arms.right(arms.control, first).mean())


def _errors(arms: Arms, n: int, generator: np.random.Generator) -> tuple[float, float]:
    """Return the standard errors of the difference due to the labels, and due to the test rows.

    Models of random halves of the labels vary as much as models of other sets of n labels (delete-d jackknife with d =
    n / 2, whose factor (n - d) / d is 1).
    """
    gaps = np.empty(HALVES)
    for draw in range(HALVES):
        half = [generator.permutation(n)[: n // 2] for _ in range(2)]
        gaps[draw] = (arms.right(arms.strategy, half[0]) - arms.right(arms.control, half[1])).mean()
    first = np.arange(n)
    of_row = arms.right(arms.strategy, first) - arms.right(arms.control, first)
    return float(gaps.std(ddof=1)), float(of_row.std(ddof=1) / math.sqrt(len(of_row)))


def _needed(n: int, difference: float, of_labels: float, of_rows: float) -> int | None:
    """Return the labels per arm at which 1.96 standard errors equal the difference; None if they never do."""
    left = (difference / LEVEL) ** 2 - of_rows**2
    return math.ceil(n * of_labels**2 / left) if left > 0 else None


@dataclass(frozen=True)
class Anytime:
    """An interval that is valid jointly with the intervals of all other looks.

    Attributes:
        look: number of imports used by the model, from 1.
        confidence: of the intervals of all looks simultaneously, in (0, 1).
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

    The interval is for the difference of these two models on images like the held-out ones; it does not include the
    variation between models of other labels.

    Attributes:
        n: number of labels per model.
        n_held_out: number of test rows.
        better: test rows on which only the strategy's model is right.
        worse: test rows on which only the control model is right.
        strategy: accuracy of the strategy's model.
        control: accuracy of the control model.
        anytime: interval of strategy - control.
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
    """Return the lift of the strategy's first labels over equally many random ones; None with too few labels."""
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
        better: rows on which only the first model is right.
        worse: rows on which only the second model is right.
        n: number of rows.
        look: from 1.
        confidence: in (0, 1).
    """
    share = paired_interval(better, worse, n, level_of_look(look, confidence))
    return Anytime(look, confidence, share.low, share.high)


N_SAMPLE = 2_000  # size of the fixed sample
REACHED = 0.5  # Euclidean distance between unit rows within which a row counts as covered: the reach of `auto`


@dataclass(frozen=True)
class ModelAgreement:
    """The agreement of two models on the same rows.

    Attributes:
        n: number of rows.
        kappa: Cohen's kappa of the predicted classes.
        changed: share of the rows with another class, in [0, 1].
    """

    n: int
    kappa: float
    changed: float


def cohen_kappa(first: Sequence[str], second: Sequence[str]) -> float:
    """Return Cohen's kappa, the agreement beyond chance: 1 is perfect, 0 is chance level.

    It is 1 if both models predict one class for all rows.

    Source: Cohen 1960; for successive models, Bloodgood and Vijay-Shanker 2009, arXiv:1409.5165.

    >>> cohen_kappa(["a", "a", "b", "b"], ["a", "a", "b", "a"])
    0.5
    """
    names, codes = np.unique([*first, *second], return_inverse=True)
    a, b = codes[: len(first)], codes[len(first) :]
    observed = float((a == b).mean())
    expected = float(np.bincount(a, minlength=len(names)) @ np.bincount(b, minlength=len(names))) / len(a) ** 2
    return 1.0 if expected >= 1 else (observed - expected) / (1 - expected)


def compared(sample: pa.Table, before: Path | None) -> ModelAgreement | None:
    """Return the agreement of two models on their common rows; None without an earlier model or common rows.

    Args:
        sample: `key` and `predicted` of the sample of this round.
        before: file of the previous round's sample; may be missing.
    """
    if before is None or not before.is_file():
        return None
    earlier = open_table(before, require=["key", "predicted"]).read()
    both = pl.DataFrame(sample).join(pl.DataFrame(earlier), on="key", suffix="_before")
    if both.is_empty():
        return None
    now, then = both["predicted"].to_list(), both["predicted_before"].to_list()
    return ModelAgreement(len(both), cohen_kappa(now, then), float(np.not_equal(now, then).mean()))


@dataclass(frozen=True)
class PoolCoverage:
    """Distances of sampled rows to the nearest labelled row, between unit vectors, in [0, 2].

    Attributes:
        mean: mean distance.
        most: largest distance.
        within: share of rows within ``REACHED``.
    """

    mean: float
    most: float
    within: float


def sample_of(rows: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return the rows of the fixed sample for comparing rounds, ascending."""
    generator = np.random.default_rng([seed, 1])
    return np.sort(generator.permutation(rows)[:N_SAMPLE])


def coverage(vectors: Array, sample: NDArray[np.int64], labelled: NDArray[np.int64]) -> PoolCoverage | None:
    """Return the distances of sampled rows to the nearest labelled one; None without labelled rows.

    Args:
        vectors: shape (N, D); normalised here.
        sample: rows, shape (S,).
        labelled: rows, shape (L,).
    """
    if not len(labelled) or not len(sample):
        return None
    from curate.selectors.geometry import spans, unit

    cosine = np.full(len(sample), -1.0, np.float32)
    rows = unit(vectors[sample], np.float32)
    for span in spans(len(labelled)):
        cosine = np.maximum(cosine, (rows @ unit(vectors[labelled[span]], np.float32).T).max(1))
    distance = np.sqrt(np.maximum(2 - 2 * cosine.astype(np.float64), 0))
    return PoolCoverage(float(distance.mean()), float(distance.max()), float((distance <= REACHED).mean()))


@dataclass(frozen=True)
class ModelQuality:
    """The accuracy of a model, as stored in `state.json`.

    Attributes:
        probe: its kind, "linear" or "knn".
        n_labels: number of labels it was fitted on.
        classes: number of labels of each class, including 0.
        temperature: divisor of its logits; None without one.
        holdout: accuracy on held-out rows.
        entropy: mean entropy on the sample relative to uniform, in [0, 1].
        coverage: of the sample by labelled rows; None without either.
        against_last: agreement with the previous round's model on the sample; None without one.
        anytime: anytime-valid interval of the accuracy.
    """

    probe: str
    n_labels: int
    classes: dict[str, int]
    temperature: float | None
    holdout: Accuracy
    entropy: float
    anytime: Anytime
    coverage: PoolCoverage | None = None
    against_last: ModelAgreement | None = None
