"""How good an embedding is on classes that it never saw, and what its length says of an image."""

import numpy as np
import torch
import torch.nn.functional as F
from metric_data import Worse
from numpy.typing import NDArray
from torch import Tensor

from curate.statistics.retrieval import average_precision_at_r, contingency, normalized_mutual_information
from scoring.metrics.neighbours import nearest
from scoring.metrics.ranking import r_auroc, spearman
from scoring.search.kmeans import assign, spherical_kmeans

BLOCK = 1024
FEWEST = 10  # images for a rank correlation


def retrieval(vectors: Tensor, labels: Tensor, *, seed: int) -> dict[str, float]:
    """Return R@1, R@2, R@4, mAP@R and NMI by cosine, and R@1 by Euclidean distance of the vectors as they are.

    Args:
        vectors: shape (N, E), of any length.
        labels: shape (N,), int64.
        seed: of the clusters, as many as classes.
    """
    units = F.normalize(vectors, dim=1)
    has_label = labels[nearest(units, units, 4, same=True)[1]] == labels[:, None]
    recall = (has_label.cumsum(1) > 0)[:, [0, 1, 3]].double().mean(0).tolist()
    n_classes = len(torch.unique(labels))
    centroids = spherical_kmeans(units.numpy(), n_classes, seed=seed, iterations=20)
    clusters = assign(units.numpy(), centroids)[0][:, 0]
    return {
        **dict(zip(("R@1", "R@2", "R@4"), recall, strict=True)),
        "mAP@R": float(np.nanmean(average_precision_at_r(units, labels))),
        "NMI": normalized_mutual_information(contingency(clusters, labels.numpy())),
        "R@1, L2": euclidean_recall(vectors, labels),
    }


def euclidean_recall(vectors: Tensor, labels: Tensor) -> float:
    """Return the share of rows whose nearest other row by Euclidean distance has their label."""
    right = 0
    for start in range(0, len(vectors), BLOCK):
        block = vectors[start : start + BLOCK]
        far = torch.cdist(block, vectors)
        far[torch.arange(len(block)), start + torch.arange(len(block))] = torch.inf
        right += int((labels[far.argmin(1)] == labels[start : start + BLOCK]).sum())
    return right / len(vectors)


def certainty(
    vectors: Tensor, labels: Tensor, lengths: dict[str, Tensor], worse: Worse, rows: Tensor
) -> dict[str, float]:
    """Return what the length of an embedding shows.

    Args:
        vectors: of the images held out, shape (N, E).
        labels: shape (N,).
        lengths: "" -> of the images that have corrupted copies, and kind of copy -> of these, each of shape (W,).
        worse: the copies; of the rows in ``rows`` alone.
        rows: which of the W images are held out, shape (W,), bool.

    Returns:
        ``R-AUROC``; for each kind of copy the rank correlation of its length with how much worse it is (-1 is best),
        and how often it is shorter than its image's; for each measure of quality the rank correlation with the
        lengths of the images.
    """
    kept = rows.numpy()
    measures = {"R-AUROC": r_auroc(vectors.norm(dim=1).double().numpy(), F.normalize(vectors, dim=1), labels)}
    plain = lengths[""][rows].double().numpy()
    for kind, strength in worse.strength.items():
        corrupted = lengths[kind][rows].double().numpy()
        measures[f"{kind}, Spearman"] = spearman(corrupted, strength[kept])
        measures[f"{kind}, shorter"] = float((corrupted < plain).mean())
    for measure, values in worse.quality.items():
        measures[f"quality {measure}"] = _correlation(plain, values[kept])
    return measures


def _correlation(lengths: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    is_known = ~np.isnan(values)
    if is_known.sum() < FEWEST or len(np.unique(values[is_known])) < 2:
        return float("nan")
    return spearman(lengths[is_known], values[is_known])
