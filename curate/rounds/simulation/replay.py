"""Simulation of labelling rounds on rows with known labels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from curate.probes.linear import FeatureScale, fit_linear_probe, spread_of
from curate.selectors.chance import Random
from curate.selectors.contract import Pool, Selector
from scoring.arrays import Array
from scoring.errors import InputError
from scoring.relative.space import unit

ALL_SIGNS = 14  # seeds up to which every one of the 2^S signs is tried; beyond, a sample
SIGNS = 20_000


@dataclass(frozen=True)
class Curves:
    """Accuracy by the number of labels.

    Attributes:
        budgets: number of labels after each round, shape (B,) int64.
        seeds: shape (S,).
        accuracy: on the test rows, shape (S, B) float64, in [0, 1].
        picks: rows in the order labelled, shape (S, budgets[-1]) int64.
    """

    budgets: NDArray[np.int64]
    seeds: tuple[int, ...]
    accuracy: NDArray[np.float64]
    picks: NDArray[np.int64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean accuracy over the seeds, shape (B,)."""
        return np.asarray(self.accuracy.mean(0))

    @property
    def error(self) -> NDArray[np.float64]:
        """Standard error of the mean over the seeds, shape (B,); NaN for one seed."""
        return _standard_error(self.accuracy)

    @property
    def area(self) -> NDArray[np.float64]:
        """Mean height of each seed's curve between the first and last budget, shape (S,), in [0, 1]."""
        return area_under(self.budgets, self.accuracy)


