"""Models trained on every training set, tested on the same rows, and compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from curate.evaluation.subset.sides import ALL_ROWS, BY_CLASS, RANDOM, SUBSET, TrainingSides
from curate.statistics.two_sample import holm
from scoring.arrays import Array, Floats
from scoring.metrics.resampling import Interval

LEVEL = 0.95
MOST_DF = 1e4  # here Student's t equals the normal distribution
SIGNIFICANT = 0.05
AGAINST = {ALL_ROWS: RANDOM, RANDOM: RANDOM, BY_CLASS: BY_CLASS}  # with the draws that give the chance level
FEWEST_OF_CLASS = 5  # minimum test rows of a class for a difference
Right = NDArray[np.bool_]  # (T,), of test rows
Train = Callable[[NDArray[np.int64], int], Right]  # (training rows, seed) -> correctness of test rows


@dataclass(frozen=True)
class Gap:
    """A difference of two means over the same rows.

    Attributes:
        interval: the difference and its 95 % interval.
        p: two-sided p value; 1 if nothing varies and there is no difference.
        n: number of rows.
    """

    interval: Interval
    p: float
    n: int


@dataclass(frozen=True)
class ChanceLevel:
    """The variance of a mean that comes from the random draw of training rows.

    Attributes:
        variance: of the mean between draws of one size, >= 0.
        from_rows: the part of the variance that is due to the n test rows.
        df: degrees of freedom.
        draws: R, number of draws averaged on one side.
    """

    variance: float
    from_rows: float
    df: int
    draws: int


def chance_level_of(draws: Array, weight: Floats) -> ChanceLevel:
    """Return the variance between R >= 2 random draws, from the correctness of each on every row, shape (R, N).

    ``weight`` is the weight of each row, shape (N,), sum 1.
    """
    from_rows = float((draws.astype(np.float64).var(0, ddof=1) * weight**2).sum())
    return ChanceLevel(float((draws @ weight).var(ddof=1)), from_rows, len(draws) - 1, len(draws))


def gap(first: Array, second: Array, chance_level: ChanceLevel, weight: Floats | None = None) -> Gap:
    """Return the difference of two means, with an interval over test rows and draws.

    The variance has two parts. Test rows: paired differences vary between rows. Draws: the subset counts as one random
    draw of its size, and the mean of R draws varies too; the variance between draws on these test rows includes a
    test-row part, which is subtracted. Student's t with Satterthwaite's degrees of freedom.

    Args:
        first: correctness on each row, or any number, shape (N,); or (A, N) for a mean over A models.
        second: of the other side, as ``first``.
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
    return _t_test(value, variance, min(df, MOST_DF), n)


def gap_of_draws(value: float, draws: Floats) -> Gap:
    """Return the difference of a subset's value to the mean of random subsets, shape (R,), R >= 2.

    The interval contains 0 for 95 % of random subsets.
    """
    spread = float(draws.var(ddof=1)) * (1 + 1 / len(draws))
    return _t_test(value - float(draws.mean()), spread, len(draws) - 1, len(draws))


def _t_test(value: float, variance: float, df: float, n: int) -> Gap:
    error = float(np.sqrt(variance))
    if error <= 1e-12:
        return Gap(Interval(value, value, value), 1.0 if abs(value) < 1e-9 else 0.0, n)
    from scipy.special import stdtr, stdtrit  # type: ignore[import-untyped]

    half = float(stdtrit(df, (1 + LEVEL) / 2)) * error
    return Gap(Interval(value, value - half, value + half), 2 * float(stdtr(df, -abs(value / error))), n)


@dataclass(frozen=True)
class ClassGap:
    """The difference in accuracy on one class between the subset and other training sets.

    Attributes:
        name: of the class.
        tested: number of its test rows.
        kept: number of its training rows in the subset.
        all_rows: number of its training rows in all.
        gaps: difference of the subset to each other side.
        adjusted_p: of each difference, adjusted by Holm over the classes.
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
        n_tested: number of test rows.
        accuracy: share of correct test rows by side, mean over draws and seeds.
        balanced: mean over classes of that share, by side.
        draws: accuracy of each draw or seed, by side.
        gaps: difference of the subset to each other side.
        balanced_gaps: the same for ``balanced``.
        confirmed_gaps: the same for test rows whose label other rows confirm.
        n_confirmed: number of these rows.
        by_kept: "kept" and "dropped" -> difference to random rows on test rows inside and outside of the subset.
        classes: every class with test rows.
        strengths: selected inverse penalties by side.
        n_unread: number of rows whose image could not be read.
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
    """Return which test rows are correct by training set, one row per draw or seed, shape (R, T) or (1, T).

    Args:
        sides: training sets.
        train: trains and tests.
        seeds: R.
        repeated: train sides without draws with every seed too; without it, the variance between trainings is unknown.
        report: called with the current training set.
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
        n_kept: training rows of each class in the subset, shape (C,).
        n_all: training rows of each class in all, shape (C,).
    """

    label: NDArray[np.int64]
    classes: Sequence[str]
    kept: Right
    confirmed: Right
    n_kept: NDArray[np.int64]
    n_all: NDArray[np.int64]


def compared(model: str, right: Mapping[str, Right], tested: HeldOutRows) -> SideAccuracies:
    """Return accuracies by training set, and the differences of the subset to each.

    Args:
        model: name.
        right: correctness by side, shape (R, T).
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
        trained.confirmed_gaps = _gaps(right, _mean_weights(tested.confirmed))
    for name, inside in (("kept", tested.kept), ("dropped", ~tested.kept)):
        if tested.kept.any() and inside.sum() >= FEWEST_OF_CLASS:
            trained.by_kept[name] = _gaps(right, _mean_weights(inside), (RANDOM,))[RANDOM]
    trained.classes = _by_class(right, tested)
    return trained


def _gaps(right: Mapping[str, Right], weight: Floats, others: Sequence[str] = tuple(AGAINST)) -> dict[str, Gap]:
    """Return the differences of the subset to the others, on rows of positive weight."""
    inside = weight > 0
    part = {side: each[:, inside] for side, each in right.items()}
    chance_level = {draws: chance_level_of(part[draws], weight[inside]) for draws in (RANDOM, BY_CLASS)}
    return {other: gap(part[SUBSET], part[other], chance_level[AGAINST[other]], weight[inside]) for other in others}


def _chance_levels(draws: Sequence[Right]) -> list[ChanceLevel]:
    """Return the variance between draws for each class, from results on its test rows, (R, T_c) for each of C classes.

    For a single class, few draws estimate it too badly for a small p, so the excess over the test-row variance is
    pooled over classes.
    """
    levels = [chance_level_of(each, np.full(each.shape[1], 1 / each.shape[1])) for each in draws]
    from_rows = float(np.mean([level.from_rows for level in levels])) if levels else 0.0
    more = max(1.0, float(np.mean([level.variance for level in levels])) / from_rows) if from_rows > 0 else 1.0
    df = sum(level.df for level in levels) // 2  # since a draw may be good for one class and bad for another
    return [ChanceLevel(level.from_rows * more, level.from_rows, max(df, 1), level.draws) for level in levels]


def _mean_weights(inside: Right) -> Floats:
    return np.asarray(inside / inside.sum(), np.float64)


def _by_class(right: Mapping[str, Right], tested: HeldOutRows) -> list[ClassGap]:
    """Return the differences of every class with at least five test rows, largest loss against random first."""
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
