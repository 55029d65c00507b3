"""Out-of-fold class predictions for every row, by a linear discriminant and votes of neighbours."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from curate.probes.discriminant import ABSENT, SHRINK, Discriminant, Moments, discriminants
from curate.probes.linear import coolest_fit, softmax
from curate.statistics.noise.quality import LEAST, ClassProbabilities, trust
from scoring.arrays import Array
from scoring.metrics.classifier import spread_folds
from scoring.relative.neighbours import near_in
from scoring.relative.space import Centred

FOLDS = 5
ROUNDS = 2  # the second round reduces the weight of labels that the first one doubts
NEIGHBOURS = 30
LEAST_WEIGHT = 0.02  # minimal weight of a label, so that no class is lost
WARMTH = 0.07  # temperature of the neighbours' votes, in cosine
COPY = 0.99  # uncentred cosine from which two rows share a fold
NEAREST = 4  # neighbours that may be copies
BLOCK_NUMBERS = 2_000_000  # probabilities held at a time
FITTED_NUMBERS = 400_000  # logits that a temperature is fitted to
FEWEST, MOST = 300, 20_000  # and of how many rows
NO_NEIGHBOUR = 2.0  # cosine that no row has


@dataclass(frozen=True)
class LabelEvidence:
    """Evidence of other rows for the classes of N rows.

    Attributes:
        probabilities: combined probabilities.
        probe: the most likely class by the discriminant, shape (N,) int32.
        voted: the majority class of the neighbours, shape (N,) int32; -1 without a labelled one.
        copy: index of the nearest labelled copy, shape (N,) int64; -1 for none.
        shrink: shrinkage of the best discriminant.
    """

    probabilities: ClassProbabilities
    probe: NDArray[np.int32]
    voted: NDArray[np.int32]
    copy: NDArray[np.int64]
    shrink: float


@dataclass(frozen=True)
class Neighbourhood:
    """The nearest labelled rows of each row: index and vote, shape (N, K) each; vote 0 if absent."""

    index: NDArray[np.int64]
    vote: NDArray[np.float32]

    def share(
        self, rows: NDArray[np.int64], codes: NDArray[np.int64], weight: Array, prior: Array
    ) -> NDArray[np.float32]:
        """Return the vote shares of the classes, with one additional vote for the prior, shape (B, C)."""
        index = self.index[rows]
        k = index.shape[1]
        counted = self.vote[rows] * weight[index]
        total = counted.sum(1, keepdims=True)
        counted = counted / np.maximum(total, LEAST) * k
        cell = np.arange(len(rows))[:, None] * len(prior) + codes[index].clip(0)
        votes = np.bincount(cell.ravel(), counted.ravel(), minlength=len(rows) * len(prior))
        return np.asarray((votes.reshape(len(rows), len(prior)) + prior) / (k + 1), np.float32)


def crossed(dataset: Centred, labels: NDArray[np.integer], n_classes: int, *, seed: int = 0) -> LabelEvidence:
    """Return the evidence of other rows for the class of every row.

    Rows are split into five folds, copies together. Probabilities are the geometric mean of a
    linear discriminant of the other folds, with its temperature fitted to the held-out fold, and of the votes of the 30
    nearest rows. Then everything is fitted again with weighted labels: the probability of the label over the largest
    probability.

    Args:
        dataset: N rows, finite, none of zeros.
        labels: classes in [0, n_classes), shape (N,); -1 for a row without a label.
        n_classes: C >= 2.
        seed: of the folds.

    Memory: the rows in float32, their 30 neighbours, and 16 classes per row; blocks in addition.
    """
    codes = labels.astype(np.int64)
    copy, around = _neighbours(dataset)
    fold = _folds(codes, n_classes, copy, seed)
    judging = _Crossing(dataset.units, codes, n_classes, fold, around)
    weight = (codes >= 0).astype(np.float32)
    for _ in range(ROUNDS):
        judging.run(weight)
        weight = np.where(codes >= 0, np.maximum(trust(judging.probabilities), LEAST_WEIGHT), 0).astype(np.float32)
    first = np.where(codes[copy[:, 0].clip(0)] >= 0, copy[:, 0], -1)
    return LabelEvidence(judging.probabilities, judging.probe, judging.voted, first, judging.shrink)


def _neighbours(dataset: Centred) -> tuple[NDArray[np.int64], Neighbourhood]:
    """Return the neighbours that are copies, -1 for others, shape (N, NEAREST or fewer), and all neighbours."""
    near = near_in(dataset, NEIGHBOURS, copy=NO_NEIGHBOUR)
    first = near.index[:, :NEAREST]
    raw = dataset.raw(dataset, first.clip(0), near.cosine[:, :NEAREST])
    vote = np.exp((near.cosine - near.cosine[:, :1]) / WARMTH) * near.exists
    return np.where((raw > COPY) & (first >= 0), first, -1), Neighbourhood(near.index.clip(0).astype(np.int32), vote)


def _folds(codes: NDArray[np.int64], n_classes: int, copy: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return the fold of each row; copies (and their copies) share one, since they would confirm each other."""
    group = np.arange(len(codes))
    row, place = np.nonzero(copy >= 0)
    other = copy[row, place]
    while len(row):  # propagate the lowest index through each group
        before = group.copy()
        lowest = np.minimum(group[row], group[other])
        np.minimum.at(group, row, lowest)
        np.minimum.at(group, other, lowest)
        group = group[group]
        if np.array_equal(before, group):
            break
    labels = torch.from_numpy(np.where(codes < 0, n_classes, codes))
    fold = np.asarray(spread_folds(labels, FOLDS, seed=seed, groups=torch.from_numpy(group)))
    first, last = np.full(n_classes + 1, FOLDS), np.full(n_classes + 1, -1)
    np.minimum.at(first, labels.numpy(), fold)
    np.maximum.at(last, labels.numpy(), fold)
    alone = (first == last)[labels.numpy()]  # a class of copies alone is dealt out: no other fold would know it
    if not alone.any():
        return fold
    group = np.where(alone, np.arange(len(codes)), len(codes) + group)
    return np.asarray(spread_folds(labels, FOLDS, seed=seed, groups=torch.from_numpy(group)))


