"""Uncertainties that need no training: baselines of the image, of the dataset it is in, and of a probe with labels."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transfer_datasets import Scores

from scoring.metrics.classifier import cross_validate, fit_linear
from scoring.metrics.neighbours import nearest
from scoring.metrics.ranking import entropy
from scoring.relative.learn import LEAST_LABELS
from scoring.search.kmeans import assign, spherical_kmeans

CLUSTERS = range(4, 31)
NEIGHBOURS = 20
ENOUGH = 0.05  # share of labels from which a fit is to learn from them
STRENGTH = 10.0  # inverse penalty of probes: of 1, 10, 100 and 1,000 the best for 5 and 10 % of labels


def centred(embedding: Tensor, mean: Tensor | None = None) -> Tensor:
    """Return unit vectors (N, D) less the mean of the dataset, of unit length again."""
    return F.normalize(embedding - (embedding.mean(0) if mean is None else mean), dim=1)


def dataset_scores(embedding: Tensor) -> Scores:
    """Return what a row's place in the dataset says: distance to the nearest row, and neighbours in other clusters."""
    middle = centred(embedding)
    near = {"nearest, raw": embedding, "nearest, centred": middle}
    scores = {name: 1 - nearest(rows, rows, 1, same=True)[0][:, 0].double().numpy() for name, rows in near.items()}
    return scores | {"other clusters": other_clusters(middle)}


def other_clusters(embedding: Tensor) -> np.ndarray:
    """Return the share of a row's 20 neighbours that are in another cluster, mean over 4 to 30 clusters; (N,)."""
    k = min(NEIGHBOURS, len(embedding) - 1)
    index = nearest(embedding, embedding, k, same=True)[1].numpy()
    rows = embedding.numpy()
    shares = []
    for n_clusters in (n for n in CLUSTERS if n <= len(rows)):
        cluster = assign(rows, spherical_kmeans(rows, n_clusters, seed=n_clusters, sample=len(rows)))[0][:, 0]
        shares.append((cluster[index] != cluster[:, None]).mean(1))
    return np.mean(shares, 0)


def probe_entropy(embedding: Tensor, label: Tensor, labelled: np.ndarray) -> np.ndarray:
    """Return the entropy of a logistic regression that was fitted on the rows given, of every row; (N,), nats."""
    rows = centred(embedding)
    probe = fit_linear(rows[labelled], label[labelled], int(label.max()) + 1, c=STRENGTH)
    return entropy(probe.logits(rows).double().softmax(1).numpy())


def cross_entropy(embedding: Tensor, label: Tensor) -> np.ndarray:
    """Return the entropy of a probe that has all labels except in the row's fold; (N,), nats."""
    return np.asarray(cross_validate(centred(embedding), label).entropy)


def draw(n: int, share: float, seed: int) -> np.ndarray:
    """Return the rows that are given labels, ascending: a share of n, from 5 % on at least as many as a fit takes."""
    least = min(LEAST_LABELS, n // 2) if share >= ENOUGH else 2
    generator = torch.Generator().manual_seed(seed)
    return np.sort(torch.randperm(n, generator=generator)[: max(least, round(share * n))].numpy())
