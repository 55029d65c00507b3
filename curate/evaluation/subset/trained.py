"""Models trained on every training set, tested on the same rows, and compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from curate.evaluation.subset.sides import ALL_ROWS, BY_CLASS, RANDOM, SUBSET, TrainingSides
from curate.statistics.two_sample import holm
from scoring.metrics.resampling import Interval

LEVEL = 0.95
MOST_DF = 1e4  # Student's t is the normal distribution by then
Floats = NDArray[np.float64]
SIGNIFICANT = 0.05
AGAINST = {ALL_ROWS: RANDOM, RANDOM: RANDOM, BY_CLASS: BY_CLASS}  # and the draws that report how lucky a subset may be
FEWEST_OF_CLASS = 5  # test rows of a class that a difference is given
Right = NDArray[np.bool_]  # (T,), of test rows
Train = Callable[[NDArray[np.int64], int], Right]  # rows of a side, number of the seed -> which test rows are right


@dataclass(frozen=True)
class Gap:
    """A difference of two means over the same rows.

    Attributes:
        interval: the difference and its 95 % interval.
        p: two-sided, of there being none; 1 where nothing varies and there is no difference.
        n: rows.
    """

    interval: Interval
    p: float
    n: int


@dataclass(frozen=True)
class ChanceLevel:
    """The share of the variance of a mean that comes from the draw of training rows.

    Attributes:
        variance: of the mean between draws of one size, >= 0.
        from_rows: the part of it that comes from n test rows alone.
        df: degrees of freedom.
        draws: how many were averaged on one side, R.
    """

    variance: float
    from_rows: float
    df: int
    draws: int


def chance_level_of(draws: NDArray, weight: Floats) -> ChanceLevel:
    """Return the chance level estimated from random draws.

    Args:
        draws: whether every draw is right on every row, shape (R, N), R >= 2.
        weight: of the rows, shape (N,), sum 1.
    """
    alone = float((draws.astype(np.float64).var(0, ddof=1) * weight**2).sum())
    return ChanceLevel(float((draws @ weight).var(ddof=1)), alone, len(draws) - 1, len(draws))


def gap(first: NDArray, second: NDArray, chance_level: ChanceLevel, weight: Floats | None = None) -> Gap:
    """Return the difference of two means, with an interval over test rows and draws.

    The variance has two parts. The test rows: the paired differences vary from row to row. The draw: a subset may be a
    lucky draw, as random ones of its size are, and the mean of R random draws is one too. What random draws vary by on
    these test rows holds the test rows' own part once more, which is taken off. Student's t, with Satterthwaite's
    degrees of freedom.

    Args:
        first: whether a model is right on each row, or any number, shape (N,); or (A, N) for a mean over A models.
        second: the same.
        chance_level: of random draws, on the same rows and weights.
        weight: of the rows, shape (N,), sum 1; equal by default.

    Source: Satterthwaite 1946; the two parts as in Dietterich 1998, "Approximate statistical tests for comparing
    supervised classification learning algorithms", section 2.
    """
    paired = np.atleast_2d(first).mean(0, dtype=np.float64) - np.atleast_2d(second).mean(0, dtype=np.float64)
    n = len(paired) if weight is None else int((weight > 0).sum())
    weight = np.full(len(paired), 1 / len(paired)) if weight is None else weight
    value = float(weight @ paired)
    rows = float((weight**2 * np.square(paired - value)).sum()) * n / max(n - 1, 1)
    factor = 1 + 1 / chance_level.draws
    drawn = factor * chance_level.variance
    variance = rows + max(0.0, drawn - factor * chance_level.from_rows)
    df = chance_level.df * max(1.0, variance / drawn) ** 2 if drawn > 0 else MOST_DF
    return _tested(value, variance, min(df, MOST_DF), n)


def gap_of_draws(value: float, draws: Floats) -> Gap:
    """Return by how much a number of the subset exceeds its value in random subsets, shape (R,), R >= 2.

    The interval holds 0 in 95 % of random subsets.
    """
    spread = float(draws.var(ddof=1)) * (1 + 1 / len(draws))
    return _tested(value - float(draws.mean()), spread, len(draws) - 1, len(draws))


def _tested(value: float, variance: float, df: float, n: int) -> Gap:
    error = float(np.sqrt(variance))
    if error <= 1e-12:
        return Gap(Interval(value, value, value), 1.0 if abs(value) < 1e-9 else 0.0, n)
    from scipy.special import stdtr, stdtrit  # type: ignore[import-untyped]

    half = float(stdtrit(df, (1 + LEVEL) / 2)) * error
    return Gap(Interval(value, value - half, value + half), 2 * float(stdtr(df, -abs(value / error))), n)


@dataclass(frozen=True)
class ClassGap:
    """How much better one class is predicted from the subset than from random rows.

    Attributes:
        name: of the class.
        tested: test rows of it.
        kept: rows of it that the subset trains on.
        all_rows: rows of it that the whole trains on.
        gaps: less each other side -> the difference.
        adjusted_p: the same, by Holm over the classes.
    """

    name: str
    tested: int
    kept: int
    all_rows: int
    gaps: Mapping[str, Gap]
    adjusted_p: Mapping[str, float]


@dataclass
class SideAccuracies:
    """The accuracies of one kind of model by training set.

    Attributes:
        model: its name.
        n_tested: test rows.
        accuracy: side -> share of test rows that are right, the mean over draws and seeds.
        balanced: side -> mean over classes of that share.
        draws: side -> the accuracy of each draw or seed.
        gaps: the subset less each other side.
        balanced_gaps: the same of ``balanced``.
        confirmed_gaps: the same of accuracy, on test rows whose label other rows confirm.
        n_confirmed: how many these are.
        by_kept: "kept" and "dropped" -> the subset less random rows, on test rows that the subset has or has not.
        classes: of every class with test rows.
        strengths: side -> inverse penalties that were chosen.
        n_unread: rows whose image could not be read.
    """

    model: str
    n_tested: int
    accuracy: dict[str, float]
    balanced: dict[str, float]
    draws: dict[str, list[float]]
    gaps: dict[str, Gap]
    balanced_gaps: dict[str, Gap]
    confirmed_gaps: dict[str, Gap] = field(default_factory=dict)
    n_confirmed: int = 0
    by_kept: dict[str, Gap] = field(default_factory=dict)
    classes: list[ClassGap] = field(default_factory=list)
    strengths: dict[str, list[float]] = field(default_factory=dict)
    n_unread: int = 0


def train_on_sides(
    sides: TrainingSides, train: Train, *, seeds: int, repeated: bool, report: Callable[[str], None]
) -> dict[str, Right]:
    """Return which test rows are right by training set, one line per draw or seed, shape (R, T) or (1, T).

    Args:
        sides: to train on.
        train: trains and tests.
        seeds: R.
        repeated: whether to train a side without draws with every seed, too; else its model has no chance level.
        report: called with what is trained.
    """
    runs: dict[str, Sequence[NDArray[np.int64]]] = {
        SUBSET: [sides.subset] * (seeds if repeated else 1),
        ALL_ROWS: [sides.all_rows] * (seeds if repeated else 1),
        RANDOM: sides.random,
        BY_CLASS: sides.by_class,
    }
    by_side = {}
    for name, drawn in runs.items():
        draws = []
        for number, rows in enumerate(drawn):
            if repeated or not number:
                times = f", {number + 1} of {len(drawn)}" if repeated else f", {len(drawn)} times"
                report(f"{name}, {len(rows):,} rows" + (times if len(drawn) > 1 else ""))
            draws.append(train(rows, number))
        by_side[name] = np.stack(draws)
    return by_side


@dataclass(frozen=True)
class HeldOutRows:
    """T test rows.

    Attributes:
        label: shape (T,).
        classes: names.
        kept: whether each is in the subset, shape (T,).
        confirmed: whether other rows confirm its label, shape (T,).
        n_kept: rows of each class that the subset trains on, shape (C,).
        n_all: the same of the whole.
    """

    label: NDArray[np.int64]
    classes: Sequence[str]
    kept: Right
    confirmed: Right
    n_kept: NDArray[np.int64]
    n_all: NDArray[np.int64]


def compared(model: str, right: Mapping[str, Right], tested: HeldOutRows) -> SideAccuracies:
    """Return accuracies by training set, and the lead of the subset over each.

    Args:
        model: name.
        right: by side, shape (R, T).
        tested: the T rows.
    """
    even = np.full(len(tested.label), 1 / len(tested.label))
    _, place, size = np.unique(tested.label, return_inverse=True, return_counts=True)
    balanced = np.asarray(1 / size[place] / len(size), np.float64)  # every class counts equally
    trained = SideAccuracies(
        model,
        len(tested.label),
        {side: float(each.mean()) for side, each in right.items()},
        {side: float(each.mean(0) @ balanced) for side, each in right.items()},
        {side: each.mean(1).tolist() for side, each in right.items()},
        _gaps(right, even),
        _gaps(right, balanced),
    )
    trained.n_confirmed = int(tested.confirmed.sum())
    if trained.n_confirmed >= FEWEST_OF_CLASS:
        trained.confirmed_gaps = _gaps(right, _among(tested.confirmed))
    for name, inside in (("kept", tested.kept), ("dropped", ~tested.kept)):
        if tested.kept.any() and inside.sum() >= FEWEST_OF_CLASS:
            trained.by_kept[name] = _gaps(right, _among(inside), (RANDOM,))[RANDOM]
    trained.classes = _by_class(right, tested)
    return trained


def _gaps(
    right: Mapping[str, Right],
    weight: Floats,
    others: Sequence[str] = tuple(AGAINST),
) -> dict[str, Gap]:
    """Return the differences of the subset to the others, on rows of positive weight."""
    inside = weight > 0
    part = {side: each[:, inside] for side, each in right.items()}
    chance_level = {draws: chance_level_of(part[draws], weight[inside]) for draws in (RANDOM, BY_CLASS)}
    return {other: gap(part[SUBSET], part[other], chance_level[AGAINST[other]], weight[inside]) for other in others}


def _chance_levels(draws: Sequence[Right]) -> list[ChanceLevel]:
    """Return the chance level of each class, from draws tested on its test rows, (R, T_c) for each of C classes.

    Of one class a few draws show the spread too badly for a small p. How much more they vary than their test rows alone
    would make them is pooled over the classes.
    """
    alone = [chance_level_of(each, np.full(each.shape[1], 1 / each.shape[1])) for each in draws]
    from_rows = float(np.mean([level.from_rows for level in alone])) if alone else 0.0
    more = max(1.0, float(np.mean([level.variance for level in alone])) / from_rows) if from_rows > 0 else 1.0
    df = sum(level.df for level in alone) // 2  # draws that are good for one class are bad for another
    return [ChanceLevel(level.from_rows * more, level.from_rows, max(df, 1), level.draws) for level in alone]


def _among(inside: Right) -> Floats:
    return np.asarray(inside / inside.sum(), np.float64)


def _by_class(right: Mapping[str, Right], tested: HeldOutRows) -> list[ClassGap]:
    """Return the differences of every class with at least five test rows, the largest loss against random first."""
    sizes = np.bincount(tested.label, minlength=len(tested.classes))
    tested_classes = np.flatnonzero(sizes >= FEWEST_OF_CLASS).tolist()
    inside = [tested.label == label for label in tested_classes]
    chance_level = {draws: _chance_levels([right[draws][:, rows] for rows in inside]) for draws in (RANDOM, BY_CLASS)}
    gaps = [
        {
            other: gap(right[SUBSET][:, rows], right[other][:, rows], chance_level[draws][number])
            for other, draws in AGAINST.items()
        }
        for number, rows in enumerate(inside)
    ]
    adjusted = {other: holm(np.array([of_class[other].p for of_class in gaps])) for other in AGAINST}
    class_gaps = [
        ClassGap(
            tested.classes[label],
            int(sizes[label]),
            int(tested.n_kept[label]),
            int(tested.n_all[label]),
            gaps[number],
            {other: float(adjusted[other][number]) for other in AGAINST},
        )
        for number, label in enumerate(tested_classes)
    ]
    return sorted(class_gaps, key=lambda of_class: of_class.gaps[RANDOM].interval.value)
