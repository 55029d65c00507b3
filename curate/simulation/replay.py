"""Simulation of labelling rounds on rows with known labels: how much a strategy gains."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from curate.probes.linear import FeatureScale, fit_linear_probe, spread_of
from curate.selectors.chance import Random
from curate.selectors.contract import Selector
from curate.selectors.pool import Pool
from curate.simulation.curves import Curves
from scoring.errors import InputError
from scoring.relative.space import unit


@dataclass(frozen=True)
class Replay:
    """Rows with known labels, and rows to test on.

    Attributes:
        features: what the probe learns from, shape (N, D).
        labels: shape (N,) int64, in [0, C).
        test_features: shape (T, D).
        test_labels: shape (T,) int64.
        vectors: what selectors look at, shape (N, E); None for the features scaled to unit length.
        annotated: the labels that annotators give, shape (N,) int64; None for the true ones.
        quality: as in ``Pool``, shape (N,) float32.
        calibrate: whether the probe's probabilities are calibrated.
    """

    features: NDArray
    labels: NDArray[np.int64]
    test_features: NDArray
    test_labels: NDArray[np.int64]
    vectors: NDArray | None = None
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

    A selector that needs probabilities has none before the first labels: then ``first`` picks the first
    batch. The seed of a run drives everything in it, so strategies that begin with the same selector begin with the
    same rows, and two strategies are compared seed by seed.

    Args:
        data: the rows.
        selector: what picks.
        budgets: labels after each round, ascending, at most N.
        seeds: one run each.
        first: picks before there are labels; None for random rows.
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
        # every round draws again, but two strategies with the same rows so far draw alike
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