class _Crossing:
    """State of repeated cross-fitting on the same rows, folds and neighbours."""

    def __init__(
        self,
        units: NDArray[np.float32],
        codes: NDArray[np.int64],
        n_classes: int,
        fold: NDArray[np.int64],
        around: Neighbourhood,
    ) -> None:
        self.units, self.codes, self.n_classes, self.fold, self.around = units, codes, n_classes, fold, around
        self.probabilities = ClassProbabilities.room(len(codes), n_classes)
        self.probe, self.voted = np.full(len(codes), -1, np.int32), np.full(len(codes), -1, np.int32)
        self.shrink = SHRINK[-1]

    def run(self, weight: NDArray[np.float32]) -> None:
        """Predict every row from the others, with the given label weights, shape (N,)."""
        folds = [np.flatnonzero(self.fold == number) for number in range(FOLDS)]
        moments = [Moments.of(self.units, self.codes, weight, held, self.n_classes) for held in folds]
        of_class = Moments.together(moments).weight
        prior = of_class / max(float(of_class.sum()), LEAST)
        chosen: tuple[float, ...] = SHRINK
        for number, held in enumerate(folds):
            if not len(held):
                continue
            others = Moments.together(moments[:number] + moments[number + 1 :])
            known = (self.codes[held] >= 0) & (others.weight[self.codes[held].clip(0)] > 0)
            models = discriminants(others, chosen)
            model, shrink, temperature = self._calibrated(models, chosen, held[known])
            if len(chosen) > 1 and known.any():
                chosen, self.shrink = (shrink,), shrink
            self._put(model, temperature, held, np.where(known, self.codes[held], -1), weight, prior)

    def _calibrated(
        self, models: list[Discriminant], shrink: tuple[float, ...], rows: NDArray[np.int64]
    ) -> tuple[Discriminant, float, float]:
        """Return the model with the highest likelihood of the rows' labels, its shrinkage and its temperature."""
        most = int(np.clip(FITTED_NUMBERS // self.n_classes, FEWEST, MOST))
        at = rows[:: max(1, -(-len(rows) // most))]
        if not len(at):
            return models[-1], shrink[-1], 1.0
        tried = []
        for number, model in enumerate(models):
            logits = model.logits(self.units[at]).astype(np.float64)
            temperature = coolest_fit(logits, self.codes[at])
            chance = softmax(logits / temperature)[np.arange(len(at)), self.codes[at]]
            tried.append((float(-np.log(np.maximum(chance, LEAST)).mean()), number, temperature))
        _, number, temperature = min(tried)
        return models[number], shrink[number], temperature

    def _put(
        self,
        model: Discriminant,
        temperature: float,
        held: NDArray[np.int64],
        labels: NDArray[np.int64],
        weight: NDArray[np.float32],
        prior: NDArray[np.float64],
    ) -> None:
        size = max(1, BLOCK_NUMBERS // self.n_classes)
        for start in range(0, len(held), size):
            block = slice(start, start + size)
            rows = held[block]
            logits = model.logits(self.units[rows])
            log_probabilities = np.log(np.maximum(softmax(logits / temperature), LEAST))
            votes = self.around.share(rows, self.codes, weight, prior)
            both = (log_probabilities + np.log(np.maximum(votes, LEAST))) / 2
            both[:, model.bias <= ABSENT] = ABSENT
            self.probabilities.put(rows, labels[block], softmax(both))
            self.probe[rows] = log_probabilities.argmax(1)
            some = (self.around.vote[rows] * weight[self.around.index[rows]]).any(1)
            self.voted[rows] = np.where(some, votes.argmax(1), -1)
