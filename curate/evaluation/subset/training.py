"""Probes, and small networks on images, trained on one training set and tested on held-out rows."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curate.evaluation.options import EvaluateOptions
from curate.evaluation.rows import squares
from curate.evaluation.subset.pool import SubsetPool
from curate.evaluation.subset.trained import Train
from curate.probes.network import SIDE, predicted, thumbnail, train_network
from curate.tables.images import holds_paths, require_images
from scoring.errors import InputError
from scoring.metrics.classifier import fit_linear, spread_folds
from scoring.metrics.duplicates import group_duplicates
from scoring.metrics.neighbours import knn_predict
from scoring.runner import select_device

LINEAR, KNN, NETWORK = "linear", "kNN", "network"
VOTERS = 20
MOST_CLASSES = 2000  # maximum classes for the linear probe
STRENGTHS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # candidate inverse penalties; evaluate uses 1, rounds 16
FOLDS = 3
CHOSEN_ON = 3000  # maximum training rows for selecting the penalty
TOLERANCE = 1e-4  # gradient norm of the mean loss at which a fit stops
MOST = 4 * SIDE  # side in pixels before the final resize


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


@dataclass(frozen=True)
class PixelSquares:
    """Central squares, uint8 (M, 3, 32, 32), of the M readable rows ``at`` of a pool, ascending."""

    at: NDArray[np.int64]
    pixels: torch.Tensor


def read_pictures(pool: SubsetPool, *, source: str | None) -> PixelSquares:
    """Read the images of a pool again, from each of its tables; uses 3 kB of memory per row.

    Raises:
        InputError: if there are no image paths, or no image can be read.
    """
    pixels = np.zeros((len(pool.row), 3, SIDE, SIDE), np.uint8)
    is_read = np.zeros(len(pool.row), bool)
    for number, table in enumerate(pool.tables):
        paths_of = source if number == 0 or not holds_paths(table) else None  # a test table may have other paths
        require_images(table, paths_of)
        places = np.flatnonzero(pool.source == number)
        place = dict(zip(pool.row[places].tolist(), places.tolist(), strict=True))
        rows = np.sort(pool.row[places]).tolist()
        for row, square in squares(table, rows, most=MOST, source=paths_of):
            pixels[place[row]] = thumbnail(square)
            is_read[place[row]] = True
    if not is_read.any():
        raise InputError("--network: expected images that can be read, got none; pass what was scored as --source")
    at = np.flatnonzero(is_read)
    return PixelSquares(at, torch.from_numpy(pixels[at]))


def trainer(pool: SubsetPool, images: PixelSquares, options: EvaluateOptions) -> Train:
    """Return a function that trains a network on rows with a seed, and returns which test rows it gets right.

    Args:
        pool: rows with readable images, labels and test rows.
        images: of the same rows, in the same order.
        options: steps, seed and device.
    """
    device = str(select_device(options.device))
    tests = pool.tests
    options.announce(f"a small network of {options.network:,} steps for each side and seed, on {device}")

    def train(rows: NDArray[np.int64], number: int) -> NDArray[np.bool_]:
        model = train_network(
            images.pixels[rows],
            pool.label[rows],
            len(pool.classes),
            seed=options.seed + number,
            steps=options.network,
            device=device,
        )
        return np.asarray(predicted(model, images.pixels[tests], device) == pool.label[tests])

    return train
