"""Mean direction mu and concentration kappa of an image, from its features and a head."""

import math

import torch.nn.functional as F
from torch import Tensor, nn

from scoring.head_modules import NormHead
from scoring.heads import KappaHeadSpec, NormHeadSpec
from trainers.methods.method import needed

HEAD_HIDDEN = 512
MOST_KAPPA = 1e6  # maximum for which the densities are tested
SOURCES = ("head", "norm")  # of kappa


def kappa_head(source: str, start: float, latent_dim: int) -> KappaHeadSpec | NormHeadSpec:
    """Return a head for kappa, or a projection whose norm is kappa; untrained, kappa is about ``start``.

    Args:
        source: one of ``SOURCES``.
        start: initial kappa, > 0.
        latent_dim: M, the width of the projection.
    """
    if source == "norm":
        # an untrained linear layer maps features of mean square 1 to outputs of mean square 1/3
        return NormHeadSpec(latent_dim, scale=start / math.sqrt(latent_dim / 3))
    return KappaHeadSpec(HEAD_HIDDEN, scale=start / math.log(2))  # softplus(0) = log 2


def mu_and_kappa(features: Tensor, head: nn.Module | None, projector: nn.Module | None) -> tuple[Tensor, Tensor | None]:
    """Return unit vectors mu (B, M), and kappa (B,) or None without a head, from features (B, D).

    Raises:
        ValueError: if there is neither a projecting head nor a projector.
    """
    if isinstance(head, NormHead):
        projected = head.project(features)
        return F.normalize(projected, dim=1), projected.norm(dim=1)
    projected = needed(projector, "a projector, or a head whose norm is kappa")(features)
    return F.normalize(projected.float(), dim=1), None if head is None else head(features)


def spread(mu: Tensor) -> Tensor:
    """Return the standard deviation of unit vectors (B, M) times sqrt(M): 1 if uniform on the sphere, 0 for a point.

    Source: Chen & He 2021, arXiv:2011.10566, sec. 4.1.
    """
    return mu.std(0).mean() * mu.shape[1] ** 0.5
