"""Predictions by probes trained on another table, the usual protocol for representations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from curate.evaluation.correctness import (
    ACCURACY,
    KNN,
    LINEAR,
    MOST_CLASSES,
    NEAREST,
    Correctness,
    most_frequent,
    too_many,
)
from curate.evaluation.joined import LabelledFile, class_names, named_column
from curate.evaluation.measures import Shape
from curate.evaluation.protocol import VOTERS, Protocol, ProtocolSettings
from curate.evaluation.rows import MeasuredRows, embeddings
from curate.probes.mixture import fit_mixture
from curate.probes.perceptron import LINEAR_STEPS, PERCEPTRON_STEPS, lars_logits, perceptron_answers
from curate.tables.needs import Needs
from curate.tables.provenance import require_same_model
from curate.tables.rows import read_rows
from curate.tables.table import Table
from scoring.arrays import Array, Floats
from scoring.errors import InputError
from scoring.metrics.classifier import MOST_ROWS, fit_linear
from scoring.metrics.neighbours import knn_vote, nearest

MLP, LARS, GMM = "MLP", "LARS", "GMM"
BLOCK = 4096  # rows predicted per batch
FREQUENT = "baseline: the most frequent class of --train"


@dataclass(frozen=True)
class TrainingRows:
    """M labelled training rows.

    Attributes:
        embedding: unit vectors, shape (M, D), float32.
        labels: shape (M,), int64, indices in ``classes``.
        classes: as text.
        n_shared: number of excluded rows, whose images are measured.
    """

    embedding: Tensor
    labels: Tensor
    classes: list[str]
    n_shared: int

    def count_unseen(self, names: Sequence[str]) -> int:
        """Return the number of rows whose class, given for each, is not among the training rows.

        Raises:
            InputError: if no class is.
        """
        known = {self.classes[place] for place in self.labels.unique().tolist()}
        unseen = sum(name not in known for name in names)
        if unseen == len(names):
            raise InputError(
                f"--train: expected rows of the classes that are measured, such as {names[0]!r}, got none, but of "
                f"{min(known)!r} and others; name classes alike in both tables"
            )
        return unseen


def training_rows(train: Table, test: MeasuredRows, label: str, labelled: LabelledFile | None) -> TrainingRows:
    """Read the rows of a table with a label and an embedding, without images that are measured.

    Args:
        train: scored by the model of ``test``.
        test: the measured rows.
        label: class column, in ``train`` or, by key, in ``labelled``.
        labelled: a file of labels.

    Raises:
        InputError: if it was scored by another model, or fewer than two classes are left.
    """
    require_same_model(test.table, train, "--train")
    file = None if label in train.schema.names else labelled
    codes, classes = class_names(named_column(train, label, "--label", file), label)
    usable = read_rows(train, Needs(keys=False)).ok & (codes >= 0)
    shared = _has_measured_image(train, test) & usable
    rows = MeasuredRows(train, np.flatnonzero(usable & ~shared), {}, {}, {})
    embedded = embeddings(rows)
    if isinstance(embedded, str):
        raise InputError(f"--train: expected embeddings in {train.path}, got none: {embedded}; score its images")
    matrix, has_embedding = embedded
    labels = codes[rows.index[has_embedding]]
    if len(np.unique(labels)) < 2:
        why = f" once {int(shared.sum()):,} images that are measured are left out" if shared.any() else ""
        raise InputError(
            f"--train: expected rows of at least two classes in {label!r} of {train.path}, got "
            f"{len(np.unique(labels))}{why}; pass another table"
        )
    return TrainingRows(
        matrix[torch.from_numpy(has_embedding)], torch.from_numpy(labels.astype(np.int64)), classes, int(shared.sum())
    )


def _has_measured_image(train: Table, test: MeasuredRows) -> NDArray[np.bool_]:
    """Return which rows of ``train`` have the bytes of a measured image."""
    if "sha256" not in train.schema.names or "sha256" not in test.table.schema.names:
        return np.zeros(train.n_rows, bool)
    measured = test.table.take(test.index, ["sha256"]).column(0).combine_chunks()
    is_shared = pc.is_in(train.read(["sha256"]).column(0), value_set=measured.drop_null())
    return np.asarray(is_shared.to_numpy(), bool)


def judge_by(
    training: TrainingRows, embedding: Tensor, classes: Sequence[str], protocol: Protocol, *, seed: int
) -> Correctness:
    """Predict every row with probes trained on another table.

    Args:
        training: the training rows.
        embedding: unit vectors, shape (N, D).
        classes: of the N rows; a class missing in ``training`` is always predicted wrongly.
        protocol: the probes and their settings.
        seed: of few-label draws, samples of more than ``MOST_ROWS`` rows, initial weights and starts.

    Raises:
        InputError: if embeddings of the two tables differ in length.
    """
    if embedding.shape[1] != training.embedding.shape[1]:
        raise InputError(
            f"--train: expected embeddings of {embedding.shape[1]} numbers, got {training.embedding.shape[1]}; score "
            "both with one model"
        )
    place = {name: index for index, name in enumerate(training.classes)}
    labels = torch.tensor([place.get(name, -1) for name in classes])
    judging = _ProbeRuns(training, embedding, labels, protocol.settings, seed)
    run: dict[str, Callable[[], None]] = {
        "knn": judging.by_neighbours,
        "linear": judging.by_linear,
        "few": judging.by_few_labels,
        "mlp": judging.by_perceptron,
        "lars": judging.by_lars,
        "gmm": lambda: judging.by_mixture(classes),
    }
    for name, judge in run.items():
        if name in protocol.probes:
            judge()
    return judging.measured


class _ProbeRuns:
    """Runs probes in sequence on the same rows; stores their predictions in ``measured``."""

    def __init__(
        self, training: TrainingRows, embedding: Tensor, labels: Tensor, settings: ProtocolSettings, seed: int
    ) -> None:
        self.training, self.embedding, self.labels, self.settings = training, embedding, labels, settings
        self.seed, self.generator = seed, torch.Generator().manual_seed(seed)
        self.n_classes = len(training.classes)
        self.rows = torch.randperm(len(training.labels), generator=self.generator)[:MOST_ROWS].sort().values
        self.frequent = most_frequent(training.labels, labels)
        self.about: dict[str, Shape] = {}
        self.measured = Correctness({}, None, {}, about=self.about)

    def by_neighbours(self) -> None:
        """Predict by the nearest row, and by a vote of the nearest."""
        known, k, temperature = self.training.labels, self.settings.k, self.settings.temperature
        k = k or min(VOTERS, len(known))
        cosine, index = nearest(self.embedding, self.training.embedding, k)
        share = (torch.bincount(known) / len(known))[self.labels.clamp(min=0)].double().where(self.labels >= 0, 0)
        self._add_prediction(
            NEAREST,
            Shape(
                "1-NN accuracy",
                "higher",
                "share of rows whose nearest row of --train has their label; baseline: a row of --train at random",
            ),
            known[index[:, 0]],
            share.numpy(),
        )
        meaning = (
            f"share of rows for whose label the nearest {k} rows of --train vote, weights exp(cosine / {temperature:g})"
        )
        self._add_prediction(KNN, _accuracy(KNN, meaning), knn_vote(cosine, known[index], temperature=temperature))

    def by_linear(self) -> None:
        """Predict by a linear classifier; its probabilities are stored."""
        about = _accuracy(
            LINEAR, f"share of rows that a linear classifier (L-BFGS, C = {self.settings.c:g}) of --train gets right"
        )
        if self._has_too_many(LINEAR, about):
            return
        log_p = self._log_probabilities(self.rows)
        self._add_prediction(LINEAR, about, log_p.argmax(1))
        self.measured.class_entropy = -torch.special.xlogy(log_p.exp(), log_p.exp()).sum(1).numpy()
        self.measured.confidence = log_p.max(1).values.exp().numpy()

    def by_few_labels(self) -> None:
        """Predict by linear classifiers trained on few rows, drawn several times."""
        for name, amount in self.settings.amounts().items():
            measure = f"{LINEAR}, {name}"
            about = Shape(f"{ACCURACY[LINEAR].name}, {name}", "higher", "")
            if self._has_too_many(measure, about):
                continue
            answers = [
                self._log_probabilities(_few_rows(self.training.labels, amount, self.generator)).argmax(1)
                for _ in range(self.settings.draws)
            ]
            right = torch.stack([answer == self.labels for answer in answers]).double()
            drawn = ", ".join(f"{share:.3f}" for share in right.mean(1).tolist())
            meaning = f"the linear classifier fitted on {name}, at least one a class; mean of the draws {drawn}"
            self._add_measure(
                measure, replace(about, meaning=f"{meaning}; {FREQUENT}"), right.mean(0).numpy(), self.frequent
            )

    def by_perceptron(self) -> None:
        """Predict by a network with one hidden layer."""
        hidden, passes = self.settings.hidden, self.settings.passes
        about = _accuracy(
            MLP, f"share of rows that an MLP ({hidden:,} hidden units, {passes:,} passes) of --train gets right"
        )
        if not self._has_too_many(MLP, about):
            steps = replace(PERCEPTRON_STEPS, passes=passes)
            answers = perceptron_answers(*self._sampled(), seed=self.seed, hidden=hidden, steps=steps)
            self._add_measure(MLP, about, (answers == self.labels).numpy(), self.frequent)

    def by_lars(self) -> None:
        """Predict by a linear classifier trained with LARS."""
        rate, epochs = self.settings.rate, self.settings.epochs
        how = f"LARS, rate {rate:g}, {epochs:,} epochs"
        about = _accuracy(LARS, f"share of rows that a linear classifier ({how}) of --train gets right")
        if not self._has_too_many(LARS, about):
            steps = replace(LINEAR_STEPS, rate=rate, passes=epochs)
            answers = lars_logits(*self._sampled(), seed=self.seed, steps=steps).argmax(1)
            self._add_measure(LARS, about, (answers == self.labels).numpy(), self.frequent)

    def _sampled(self) -> tuple[Tensor, Tensor, Tensor, int]:
        """Return training rows, their labels, the rows to predict and the number of classes."""
        known = self.training
        return known.embedding[self.rows], known.labels[self.rows], self.embedding, self.n_classes

    def by_mixture(self, classes: Sequence[str]) -> None:
        """Cluster by as many Gaussians as classes; each gets one class from the rows it was fitted on."""
        from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

        learned, known = self.training.embedding[self.rows], self.training.labels[self.rows]
        k = len(known.unique())
        about = Shape(
            "GMM accuracy",
            "higher",
            f"share of rows in a Gaussian of their class: {k:,} Gaussians fitted to --train without labels, one "
            "for each class, so that most of --train is right; baseline: the same Gaussians shuffled over the rows",
        )
        if self._has_too_many(GMM, about):
            return
        mixture = fit_mixture(learned, k, starts=self.settings.starts, seed=self.seed)
        together = np.zeros((k, self.n_classes), np.int64)
        np.add.at(together, (mixture.clusters(learned).numpy(), known.numpy()), 1)
        class_of = torch.from_numpy(linear_sum_assignment(together, maximize=True)[1])
        cluster = mixture.clusters(self.embedding)
        answers = class_of[cluster]
        share = torch.bincount(answers, minlength=self.n_classes) / len(answers)
        expected = share[self.labels.clamp(min=0)].double().where(self.labels >= 0, 0)
        self._add_measure(GMM, about, (answers == self.labels).numpy(), expected.numpy())
        shuffled = cluster[torch.randperm(len(cluster), generator=torch.Generator().manual_seed(self.seed))]
        self.measured.clusters = np.stack(
            [np.unique(classes, return_inverse=True)[1], cluster.numpy(), shuffled.numpy()]
        )

    def _add_prediction(self, name: str, about: Shape, answers: Tensor, baseline: Floats | None = None) -> None:
        self.about[name] = about
        self.measured.right[name] = (answers == self.labels).numpy()
        self.measured.baseline[name] = self.frequent if baseline is None else baseline

    def _add_measure(self, name: str, about: Shape, values: Array, baseline: Floats) -> None:
        self.about[name], self.measured.baseline[name] = about, baseline
        self.measured.ranked[name] = values.astype(np.float64)

    def _has_too_many(self, name: str, about: Shape) -> bool:
        """Return whether there are too many classes to fit a classifier, and record it."""
        if self.n_classes > MOST_CLASSES:
            self.about[name], self.measured.missing[name] = about, too_many(self.n_classes)
        return self.n_classes > MOST_CLASSES

    def _log_probabilities(self, rows: Tensor) -> Tensor:
        """Return log probabilities of each class, shape (N, C), float64, of a linear classifier."""
        known = self.training
        fitted = fit_linear(known.embedding[rows], known.labels[rows], self.n_classes, c=self.settings.c)
        return torch.cat([fitted.logits(block).double().log_softmax(1) for block in self.embedding.split(BLOCK)])


def _accuracy(name: str, meaning: str) -> Shape:
    return Shape(f"{name} accuracy", "higher", f"{meaning}; {FREQUENT}")


def _few_rows(labels: Tensor, amount: float | int, generator: torch.Generator) -> Tensor:
    """Return random rows of each class: a share (float) or a number (int), at least one, at most all."""
    order = torch.randperm(len(labels), generator=generator)
    chosen = []
    for number in labels.unique().tolist():
        members = order[labels[order] == number]
        chosen.append(members[: max(1, round(amount * len(members))) if isinstance(amount, float) else amount])
    return torch.cat(chosen).sort().values
