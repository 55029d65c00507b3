"""Predictions that are learned from another table, the usual protocol of representations."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from curate.evaluation.correctness import ACCURACY, KNN, LINEAR, MOST_CLASSES, NEAREST, VOTERS, Correctness
from curate.evaluation.joined import LabelledFile, class_names, named_column
from curate.evaluation.measures import Shape
from curate.evaluation.rows import MeasuredRows, embeddings
from curate.tables.needs import Needs
from curate.tables.provenance import require_same_model
from curate.tables.rows import read_rows
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.metrics.classifier import MOST_ROWS, fit_linear
from scoring.metrics.neighbours import knn_vote, nearest

FEW, DRAWS = {"linear, 1 % of labels": 0.01, "linear, 10 % of labels": 0.1}, 3
BLOCK = 4096  # rows that are predicted at a time
ABOUT = {
    NEAREST: Shape("1-NN accuracy", "higher", "share of rows whose nearest row of --train has their label"),
    KNN: Shape(ACCURACY[KNN].name, "higher", f"share of rows for whose label {VOTERS} rows of --train vote"),
    LINEAR: Shape(ACCURACY[LINEAR].name, "higher", "share of rows that a linear classifier of --train gets right"),
    **{
        name: Shape(
            f"{ACCURACY[LINEAR].name}, {share:.0%} of labels",
            "higher",
            f"the same, fitted on {share:.0%} of each class, at least one row; the mean of {DRAWS} draws",
        )
        for name, share in FEW.items()
    },
}


@dataclass(frozen=True)
class TrainingRows:
    """Labelled rows to learn from.

    Attributes:
        embedding: unit vectors, shape (M, D), float32.
        labels: shape (M,), int64, places in ``classes``.
        classes: as text.
        n_shared: rows that were left out, for their images are measured.
    """

    embedding: Tensor
    labels: Tensor
    classes: list[str]
    n_shared: int


def training_rows(train: Table, test: MeasuredRows, label: str, labelled: LabelledFile | None) -> TrainingRows:
    """Read the rows of a table that have a label and an embedding, without the images that are measured.

    Args:
        train: scored by the model of ``test``.
        test: the rows that are measured.
        label: column of classes, in ``train`` or, by key, in ``labelled``.
        labelled: a file of labels.

    Raises:
        InputError: if it was scored by another model, or fewer than two classes are left.
    """
    require_same_model(test.table, train, "--train")
    file = None if label in train.schema.names else labelled
    codes, classes = class_names(named_column(train, label, "--label", file), label)
    usable = read_rows(train, Needs(keys=False)).ok & (codes >= 0)
    shared = _shared(train, test) & usable
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
            f"{len(np.unique(labels))}{why}; give another table"
        )
    return TrainingRows(
        matrix[torch.from_numpy(has_embedding)], torch.from_numpy(labels.astype(np.int64)), classes, int(shared.sum())
    )


def _shared(train: Table, test: MeasuredRows) -> NDArray[np.bool_]:
    """Return which rows of ``train`` hold the bytes of an image that is measured."""
    if "sha256" not in train.schema.names or "sha256" not in test.table.schema.names:
        return np.zeros(train.n_rows, bool)
    measured = test.table.take(test.index, ["sha256"]).column(0).combine_chunks()
    is_shared = pc.is_in(train.read(["sha256"]).column(0), value_set=measured.drop_null())
    return np.asarray(is_shared.to_numpy(), bool)


def judge_by(training: TrainingRows, embedding: Tensor, classes: Sequence[str], *, seed: int) -> Correctness:
    """Predict every row from the rows of another table: by the nearest, by a vote, and by linear classifiers.

    Args:
        training: the rows to learn from.
        embedding: unit vectors, shape (N, D).
        classes: of the N rows; one that ``training`` lacks is always predicted wrongly.
        seed: of the rows that are drawn, where the labels are few or the rows more than ``MOST_ROWS``.

    Raises:
        InputError: if embeddings of the two have another length.
    """
    if embedding.shape[1] != training.embedding.shape[1]:
        raise InputError(
            f"--train: expected embeddings of {embedding.shape[1]} numbers, got {training.embedding.shape[1]}; score "
            "both with one model"
        )
    place = {name: at for at, name in enumerate(training.classes)}
    labels = torch.tensor([place.get(name, -1) for name in classes])
    cosine, index = nearest(embedding, training.embedding, min(VOTERS, len(training.labels)))
    near = training.labels[index]
    right = {NEAREST: (near[:, 0] == labels).numpy(), KNN: (knn_vote(cosine, near) == labels).numpy()}
    n_classes = len(training.classes)
    if n_classes > MOST_CLASSES:
        why = f"{n_classes:,} classes are more than the {MOST_CLASSES:,} that the linear classifier is fitted for"
        return Correctness(right, None, dict.fromkeys((LINEAR, *FEW), why), about=ABOUT)
    generator = torch.Generator().manual_seed(seed)
    every = torch.randperm(len(training.labels), generator=generator)[:MOST_ROWS]
    log_p = _log_probabilities(training, every.sort().values, embedding)
    right[LINEAR] = (log_p.argmax(1) == labels).numpy()
    entropy = -torch.special.xlogy(log_p.exp(), log_p.exp()).sum(1)
    few = {
        name: torch.stack(
            [
                (_log_probabilities(training, _some(training.labels, share, generator), embedding).argmax(1) == labels)
                for _ in range(DRAWS)
            ]
        )
        .double()
        .mean(0)
        .numpy()
        for name, share in FEW.items()
    }
    confidence = log_p.max(1).values.exp().numpy()
    return Correctness(right, entropy.numpy(), {}, confidence=confidence, ranked=few, about=ABOUT)


def _log_probabilities(training: TrainingRows, rows: Tensor, embedding: Tensor) -> Tensor:
    """Return probabilities of each class, shape (N, C), float64, by a linear classifier of rows of ``training``."""
    fitted = fit_linear(training.embedding[rows], training.labels[rows], len(training.classes))
    return torch.cat([fitted.logits(block).double().log_softmax(1) for block in embedding.split(BLOCK)])


def _some(labels: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Return rows drawn at random: a share of each class, and at least one of each."""
    order = torch.randperm(len(labels), generator=generator)
    chosen = []
    for number in labels.unique().tolist():
        members = order[labels[order] == number]
        chosen.append(members[: max(1, round(share * len(members)))])
    return torch.cat(chosen).sort().values
