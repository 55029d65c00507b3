"""Retrieval measures over the K nearest rows."""

import numpy as np
import torch
from torch import Tensor

from curate.evaluation.measures import Shape
from curate.statistics.retrieval import average_precision_at_r
from scoring.arrays import Floats

RECALLS = (2, 4)  # in addition to Recall@1
MAP = "mAP@R"
MOST_RANKED = 10**7  # maximum of rows x largest class size: beyond, it takes minutes
SHAPES = {
    **{
        f"Recall@{k}": Shape(
            f"Recall@{k}",
            "higher",
            f"share of rows with their label among their {k} nearest others; baseline: {k} others at random",
        )
        for k in RECALLS
    },
    MAP: Shape(
        MAP,
        "higher",
        "mean over rows of the average precision among the R nearest others, R having the row's label; "
        "baseline: others in random order",
    ),
}


def ranked(embedding: Tensor, labels: Tensor, index: Tensor, rows: Tensor) -> tuple[dict[str, Floats], dict[str, str]]:
    """Return the measures of ``SHAPES`` for M of N rows by name, and why others are missing, by name.

    Each has shape (M,), in [0, 1]; 0 for a row that is alone in its class.

    Args:
        embedding: unit vectors, shape (N, D).
        labels: shape (N,), int64, from 0.
        index: of the nearest other rows, shape (M, K); a recall beyond K equals the recall at K.
        rows: the M rows, shape (M,), int64; mAP@R is only of all N.
    """
    hits = (labels[index] == labels[rows, None]).numpy()
    measures: dict[str, Floats] = {f"Recall@{k}": np.asarray(hits[:, :k].any(1), np.float64) for k in RECALLS}
    largest = int(torch.bincount(labels).max())
    if len(rows) < len(labels) or len(labels) * largest > MOST_RANKED:
        why = f"{len(labels):,} rows with {largest:,} in a class would take minutes; measure fewer rows (--sample)"
        return measures, {MAP: why}
    return measures | {MAP: np.nan_to_num(average_precision_at_r(embedding, labels))}, {}


def at_random(labels: Tensor) -> dict[str, Floats]:
    """Return the expected measures of every row if the other rows were in random order.

    With n others, R of which have its label: 1 - (1 - R/n) (1 - R/(n - 1)) ... over k factors, and for mAP@R
    p ((1 - q) H_R / R + q), with p = R/n, q = (R - 1)/(n - 1) and H_R the R-th harmonic number.

    Args:
        labels: shape (N,), int64, from 0, N >= 3.

    Returns:
        "Recall@1", the names in ``SHAPES``, each of shape (N,).
    """
    others = len(labels) - 1
    same = np.bincount(labels.numpy())[labels.numpy()] - 1.0  # (N,)
    recalls = {
        f"Recall@{k}": 1 - np.prod([np.maximum(others - same - j, 0) / max(others - j, 1) for j in range(k)], 0)
        for k in (1, *RECALLS)
    }
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, len(labels)))])[same.astype(np.int64)]
    second = (same - 1) / (others - 1)
    precision = same / others * ((1 - second) * harmonic / np.maximum(same, 1) + second)
    return recalls | {MAP: np.where(same > 0, precision, 0.0)}
