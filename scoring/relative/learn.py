"""Learning from labels of some rows, with the gain measured on held-out labels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from scoring.errors import InputError
from scoring.metrics.classifier import spread_folds
from scoring.metrics.ranking import auroc
from scoring.metrics.resampling import Interval, percentiles
from scoring.relative.model import DatasetFit, LaidOutRows
from scoring.relative.neighbours import near_in
from scoring.relative.propagated import (
    OTHER,
    PRIOR,
    Floats,
    KnownLabels,
    Learned,
    graph_of,
    guessed,
    other_class,
    prototypes,
    spread,
)
from scoring.relative.rule import PROPAGATED_WEIGHTS
from scoring.relative.space import Centred

Part = Callable[[NDArray[np.int64]], Centred]  # indices of M rows -> these rows
LEAST_LABELS = 50  # fewer labels do more harm than good
MOST_CLASSES = 1_000
FOLDS = 5
MEASURED = 5_000  # maximal labelled rows to measure the gain
REPEATS = 200  # number of resamples
MANY_LABELS = 200  # number of labelled rows from which the weight is chosen by their AUROC
CHANCE_LEVEL = 0.5  # AUROC of an uninformative score
SHARES = (0.5, 1.0, 2.0, 4.0)  # candidate weights, relative to the signals without labels


@dataclass(frozen=True)
class Lesson:
    """Class probabilities of the N rows of a dataset, learned from labels of some.

    Attributes:
        class_means: prototypes of the classes, shape (C, D).
        probabilities: of the classes, shape (N, C).
        other: probability that a row and its nearest row have different classes, shape (N,); out-of-fold for labelled
            rows.
        inside: the same for the labelled rows with their labels known, shape (L,).
    """

    class_means: Floats
    probabilities: Floats
    other: NDArray[np.float64]
    inside: NDArray[np.float64]


def check_labels(labels: KnownLabels) -> None:
    """Raise InputError for fewer than 50 labelled rows, a single class, or more than 1,000 classes."""
    n, classes = len(labels.rows), len(np.unique(labels.codes))
    without = "label more of them, or fit without labels"
    if n < LEAST_LABELS:
        raise InputError(f"expected at least {LEAST_LABELS} labelled images with an embedding, got {n}; {without}")
    if classes < 2:
        raise InputError(f"expected labels of at least two classes, got {n:,} of one alone; {without}")
    if len(labels.classes) > MOST_CLASSES:
        raise InputError(
            f"expected at most {MOST_CLASSES:,} classes, got {len(labels.classes):,}; choose a coarser "
            "column, or fit without labels"
        )


def learn(on: LaidOutRows, labels: KnownLabels, *, seed: int = 0) -> Lesson:
    """Propagate labels over a dataset, for labelled rows also out-of-fold; InputError as ``check_labels``.

    Args:
        on: the dataset.
        labels: of some of its rows.
        seed: of the folds.
    """
    check_labels(labels)
    graph, n_classes = graph_of(on.near), len(labels.classes)

    def propagated_from(some: NDArray[np.bool_]) -> tuple[Floats, Floats, NDArray[np.float64]]:
        rows, codes = labels.rows[some], labels.codes[some]
        class_means = prototypes(on.rows.units, rows, codes, n_classes)
        guess = guessed(on.rows.units, class_means)
        seeds = PRIOR * guess
        seeds[rows, codes] += 1
        probabilities = spread(graph, seeds)
        return class_means, probabilities, other_class(on.near, probabilities, guess)

    everything = np.ones(len(labels.rows), bool)
    class_means, probabilities, other = propagated_from(everything)
    inside = other[labels.rows]
    folds = spread_folds(torch.from_numpy(labels.codes), FOLDS, seed=seed).numpy()
    for number in range(FOLDS):
        held = labels.rows[folds == number]
        other[held] = propagated_from(folds != number)[2][held]
    return Lesson(class_means, probabilities, other, inside)


def weighed(
    bare: DatasetFit, on: LaidOutRows, lesson: Lesson, labels: KnownLabels, *, seed: int = 0
) -> tuple[Learned, Mapping[str, float]]:
    """Choose the weight of the labels, and compare the fits with and without them on held-out labels.

    Returns:
        accuracy on held-out labels, and the weights of the rule.

    Raises:
        InputError: if all nearest labelled rows agree, or all disagree, so that nothing can be measured.
    """
    rows, wrong = measured_rows(on.rows.part, labels, seed=seed)
    if wrong.all() or not wrong.any():
        always = (
            "another class: choose a coarser column" if wrong.all() else "its own class, as the dataset alone shows"
        )
        raise InputError(
            f"expected labels of which the nearest labelled images differ, got {len(labels.rows):,} "
            f"labelled images, and the nearest labelled image of each is of {always}; or fit without labels"
        )
    plain = bare.with_quantiles(on.signals).ambiguity(on.signals)
    signals = {**on.signals, OTHER: lesson.other}
    total = sum(PROPAGATED_WEIGHTS.values())
    tried = {}
    for share in SHARES if len(labels.rows) >= MANY_LABELS else (1.0,):
        fit = replace(bare, weights={**PROPAGATED_WEIGHTS, OTHER: share * total}).with_quantiles(signals)
        tried[share] = (auroc(fit.ambiguity(signals)[rows], wrong), fit)
    best = max(tried, key=lambda share: (tried[share][0], -share))
    fit = tried[best][1]
    other_with_label = lesson.other.copy()
    other_with_label[labels.rows] = lesson.inside
    scores = [fit.ambiguity(signals)[rows], plain[rows], fit.ambiguity({**signals, OTHER: other_with_label})[rows]]
    ours, free, inside, gain = paired_aurocs(scores, wrong, seed=seed)
    n_classes = len(np.unique(labels.codes))
    # On development sets labels nearly always help, and few held-out ones say little: they have to speak against it.
    better = gain.value > 0 or (gain.high > 0 and ours.low > CHANCE_LEVEL)
    return Learned(len(labels.rows), n_classes, ours, free, gain, inside, best, better), fit.weights


def measured_rows(part: Part, labels: KnownLabels, *, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return at most 5,000 labelled rows, and whether the nearest labelled row of each has another class.

    A row is excluded if all other labelled rows are copies of it. ``part`` returns rows of the dataset by index.
    """
    chosen = np.arange(len(labels.rows))
    if len(chosen) > MEASURED:
        chosen = np.sort(np.random.default_rng([seed, 5]).permutation(len(chosen))[:MEASURED])
    at = labels.rows[chosen]
    first = near_in(part(at), 1).index[:, 0]
    has_neighbour = first >= 0
    codes = labels.codes[chosen]
    return at[has_neighbour], (codes[first.clip(0)] != codes)[has_neighbour]


