"""The verdicts on images of 32 pixels, and how the embedding serves them."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from transfer_datasets import Dataset, Scored, images_of, stamp
from transfer_numbers import Measured, aurocs, share, spearmans
from transfer_scores import centred

from scoring.metrics.neighbours import knn_predict
from scoring.metrics.ranking import entropy

IN_DOMAIN = {"CIFAR-10 test": "cifar10_test", "tiny-imagenet val": "tinyimagenet_val"}
VOTES = "cifar10h_test_0-1999"


def in_domain(data: Path, name: str, scored: Scored, limit: int | None) -> Dataset:
    """Return a set whose classes the shipped heads were trained on; its images are new to them."""
    path = data / f"{IN_DOMAIN[name]}.parquet"
    return scored.dataset(name, f"{stamp(path)} {limit}", lambda: images_of(path, limit=limit))


def neighbour_accuracy(dataset: Dataset) -> dict[str, Measured]:
    """Return the share of rows that their 20 nearest other rows vote right."""
    embeddings = {"raw": dataset.embedding, "centred": centred(dataset.embedding)}
    k = min(20, len(dataset.label) - 1)
    return {
        name: share((knn_predict(rows, rows, dataset.label, k=k, same=True) == dataset.label).numpy())
        for name, rows in embeddings.items()
    }


def votes(data: Path, scores: dict[str, np.ndarray]) -> tuple[dict[str, Measured], dict[str, Measured]]:
    """Return how uncertainties follow annotators' votes on CIFAR-10 test.

    Returns:
        The rank correlation with the entropy of the votes, and the AUROC of annotators disagreeing at all.
    """
    counts = pq.read_table(data / f"{VOTES}.parquet")
    rows = counts["id"].to_numpy()
    is_voted = rows < len(next(iter(scores.values())))
    chosen = np.array(counts["counts"].to_pylist(), float)[is_voted]
    voted = {name: score[rows[is_voted]] for name, score in scores.items()}
    return spearmans(voted, entropy(chosen)), aurocs(voted, (chosen > 0).sum(1) > 1)
