"""Label propagation: labels of some rows spread over the neighbour graph."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.metrics.resampling import Interval
from scoring.relative.neighbours import Near

OTHER = "other_class"  # the signal: probability that a row and its nearest have different classes
ARMS = 10  # number of neighbours in the graph
SHARP = 10.0  # weight of a neighbour: exp(SHARP cosine)
KEPT = 0.8  # alpha: weight of the neighbours in propagation
STEPS = 30
PRIOR = 0.1  # weight of the prototypes' prediction relative to a label
GUESS_SHARPNESS = 20.0  # inverse temperature of that prediction
BLOCK = 2048

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class KnownLabels:
    """Classes of some rows of a dataset.

    Attributes:
        rows: indices, shape (L,), ascending.
        codes: indices into ``classes``, shape (L,).
        classes: names.
    """

    rows: NDArray[np.int64]
    codes: NDArray[np.int64]
    classes: tuple[str, ...]

    def among(self, rows: NDArray[np.int64]) -> "KnownLabels":
        """Return the labels of the rows ``rows`` (M,), ascending, as indices into these."""
        inside = np.isin(self.rows, rows)
        return KnownLabels(np.searchsorted(rows, self.rows[inside]), self.codes[inside], self.classes)


@dataclass(frozen=True)
class Learned:
    """Accuracy with labels: how well a score finds labelled rows whose nearest labelled row has another class.

    Attributes:
        rows: number of labelled rows.
        classes: number of their classes.
        auroc: of the fit with labels, on held-out labelled rows, with its 95 % interval.
        without: of the fit without labels, on the same rows.
        gain: ``auroc`` minus ``without``.
        inside: of the fit with labels on its training rows; optimistic.
        weight: of the learned signal; signals without labels have weight 1 together.
        better: whether the fit uses the labels.
    """

    rows: int
    classes: int
    auroc: Interval
    without: Interval
    gain: Interval
    inside: Interval
    weight: float
    better: bool


@dataclass(frozen=True)
class Propagated:
    """Class probabilities of the references of a fit, and of rows near them.

    Attributes:
        classes: names of the C classes.
        class_means: mean direction of the labelled rows of each class, shape (C, D), float32; zero without rows.
        probabilities: class probabilities of each reference, shape (R, C), float16.
    """

    classes: tuple[str, ...]
    class_means: Floats
    probabilities: NDArray[np.float16]

    @property
    def n_bytes(self) -> int:
        """Size of the stored arrays in bytes."""
        return self.class_means.nbytes + self.probabilities.nbytes

    def other_class(self, units: Floats, near: Near) -> NDArray[np.float64]:
        """Return the probability that rows and their nearest reference differ in class, shape (N,), in [0, 1]."""
        return other_class(near, self.probabilities, guessed(units, self.class_means))


def other_class(near: Near, probabilities: NDArray[np.floating], guess: Floats) -> NDArray[np.float64]:
    """Return 1 - sum_c p_c q_c, p of the row from neighbours and prototypes, q of its nearest row; 1 without neighbour.

    Args:
        near: neighbours of N rows among R others.
        probabilities: class probabilities of the others, shape (R, C).
        guess: class probabilities of the rows by the prototypes, shape (N, C).
    """
    index, exists = near.index[:, :ARMS].clip(0), near.exists[:, :ARMS]
    weight = np.where(exists, np.exp(SHARP * near.cosine[:, :ARMS].clip(0)), 0)
    weight /= np.maximum(weight.sum(1, keepdims=True), 1e-12)
    differ = np.ones(len(index))
    for start in range(0, len(index), BLOCK):
        block = slice(start, start + BLOCK)
        around = probabilities[index[block]].astype(np.float32)  # (B, 10, C)
        of_row = KEPT * np.einsum("nk,nkc->nc", weight[block], around) + (1 - KEPT) * PRIOR * guess[block]
        of_row /= np.maximum(of_row.sum(1, keepdims=True), 1e-12)
        differ[block] = 1 - (of_row * around[:, 0]).sum(1)
    return np.where(exists[:, 0], differ, 1).clip(0, 1)


def prototypes(units: Floats, rows: NDArray[np.int64], codes: NDArray[np.int64], n_classes: int) -> Floats:
    """Return the mean direction of the labelled rows of each class, shape (C, D); zero without rows."""
    sums = np.zeros((n_classes, units.shape[1]), np.float32)
    np.add.at(sums, codes, units[rows])
    return sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)


def guessed(units: Floats, class_means: Floats) -> Floats:
    """Return class probabilities from cosines to prototypes, shape (N, C); 0 for a class without prototype."""
    known = class_means.any(1)
    probabilities = np.zeros((len(units), len(class_means)), np.float32)
    for start in range(0, len(units), BLOCK):
        part = units[start : start + BLOCK] @ class_means[known].T * GUESS_SHARPNESS
        part = np.exp(part - part.max(1, keepdims=True))
        probabilities[start : start + BLOCK, known] = part / part.sum(1, keepdims=True)
    return probabilities


def spread(graph: Tensor, seeds: Floats) -> Floats:
    """Return class probabilities of each row of a dataset, shape (N, C), each of sum 1.

    Args:
        graph: see ``graph_of``.
        seeds: initial class probabilities of each row, shape (N, C).

    Source: Zhou et al. 2003, "Learning with local and global consistency", sec. 2, 30 steps with alpha = .8.
    """
    start = torch.from_numpy(seeds)
    probabilities = start
    for _ in range(STEPS):
        probabilities = KEPT * (graph @ probabilities) + (1 - KEPT) * start
    return (probabilities / probabilities.sum(1, keepdim=True).clamp(min=1e-12)).numpy()


def graph_of(near: Near) -> Tensor:
    """Return the symmetric neighbour graph D^-1/2 W D^-1/2, shape (N, N), sparse, float32."""
    index, exists = near.index[:, :ARMS], near.exists[:, :ARMS]
    n = len(index)
    row, _ = np.nonzero(exists)
    weight = np.exp(SHARP * near.cosine[:, :ARMS][exists].clip(0)).astype(np.float32)
    ends = torch.from_numpy(np.stack([np.append(row, index[exists]), np.append(index[exists], row)]))
    both = torch.sparse_coo_tensor(
        ends, torch.from_numpy(np.tile(weight, 2)), (n, n), check_invariants=False
    ).coalesce()
    at, value = both.indices(), both.values()
    degree = torch.zeros(n).index_add_(0, at[0], value).clamp(min=1e-12)
    scaled = value / (degree[at[0]] * degree[at[1]]).sqrt()
    return torch.sparse_coo_tensor(at, scaled, (n, n), is_coalesced=True, check_invariants=False)