def label_auroc(part: Part, score: NDArray[np.floating], labels: KnownLabels, *, seed: int = 0) -> Interval | None:
    """Return the AUROC, with 95 % interval, of a score for labelled rows whose nearest labelled row has another class.

    Args:
        part: indices (M,) of a dataset of N rows -> these rows.
        score: higher is less certain, shape (N,).
        labels: of some of the rows.
        seed: of the sample and resamples.

    Returns:
        None if fewer than 50 rows are labelled, or all of these are of one kind.
    """
    if len(labels.rows) < LEAST_LABELS:
        return None
    at, wrong = measured_rows(part, labels, seed=seed)
    if wrong.all() or not wrong.any():
        return None
    return paired_aurocs([score[at].astype(np.float64)] * 3, wrong, seed=seed)[0]


def paired_aurocs(
    scores: list[NDArray[np.float64]], wrong: NDArray[np.bool_], *, seed: int = 0
) -> tuple[Interval, Interval, Interval, Interval]:
    """Return the AUROC of three scores with intervals, and the paired difference of the first two."""

    def of(at: NDArray[np.int64]) -> list[float]:
        aurocs = [auroc(each[at], wrong[at]) for each in scores]
        return [*aurocs, aurocs[0] - aurocs[1]]

    generator = np.random.default_rng([seed, 7])
    value = of(np.arange(len(wrong)))
    low, high = percentiles(np.array([of(generator.integers(0, len(wrong), len(wrong))) for _ in range(REPEATS)]))
    first, second, third, gain = (Interval(*each) for each in zip(value, low.tolist(), high.tolist(), strict=True))
    return first, second, third, gain
