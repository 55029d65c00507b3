"""Retrieval: what stands among the rows nearest to a row, beyond the first of them."""

import numpy as np
import torch
from torch import Tensor

from curate.evaluation.measures import Floats, Shape
from scoring.metrics.retrieval import average_precision_at_r

RECALLS = (2, 4)  # next to Recall@1
MAP = "mAP@R"
MOST_RANKED = 10**7  # rows times the largest class': beyond that it takes minutes
SHAPES = {
    **{
        f"Recall@{k}": Shape(f"Recall@{k}", "higher", f"share of rows with their label among their {k} nearest others")
        for k in RECALLS
    },
    MAP: Shape(
        MAP, "higher", "mean over rows of the average precision among the R nearest others, R having the row's label"
    ),
}


def ranked(embedding: Tensor, labels: Tensor, index: Tensor) -> tuple[dict[str, Floats], dict[str, str]]:
    """Return the measures of ``SHAPES`` for every row, and why one is missing.

    Args:
        embedding: unit vectors, shape (N, D).
        labels: shape (N,), int64, from 0.
        index: of the nearest other rows, shape (N, K); a recall beyond K equals the recall at K.

    Returns:
        Name -> shape (N,), in [0, 1]; a row that is alone in its class has 0. And name -> reason.
    """
    hits = (labels[index] == labels[:, None]).numpy()
    measures: dict[str, Floats] = {f"Recall@{k}": np.asarray(hits[:, :k].any(1), np.float64) for k in RECALLS}
    largest = int(torch.bincount(labels).max())
    if len(labels) * largest > MOST_RANKED:
        why = f"{len(labels):,} rows with {largest:,} in a class would take minutes; measure fewer (--sample)"
        return measures, {MAP: why}
    return measures | {MAP: np.nan_to_num(average_precision_at_r(embedding, labels))}, {}
