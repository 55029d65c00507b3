"""What the URL benchmark asks of an uncertainty, and how sure the answers are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from url_data import DOWNSTREAM, SEEN, UNSEEN, VOTED

from curate.statistics.weighted import RankOrder, weighted_spearman
from scoring.metrics.neighbours import recall_at_1
from scoring.metrics.ranking import entropy

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Answers = Mapping[str, Floats]  # name of a dataset -> uncertainty of its rows; higher is less certain
R_AUROC, CROP, PEOPLE, DISAGREE, OOD, MIXED = "R-AUROC", "crop", "votes", "disagree", "OOD", "mixed"
FEW, FEW_BEFORE = "few", "few, before"
REPEATS = 300


def crops_of(dataset: str) -> str:
    """Return the name of the crops of a set."""
    return f"{dataset}, crops"


def mix_of(dataset: str) -> str:
    """Return the name of a set mixed with as many upstream images."""
    return f"{dataset} and {SEEN}"


def few_of(dataset: str) -> str:
    """Return the name of the rows of a set that a few others were learned from."""
    return f"{dataset}, few"


@dataclass(frozen=True)
class Measured:
    """The images that are measured on, by one backbone.

    Attributes:
        keys: SET/FILE/ROW of each image.
        features: shape (N, D), float32.
        embedding: unit vectors, shape (N, E).
        labels: shape (N,); no two sets share a class.
        crops: features of the crops, shape (K, D).
        crop_rows: which image each crop is of, shape (K,).
        votes: of annotators, for the rows of ``people``, shape (V, C).
        few: for each seed and set, the rows that are learned from.
        classes: what each label represents.
        known_mistaken: what ``mistaken`` found before.
    """

    keys: list[str]
    features: Tensor
    embedding: Tensor
    labels: Tensor
    crops: Tensor
    crop_rows: Rows
    votes: Floats
    few: dict[tuple[int, str], Rows]
    classes: list[str]
    known_mistaken: dict[bytes, NDArray[np.bool_]] = field(default_factory=dict)

    @cached_property
    def sets(self) -> dict[str, Rows]:
        """The rows of each set, ascending."""
        names = np.array([key.split("/")[0] for key in self.keys])
        return {name: np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())}

    @cached_property
    def datasets(self) -> dict[str, Rows]:
        """The rows of every dataset that is queried: the sets, and those downstream mixed with upstream."""
        drawn = np.random.default_rng(1).permutation(self.sets[SEEN])
        mixes = {}
        for name in DOWNSTREAM:
            rows = self.sets[name]
            n = min(len(rows), len(drawn))
            some = rows if n == len(rows) else np.random.default_rng(2).permutation(rows)[:n]
            mixes[mix_of(name)] = np.sort(np.concatenate([drawn[:n], some]))
        return {**self.sets, **mixes}

    def crops_in(self, name: str) -> Rows:
        """Return which of the crops are of a set."""
        return np.flatnonzero(np.isin(self.crop_rows, self.sets[name]))

    def mistaken(self, rows: Rows) -> NDArray[np.bool_]:
        """Return whether the nearest other of some rows is of another class, shape (n,); sought once."""
        key = rows.tobytes()
        if key not in self.known_mistaken:
            self.known_mistaken[key] = ~recall_at_1(self.embedding[rows], self.labels[rows])
        return self.known_mistaken[key]

    def rest(self, seed: int, name: str) -> Rows:
        """Return the rows of a set that are not learned from."""
        return np.setdiff1d(self.sets[name], self.few[seed, name])


@dataclass(frozen=True)
class Question:
    """Something that an uncertainty is requested.

    Attributes:
        measure: what it counts for.
        of: the set.
        dataset: whose answers.
        rows: of the images, in the order of the answers, shape (n,).
        target: what should be uncertain, bool, or by how much, shape (n,); None for crops against their whole images.
        within: which of the dataset's rows are requested of; None for all.
    """

    measure: str
    of: str
    dataset: str
    rows: Rows
    target: NDArray | None
    within: Rows | None = None

    def values(self, answers: Answers, counts: NDArray[np.int64]) -> Floats:
        """Return the measure of samples, shape (R,), of the counts of each image in each, shape (R, N)."""
        counted = counts[:, self.rows]
        said = answers[self.dataset] if self.within is None else answers[self.dataset][self.within]
        if np.isnan(said).any():
            raise SystemExit(f"an uncertainty of {self.dataset} is not a number; expected none")
        if self.target is None:
            less = (answers[crops_of(self.dataset)] > said).astype(np.float64)
            return (counted @ less) / counted.sum(1)
        order = RankOrder(said)
        if self.measure == PEOPLE:
            people = RankOrder(self.target)
            return np.array([weighted_spearman(order, people, weights) for weights in counted])
        target = order.sort(self.target[:, None])
        return np.array([order.auroc(weights, target)[0] for weights in counted])


def questions(measured: Measured, seed: int) -> list[Question]:
    """Return everything that is requested of the answers of one seed."""
    sets, listed = measured.sets, []
    for name in (SEEN, UNSEEN, *DOWNSTREAM):
        rows = sets[name]
        listed.append(Question(R_AUROC, name, name, rows, measured.mistaken(rows)))
    for name in (UNSEEN, *DOWNSTREAM):
        listed.append(Question(CROP, name, name, sets[name], None))
    listed.append(Question(PEOPLE, VOTED, VOTED, sets[VOTED], entropy(measured.votes)))
    listed.append(Question(DISAGREE, VOTED, VOTED, sets[VOTED], (measured.votes > 0).sum(1) > 1))
    for name in DOWNSTREAM:
        dataset = mix_of(name)
        rows = measured.datasets[dataset]
        listed.append(Question(OOD, name, dataset, rows, np.isin(rows, sets[name])))
        listed.append(Question(MIXED, name, dataset, rows, measured.mistaken(rows)))
    for at, name in measured.few:
        if at == seed:
            rest = measured.rest(seed, name)
            target = measured.mistaken(rest)
            listed.append(Question(FEW, name, few_of(name), rest, target))
            listed.append(Question(FEW_BEFORE, name, name, rest, target, np.searchsorted(sets[name], rest)))
    return listed


def resampled(measured: Measured) -> NDArray[np.int32]:
    """Return how often each image is drawn when each set is drawn again, shape (1 + R, N); the first line is of ones.

    Every estimator is measured on the same resamples, so that differences are paired.
    """
    counts = np.ones((1 + REPEATS, len(measured.keys)), np.int32)
    for at, rows in enumerate(measured.sets.values()):
        generator = np.random.default_rng([3, at])
        for line in counts[1:]:
            line[rows] = np.bincount(generator.integers(0, len(rows), len(rows)), minlength=len(rows))
    return counts


def unit(features: Tensor) -> Tensor:
    """Return rows of unit length."""
    return F.normalize(features, dim=1)
