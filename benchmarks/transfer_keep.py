"""Accuracy of a classifier trained on the most certain rows, compared with as many random rows."""

import numpy as np
import torch
from torch import Tensor
from transfer_datasets import Dataset, Scores
from transfer_junk import CLEAN
from transfer_numbers import REPEATS, Measured
from transfer_scores import STRENGTH, centred

from scoring.metrics.classifier import fit_linear
from scoring.search.kmeans import assign, spherical_kmeans

KEEP = (0.7, 0.3, 0.1)
SPLITS = 10
TEST = 0.3  # share of the clean rows that the classifier is tried on
WIDER = 2.262 / 1.96 * (SPLITS / (SPLITS - 1)) ** 0.5  # a bootstrap of so few is too narrow by this
CLUSTERS = 20
OVERALL = "overall"


def groups_of(dataset: Dataset) -> dict[str, np.ndarray]:
    """Return within what the most certain are kept: nothing, the classes, and clusters; shape (N,) each."""
    rows = centred(dataset.embedding).numpy()
    middle = spherical_kmeans(rows, min(CLUSTERS, len(rows)), seed=0, sample=len(rows))
    return {
        OVERALL: np.zeros(len(rows), int),
        "per class": dataset.label.numpy(),
        "per cluster": assign(rows, middle)[0][:, 0],
    }


def keep(score: np.ndarray, group: np.ndarray, pool: np.ndarray, n: int) -> np.ndarray:
    """Return the n most certain rows of the pool: the same share of every group, the lowest ranks in them first."""
    place = np.empty(len(pool))
    for each in np.unique(group[pool]):
        inside = np.flatnonzero(group[pool] == each)
        place[inside[np.argsort(score[pool][inside], kind="stable")]] = (np.arange(len(inside)) + 0.5) / len(inside)
    return pool[np.argsort(place, kind="stable")[:n]]


def accuracy(rows: Tensor, label: Tensor, known: np.ndarray, test: np.ndarray) -> float:
    """Return the share of test rows that a logistic regression on the known ones predicts."""
    probe = fit_linear(rows[known], label[known], int(label.max()) + 1, c=STRENGTH, tolerance=1e-3)
    return float((probe.logits(rows[test]).argmax(1) == label[test]).double().mean())


def differences(dataset: Dataset, scores: Scores, in_groups: Scores) -> dict[str, dict[str, Measured]]:
    """Return "kept, way" -> score -> accuracy less the accuracy of as many random rows, paired over splits.

    Args:
        dataset: N rows.
        scores: by which the most certain of all rows are kept, shape (N,) each.
        in_groups: by which, in addition, the same share of every class or cluster is kept.

    Intervals are over splits, which share rows: somewhat narrow.
    """
    rows, label, groups = shortened(centred(dataset.embedding)), dataset.label, groups_of(dataset)
    clean = np.flatnonzero(dataset.kind == CLEAN) if CLEAN in dataset.kind else np.arange(len(label))
    gains: dict[tuple[str, str], list[float]] = {}
    for split in range(SPLITS):
        draw = np.random.default_rng(split)
        test = draw.permutation(clean)[: round(TEST * len(clean))]
        pool = np.setdiff1d(np.arange(len(label)), test)
        for part in KEEP:
            n = round(part * len(pool))
            chance = accuracy(rows, label, draw.permutation(pool)[:n], test)
            gains.setdefault((f"{part:.0%}, random", "accuracy"), []).append(chance)
            for way, group in groups.items():
                for name, score in (scores | in_groups if way == OVERALL else in_groups).items():
                    reached = accuracy(rows, label, keep(score, group, pool, n), test)
                    gains.setdefault((f"{part:.0%}, {way}", name), []).append(reached - chance)
    out: dict[str, dict[str, Measured]] = {}
    for (column, name), values in gains.items():
        out.setdefault(column, {})[name] = paired(np.array(values))
    return out


def paired(values: np.ndarray) -> Measured:
    """Return the mean of the numbers of S splits, and of resamples of them, spread as Student's t of S - 1 asks."""
    n = len(values)
    means = values[np.random.default_rng(0).integers(0, n, (REPEATS, n))].mean(1)
    return Measured(float(values.mean()), values.mean() + (means - values.mean()) * WIDER)


def shortened(rows: Tensor) -> Tensor:
    """Return N rows turned into at most N - 1 numbers each, all products as they were: a probe is fitted sooner."""
    if rows.shape[1] < len(rows):
        return rows
    u, s, _ = torch.linalg.svd(rows.double(), full_matrices=False)
    return (u * s).float()