def area_under(budgets: NDArray[np.int64], accuracy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean height of curves (S, B) over budgets (B,), ascending, by the trapezoidal rule, shape (S,).

    With one budget it is the accuracy there.

    >>> area_under(np.array([10, 20, 40]), np.array([[0.0, 1.0, 1.0]])).round(4).tolist()
    [0.8333]
    """
    if len(budgets) == 1:
        return accuracy[:, 0]
    width = np.diff(budgets)
    return np.asarray(((accuracy[:, 1:] + accuracy[:, :-1]) / 2 * width).sum(1) / width.sum())


@dataclass(frozen=True)
class Lift:
    """Paired difference of one strategy to another over seeds.

    Attributes:
        difference: mean difference of the accuracy, shape (B,).
        error: standard error of the difference, shape (B,); NaN for one seed.
        area: mean difference of the areas under the curves.
        area_error: its standard error.
        p: two-sided p value of equal areas (sign flips of the seeds' differences), >= 2^(1-S).
        saved: see ``labels_saved``, shape (B,), on mean curves.
    """

    difference: NDArray[np.float64]
    error: NDArray[np.float64]
    area: float
    area_error: float
    p: float
    saved: NDArray[np.float64]


def lift(curves: Curves, baseline: Curves) -> Lift:
    """Compare two strategies simulated with the same seeds and budgets; ValueError if these differ."""
    if curves.seeds != baseline.seeds or not np.array_equal(curves.budgets, baseline.budgets):
        raise ValueError("both strategies must be replayed with the same seeds and budgets")
    gap, areas = curves.accuracy - baseline.accuracy, curves.area - baseline.area
    return Lift(
        gap.mean(0),
        _standard_error(gap),
        float(areas.mean()),
        float(_standard_error(areas[:, None])[0]),
        sign_flip_p(areas),
        labels_saved(curves.budgets, curves.mean, baseline.mean),
    )


def sign_flip_p(differences: NDArray[np.float64]) -> float:
    """Return the sign-flip p value: how often random signs of differences (S,) give a mean at least as far from 0.

    All signs are tried for up to 14 differences, else 20,000 random ones, including the original. Source: Fisher's
    randomisation test for pairs.

    >>> sign_flip_p(np.array([1.0, 2.0, 3.0]))
    0.25
    """
    n = len(differences)
    if n <= ALL_SIGNS:
        signs = np.array(list(product((1.0, -1.0), repeat=n)))
    else:
        signs = np.random.default_rng(0).choice([1.0, -1.0], (SIGNS, n))
        signs[0] = 1.0
    reached = np.abs(signs @ differences)
    return float((reached >= abs(differences.sum()) * (1 - 1e-12)).mean())


def labels_saved(
    budgets: NDArray[np.int64], accuracy: NDArray[np.float64], other: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return 1 - a / b, where a and b are the labels that a strategy and another need for the other's accuracy.

    Curves are interpolated linearly and made non-decreasing. Where the other curve is flat, b is where it first reached
    the accuracy. Negative if the strategy needs more labels, NaN if it never reaches the accuracy.

    Args:
        budgets: shape (B,), ascending.
        accuracy: mean accuracy of the strategy, shape (B,).
        other: mean accuracy of the other strategy, shape (B,).

    >>> labels_saved(np.array([10, 20, 40]), np.array([0.5, 0.8, 0.9]), np.array([0.5, 0.65, 0.8])).tolist()
    [0.0, 0.25, 0.5]
    """
    accuracy, other = np.maximum.accumulate(accuracy), np.maximum.accumulate(other)
    saved = np.full(len(budgets), np.nan)
    for at, target in enumerate(other):
        if target <= accuracy[-1]:
            saved[at] = 1 - _labels_to_reach(target, budgets, accuracy) / _labels_to_reach(target, budgets, other)
    return saved


def _labels_to_reach(target: float, budgets: NDArray[np.int64], accuracy: NDArray[np.float64]) -> float:
    """Return the number of labels at which a non-decreasing curve first reaches an accuracy."""
    right = int(np.argmax(accuracy >= target))
    if not right:
        return float(budgets[0])
    share = (target - accuracy[right - 1]) / (accuracy[right] - accuracy[right - 1])
    return float(budgets[right - 1] + share * (budgets[right] - budgets[right - 1]))


def _standard_error(values: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(values) < 2:
        return np.full(values.shape[1], np.nan)
    return np.asarray(values.std(0, ddof=1) / np.sqrt(len(values)))


@dataclass(frozen=True)
class Replay:
    """Rows with known labels, and test rows.

    Attributes:
        features: inputs of the probe, shape (N, D).
        labels: shape (N,) int64, in [0, C).
        test_features: shape (T, D).
        test_labels: shape (T,) int64.
        vectors: embeddings for selectors, shape (N, E); None for the normalised features.
        annotated: labels by annotators, shape (N,) int64; None for the true ones.
        quality: as in ``Pool``, shape (N,) float32.
        calibrate: whether the probe's probabilities are calibrated.
    """

    features: Array
    labels: NDArray[np.int64]
    test_features: Array
    test_labels: NDArray[np.int64]
    vectors: Array | None = None
    annotated: NDArray[np.int64] | None = None
    quality: NDArray[np.float32] | None = None
    calibrate: bool = True


Observer = Callable[[int, int, float], None]  # seed, labels so far, accuracy


def replay(
    data: Replay,
    selector: Selector,
    *,
    budgets: Sequence[int],
    seeds: Sequence[int],
    first: Selector | None = None,
    observe: Observer | None = None,
) -> Curves:
    """Simulate rounds: label the rows that a selector picks, and measure a probe after every round.

    For a selector that needs probabilities, ``first`` picks the first batch. The seed determines all random draws, so
    strategies that start with the same selector start with the same rows, and are compared in pairs.

    Args:
        data: the rows.
        selector: the strategy.
        budgets: labels after each round, ascending, at most N.
        seeds: one run per seed.
        first: selector of the first batch; None for random rows.
        observe: called after every round.

    Raises:
        InputError: if budgets do not ascend from at least 1 to at most N.
    """
    steps = np.asarray(budgets, np.int64)
    if not len(steps) or steps[0] < 1 or (np.diff(steps) < 1).any() or steps[-1] > len(data.labels):
        raise InputError(
            f"budgets must ascend from at least 1 to at most the {len(data.labels)} rows with a label,"
            f" got {', '.join(map(str, budgets)) or 'none'}"
        )
    data = data if data.vectors is not None else replace(data, vectors=unit(data.features))
    spread, first = spread_of(data.features), first or Random()
    accuracy = np.empty((len(seeds), len(steps)))
    picks = np.empty((len(seeds), int(steps[-1])), np.int64)
    for run, seed in enumerate(seeds):
        state = _Run(data, spread, seed)
        for step, budget in enumerate(steps):
            accuracy[run, step] = state.round(selector, first, int(budget))
            if observe:
                observe(seed, int(budget), float(accuracy[run, step]))
        picks[run] = state.picked
    return Curves(steps, tuple(seeds), accuracy, picks)


class _Run:
    """One seed's labelled rows, and the model fitted on them."""

    def __init__(self, data: Replay, spread: FeatureScale, seed: int) -> None:
        self.data, self.spread, self.seed = data, spread, seed
        self.annotated_labels = data.labels if data.annotated is None else data.annotated
        self.n_classes = int(max(data.labels.max(), self.annotated_labels.max(), data.test_labels.max())) + 1
        self.picked = np.zeros(0, np.int64)
        self.probabilities: NDArray[np.float32] | None = None

    def round(self, selector: Selector, first: Selector, budget: int) -> float:
        """Label rows up to a budget, fit the model, and return its accuracy on the test rows."""
        waits = not len(self.picked) and {"probabilities", "labels"} & set(selector.needs)
        chooser = first if waits else selector
        pool = self._pool(chooser.needs)
        # each round has a new seed, which is equal for all strategies
        seed = int(np.random.SeedSequence([self.seed, len(self.picked)]).generate_state(1)[0])
        selection = chooser(pool, budget - len(self.picked), seed=seed)
        self.picked = np.concatenate([self.picked, selection.rows])
        data = self.data
        probe = fit_linear_probe(
            data.features[self.picked],
            self.annotated_labels[self.picked],
            self.n_classes,
            spread=self.spread,
            calibrate=data.calibrate,
            seed=self.seed,
        )
        self.probabilities = probe.predict(data.features)
        return float((probe.predict(data.test_features).argmax(1) == data.test_labels).mean())

    def _pool(self, needs: Sequence[str]) -> Pool:
        data, labelled = self.data, np.sort(self.picked)
        labels = np.full(len(data.labels), -1)
        labels[labelled] = self.annotated_labels[labelled]
        return Pool(
            candidates=np.setdiff1d(np.arange(len(labels)), labelled, assume_unique=True),
            labelled=labelled,
            vectors=data.vectors,
            probabilities=self.probabilities,
            labels=labels,
            quality=data.quality,
        )


def compare(
    data: Replay,
    strategies: Mapping[str, Selector],
    *,
    budgets: Sequence[int],
    seeds: Sequence[int],
    first: Selector | None = None,
    observe: Callable[[str, int, int, float], None] | None = None,
) -> dict[str, Curves]:
    """Simulate several strategies on the same data, budgets and seeds.

    Args:
        data: the rows.
        strategies: by name, in the order to run.
        budgets: as in ``replay``.
        seeds: as in ``replay``.
        first: as in ``replay``.
        observe: called after every round with the strategy's name, seed, labels so far and accuracy.
    """

    def observer_of(name: str) -> Observer | None:
        return (lambda seed, labels, score: observe(name, seed, labels, score)) if observe else None

    return {
        name: replay(data, selector, budgets=budgets, seeds=seeds, first=first, observe=observer_of(name))
        for name, selector in strategies.items()
    }
