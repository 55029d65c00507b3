"""A linear classifier on embeddings, and its out-of-fold predictions."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.threads import few_threads

BLOCK_NUMBERS = 8_000_000  # logits in memory, 32 MB
SMALL = 2_000_000  # rows x classes below which one thread is faster
MOST_ROWS = 50_000  # maximal training rows of a classifier; more change little


@dataclass(frozen=True)
class LinearClassifier:
    """Class scores x @ weight + bias, for x of shape (N, D), weight (D, C), bias (C,)."""

    weight: Tensor
    bias: Tensor

    def logits(self, rows: Tensor) -> Tensor:
        """Return class scores, shape (N, C)."""
        return rows @ self.weight + self.bias


def fit_linear(
    rows: Tensor, labels: Tensor, n_classes: int, *, c: float = 1.0, steps: int = 200, tolerance: float = 1e-5
) -> LinearClassifier:
    """Fit a multinomial logistic regression by L-BFGS, starting at zero; deterministic.

    It minimises sum_i CE(logits_i, label_i) + |W|^2 / (2 c) over the rows after centring and one common scale that
    gives them a mean squared length of 1; the bias is free.

    Args:
        rows: shape (N, D), float32 or float64.
        labels: shape (N,), int64, in [0, n_classes).
        n_classes: C; a class without rows is never predicted.
        c: inverse strength of the penalty, > 0.
        steps: maximal number of steps.
        tolerance: stop when no entry of the gradient of the mean loss exceeds this.
    """
    mean = rows.mean(0)
    scale = float((rows - mean).square().sum(1).mean().sqrt()) or 1.0
    problem = _Problem((rows - mean) / scale, labels, n_classes, penalty=1 / (c * len(rows)))
    optimizer = torch.optim.LBFGS(
        [problem.weight, problem.bias],
        max_iter=steps,
        tolerance_grad=tolerance,
        tolerance_change=tolerance * 1e-4,
        line_search_fn="strong_wolfe",
    )
    with few_threads(small=len(rows) * max(n_classes, 32) < SMALL):
        optimizer.step(problem.loss)
    final = problem.weight.detach() / scale
    return LinearClassifier(final, (problem.bias.detach() - mean @ final).masked_fill(problem.absent, -torch.inf))


class _Problem:
    """The mean loss of rows (N, D) under a weight (D, C) and bias (C,), and its gradient, block by block."""

    def __init__(self, rows: Tensor, labels: Tensor, n_classes: int, *, penalty: float) -> None:
        self.rows, self.labels, self.penalty = rows, labels, penalty
        self.absent = torch.bincount(labels, minlength=n_classes) == 0
        self.weight = torch.zeros(rows.shape[1], n_classes, dtype=rows.dtype, requires_grad=True)
        self.bias = torch.zeros(n_classes, dtype=rows.dtype, requires_grad=True)
        self.block = max(1, BLOCK_NUMBERS // n_classes)

    @torch.no_grad()
    def loss(self) -> Tensor:
        """Set the gradients and return the loss."""
        n = len(self.rows)
        pull = self.penalty * self.weight
        loss = (self.weight * pull).sum(dtype=torch.float64) / 2
        slope_sum = torch.zeros_like(self.bias)
        for start in range(0, n, self.block):
            x, y = self.rows[start : start + self.block], self.labels[start : start + self.block]
            log_p = torch.addmm(self.bias, x, self.weight).masked_fill_(self.absent, -torch.inf).log_softmax(1)
            loss -= log_p.gather(1, y[:, None]).sum(dtype=torch.float64) / n
            slope = log_p.exp_()
            slope[torch.arange(len(y)), y] -= 1
            pull.addmm_(x.T, slope, alpha=1 / n)
            slope_sum += slope.sum(0) / n
        self.weight.grad, self.bias.grad = pull, slope_sum
        return loss


@dataclass(frozen=True)
class Predictions:
    """Out-of-fold predictions of classifiers.

    Attributes:
        label: shape (N,), int64.
        entropy: of the predicted distribution, nats, shape (N,), float64; higher is less certain.
        confidence: predicted probability of the label, shape (N,), float64, in (0, 1].
    """

    label: Tensor
    entropy: NDArray[np.float64]
    confidence: NDArray[np.float64]


def cross_validate(
    rows: Tensor, labels: Tensor, *, folds: int = 5, seed: int = 0, groups: Tensor | None = None
) -> Predictions:
    """Predict every row by a linear classifier fitted on the other folds; ValueError if ``folds`` is out of range.

    Args:
        rows: embeddings, shape (N, D).
        labels: shape (N,), int64, >= 0.
        folds: from 2 to the number of rows (or groups), stratified by ``spread_folds``.
        seed: of the folds, and of the sample of ``MOST_ROWS`` training rows if there are more.
        groups: shape (N,), int64; rows of one group, such as exact duplicates, share a fold.
    """
    most = len(rows) if groups is None else len(groups.unique())
    if not 2 <= folds <= most:
        raise ValueError(f"folds must be between 2 and {most}, got {folds}")
    fold = spread_folds(labels, folds, seed=seed, groups=groups)
    n_classes = int(labels.max()) + 1
    predicted = torch.zeros(len(rows), dtype=torch.long)
    entropy, confidence = torch.zeros(2, len(rows), dtype=torch.float64)
    size = max(1, BLOCK_NUMBERS // n_classes)
    generator = torch.Generator().manual_seed(seed)
    for number in range(folds):
        train = torch.nonzero(fold != number).flatten()
        if len(train) > MOST_ROWS:
            train = train[torch.randperm(len(train), generator=generator)[:MOST_ROWS].sort().values]
        classifier = fit_linear(rows[train], labels[train], n_classes)
        for at in torch.nonzero(fold == number).flatten().split(size):
            log_p = classifier.logits(rows[at]).double().log_softmax(1)
            best, predicted[at] = log_p.max(1)
            confidence[at] = best.exp()
            entropy[at] = torch.special.entr(log_p.exp()).sum(1)
    return Predictions(predicted, entropy.numpy(), confidence.numpy())


def spread_folds(labels: Tensor, folds: int, *, seed: int, groups: Tensor | None = None) -> Tensor:
    """Return a fold for each row, shape (N,), stratified by class after a shuffle.

    Args:
        labels: shape (N,), int64.
        folds: number of folds, >= 2.
        seed: of the shuffle.
        groups: shape (N,), int64; rows of a group get the fold of its lowest row.
    """
    if groups is not None:
        _, of_row = torch.unique(groups, return_inverse=True)
        lowest = torch.full((int(of_row.max()) + 1,), len(labels))
        lowest.scatter_reduce_(0, of_row, torch.arange(len(labels)), "amin")
        return spread_folds(labels[lowest], folds, seed=seed)[of_row]
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    order = order[labels[order].argsort(stable=True)]  # class by class, shuffled inside
    fold = torch.empty(len(labels), dtype=torch.long)
    fold[order] = torch.arange(len(labels)) % folds
    return fold
