"""Probes trained on one training set and tested on held-out rows."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.metrics.classifier import fit_linear, spread_folds
from scoring.metrics.duplicates import group_duplicates
from scoring.metrics.neighbours import knn_predict

LINEAR, KNN, NETWORK = "linear", "kNN", "network"
VOTERS = 20
MOST_CLASSES = 2000  # maximum classes for the linear probe
STRENGTHS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # candidate inverse penalties; evaluate uses 1, rounds 16
FOLDS = 3
CHOSEN_ON = 3000  # maximum training rows for selecting the penalty
TOLERANCE = 1e-4  # gradient norm of the mean loss at which a fit stops


def right_by_neighbours(
    train: NDArray[np.float32], labels: NDArray[np.int64], test: NDArray[np.float32], truth: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which test rows the vote of the 20 nearest training rows predicts correctly, shape (T,).

    Args:
        train: unit vectors, shape (L, D).
        labels: of the training rows, shape (L,).
        test: unit vectors, shape (T, D).
        truth: their classes, shape (T,).
    """
    predicted = knn_predict(
        torch.from_numpy(test), torch.from_numpy(train), torch.from_numpy(labels), k=min(VOTERS, len(train))
    )
    return np.asarray(predicted.numpy() == truth)


def right_by_linear(
    train: NDArray[np.float32],
    labels: NDArray[np.int64],
    test: NDArray[np.float32],
    truth: NDArray[np.int64],
    n_classes: int,
    *,
    seed: int,
) -> tuple[NDArray[np.bool_], float]:
    """Return which test rows a linear probe predicts correctly, shape (T,), and its inverse penalty.

    The penalty is selected by cross-validation on the training set with its own labels, so a set with label errors may
    get a stronger one.

    Args:
        train: embeddings, shape (L, D).
        labels: of the training rows, shape (L,).
        test: embeddings, shape (T, D).
        truth: their classes, shape (T,).
        n_classes: C.
        seed: of the folds.
    """
    rows, target = torch.from_numpy(train), torch.from_numpy(labels)
    c = chosen_strength(rows, target, n_classes, seed=seed)
    fitted = fit_linear(rows, target, n_classes, c=c, tolerance=TOLERANCE)
    predicted = [fitted.logits(part).argmax(1) for part in torch.from_numpy(test).split(4096)]
    return np.asarray(torch.cat(predicted).numpy() == truth), c


def chosen_strength(rows: Tensor, labels: Tensor, n_classes: int, *, seed: int) -> float:
    """Return the inverse penalty with the fewest cross-validation errors; a default one without folds.

    Interpolated by a parabola through the lowest three values in log c: a choice on a grid would jump, and add noise to
    the comparison of equal training sets.

    Args:
        rows: of a training set, shape (L, D).
        labels: of the training rows, shape (L,).
        n_classes: C.
        seed: of the folds, and of the sample if there are more than 3,000 rows.
    """
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:CHOSEN_ON]
    rows, labels = rows[order], labels[order]
    same = group_duplicates(rows)
    fold = spread_folds(labels, FOLDS, seed=seed, groups=None if same is None else same.of_row)
    loss, n = np.zeros(len(STRENGTHS)), 0
    for number in range(FOLDS):
        train, held = fold != number, fold == number
        held = held & torch.isin(labels, labels[train])
        if len(labels[train].unique()) < 2 or not held.any():
            continue
        n += int(held.sum())
        for place, c in enumerate(STRENGTHS):
            fitted = fit_linear(rows[train], labels[train], n_classes, c=c, tolerance=TOLERANCE)
            loss[place] += int((fitted.logits(rows[held]).argmax(1) != labels[held]).sum())
    return float(np.exp(least(np.log(STRENGTHS), loss))) if n else STRENGTHS[len(STRENGTHS) // 2]


def least(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the minimum of the parabola through the lowest point and its neighbours; an end point stays.

    Args:
        x: evenly spaced, ascending, shape (K,).
        y: finite, shape (K,).

    >>> least(np.array([0.0, 1.0, 2.0]), np.array([1.0, 0.0, 1.0]))
    1.0
    """
    index = int(y.argmin())
    if index in (0, len(y) - 1):
        return float(x[index])
    before, lowest, after = y[index - 1 : index + 2]
    bend = before - 2 * lowest + after
    return float(x[index] + (x[1] - x[0]) * (before - after) / (2 * bend)) if bend > 0 else float(x[index])
