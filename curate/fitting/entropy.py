"""How undecided a classifier that saw the labels is about each row of a dataset."""

import numpy as np
import torch
from numpy.typing import NDArray

from curate.tables.dataset import Dataset
from scoring.metrics.classifier import cross_validate, fit_linear
from scoring.metrics.duplicates import group_duplicates
from scoring.relative.propagated import KnownLabels

FOLDS = 5
MOST_CLASSES = 2_000  # for the classifier, whose cost grows with them
BLOCK = 8_192  # rows at a time


def class_entropy(dataset: Dataset, labels: KnownLabels, *, seed: int) -> NDArray[np.float32] | None:
    """Return the entropy of the classes that a linear classifier expects of each row, nats, shape (M,).

    A labelled row is judged by classifiers of the other folds, in which copies of it are not either; any other row by
    one of all labels. None where the labels are of too many classes, or too few rows differ.

    Args:
        dataset: M rows.
        labels: of some of them.
        seed: of the folds.
    """
    vectors = _units(dataset.embeddings[labels.rows])
    codes = torch.from_numpy(labels.codes)
    groups = group_duplicates(vectors)
    n_different = len(vectors) if groups is None else len(groups.first)
    if len(labels.classes) > MOST_CLASSES or n_different < FOLDS:
        return None
    together = None if groups is None else groups.of_row
    entropy = np.empty(len(dataset), np.float32)
    classifier = fit_linear(vectors, codes, len(labels.classes))
    for start in range(0, len(dataset), BLOCK):
        logits = classifier.logits(_units(dataset.embeddings[start : start + BLOCK])).double()
        entropy[start : start + BLOCK] = torch.special.entr(logits.softmax(1)).sum(1).numpy()
    entropy[labels.rows] = cross_validate(vectors, codes, folds=FOLDS, seed=seed, groups=together).entropy
    return entropy


def _units(embeddings: NDArray) -> torch.Tensor:
    rows = torch.from_numpy(np.asarray(embeddings, np.float32))
    return torch.nn.functional.normalize(rows)
