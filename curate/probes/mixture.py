"""Clustering of embeddings without labels by a Gaussian mixture."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scoring.search.kmeans import assign, spherical_kmeans
from scoring.threads import few_threads

DIMENSIONS = 32  # maximal number of principal components
FLOOR = 1e-4  # added to every variance, as a share of the rows' total variance
STEPS, TOLERANCE = 100, 1e-3  # of EM: at most, and the gain of the mean log-likelihood that ends it
START_STEPS = 10  # of the k-means that each fit starts from
SMALL = 10**8  # multiplications per step below which one thread is faster


@dataclass(frozen=True)
class Mixture:
    """K Gaussians with full covariance over the first E principal components.

    Attributes:
        centre: mean of the training rows, shape (D,).
        axes: principal components, scaled so that those rows have a total variance of 1, shape (D, E).
        log_weight: of each Gaussian, shape (K,).
        mean: shape (K, E).
        precision: Q with Q Q^T the inverse of the covariance, shape (K, E, E).
    """

    centre: Tensor
    axes: Tensor
    log_weight: Tensor
    mean: Tensor
    precision: Tensor

    def clusters(self, embedding: Tensor) -> Tensor:
        """Return the most likely Gaussian of each row, shape (N,), int64."""
        return self.log_likelihoods((embedding.double() - self.centre) @ self.axes).argmax(1)

    def log_likelihoods(self, rows: Tensor) -> Tensor:
        """Return log of weight times density, up to a constant, shape (N, K), for reduced rows (N, E)."""
        columns = []
        for log_weight, mean, precision in zip(self.log_weight, self.mean, self.precision, strict=True):
            white = (rows - mean) @ precision
            columns.append(log_weight + precision.diagonal().log().sum() - white.square().sum(1) / 2)
        return torch.stack(columns, 1)


def fit_mixture(embedding: Tensor, k: int, *, starts: int, seed: int) -> Mixture:
    """Fit a mixture of k Gaussians with full covariance by EM; return the most likely of several fits.

    Each fit starts from spherical k-means with another seed. Means and covariances are in at most 32 principal
    components.

    Args:
        embedding: shape (N, D), float32, N >= k.
        k: number of Gaussians.
        starts: number of fits.
        seed: of the first start.

    Source: Bizeul et al. 2024 ("SimVAE"), arXiv:2402.01399, sec. A.7.5: full covariance, as many Gaussians as classes,
    the best of 200 starts; the principal components and fewer starts are ours.
    """
    centre = embedding.double().mean(0)
    rows = embedding.double() - centre
    size = max(1, min(DIMENSIONS, len(rows) - 1, rows.shape[1]))
    axes = torch.linalg.eigh(rows.T @ rows / len(rows)).eigenvectors.flip(1)[:, :size]
    axes = axes / (float(rows.square().sum(1).mean().sqrt()) or 1.0)
    reduced, best, most = rows @ axes, None, -np.inf
    with few_threads(small=len(rows) * k * size**2 < SMALL):
        for start in range(seed, seed + starts):
            units = embedding.numpy()
            heads = spherical_kmeans(units, k, seed=start, iterations=START_STEPS, sample=len(units))
            share = torch.nn.functional.one_hot(torch.from_numpy(assign(units, heads)[0][:, 0].clip(0)).long(), k)
            fitted, likelihood = _em(reduced, share.double(), centre, axes)
            if best is None or likelihood > most:
                best, most = fitted, likelihood
    if best is None:
        raise ValueError(f"starts must be >= 1, got {starts}")
    return best


def _em(rows: Tensor, share: Tensor, centre: Tensor, axes: Tensor) -> tuple[Mixture, float]:
    """Return the EM fit from responsibilities (N, K), and its mean log-likelihood."""
    before = -np.inf
    for _ in range(STEPS):
        fitted = Mixture(centre, axes, *_maximised(rows, share))
        joint = fitted.log_likelihoods(rows)
        total = joint.logsumexp(1, keepdim=True)
        share, likelihood = (joint - total).exp(), float(total.mean())
        if likelihood - before < TOLERANCE:
            break
        before = likelihood
    return fitted, likelihood


def _maximised(rows: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the maximum likelihood log weights, means and precisions for rows (N, E) with responsibilities (N, K)."""
    count = share.sum(0) + 10 * torch.finfo(torch.float64).eps
    mean = share.T @ rows / count[:, None]
    floor = FLOOR * torch.eye(rows.shape[1], dtype=torch.float64)
    precision = []
    for part, middle, n in zip(share.T, mean, count, strict=True):
        off = rows - middle
        lower = torch.linalg.cholesky((off * part[:, None]).T @ off / n + floor)
        precision.append(
            torch.linalg.solve_triangular(lower, torch.eye(len(lower), dtype=torch.float64), upper=False).T
        )
    return (count / len(rows)).log(), mean, torch.stack(precision)
