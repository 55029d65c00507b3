"""SimSiam and VI-SimSiam: two views that predict each other, without negatives.

They differ only in the loss. Both project features to z, predict mu from z, and stop the gradient of the target.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scoring.class_heads import HeadSpec
from scoring.distributions import power_spherical
from scoring.heads import KappaHeadSpec
from trainers.methods.concentration import HEAD_HIDDEN, spread
from trainers.methods.method import Method, Step, Task, needed
from trainers.methods.settings import MOST_WIDTH, Settings, setting

PREDICTORS = ("direct", "mlp")


@dataclass(frozen=True)
class SiameseSettings(Settings):
    """The common settings of the two methods; defaults as in Nakamura et al. 2023, appendix B, where given."""

    latent_dim: int = setting(
        2048, "width M of the space in which views are compared, a sphere", least=2, most=MOST_WIDTH
    )
    hidden_dim: int = setting(512, "width of the hidden layer of projector and predictor", least=1, most=MOST_WIDTH)
    predictor: str = setting("direct", "computed, as in DirectPred, or learned, as in SimSiam", choices=PREDICTORS)
    predictor_every: int = setting(
        10, "steps between updates of a direct predictor; an update takes a second at M = 2048 on a CPU", least=1
    )
    n_small: int = setting(6, "low-resolution views per image", least=0, cached=0)
    small_size: int = setting(96, "side of a low-resolution view, in pixels", least=1, most=MOST_WIDTH, cached=96)


def projector(width: int, hidden_dim: int, latent_dim: int) -> nn.Sequential:
    """Return layers from features (B, D) to latents (B, M): Linear, BN, ReLU, Linear, as in DirectPred."""
    return nn.Sequential(
        nn.Linear(width, hidden_dim), nn.BatchNorm1d(hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, latent_dim)
    )


class MLPPredictor(nn.Sequential):
    """SimSiam's learned bottleneck: Linear(M, hidden), BN, ReLU, Linear(hidden, M)."""

    def __init__(self, latent_dim: int, hidden_dim: int) -> None:
        super().__init__(
            nn.Linear(latent_dim, hidden_dim, bias=False),
            nn.BatchNorm1d(hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, latent_dim),
        )

    def follow(self, z: Tensor) -> None:
        """Called with each batch of z; a learned predictor ignores it."""

    def renew(self) -> None:
        """Recompute the weights; a learned predictor is trained by the optimiser instead."""


class DirectPredictor(nn.Module):
    """A linear predictor computed from the correlation F of z instead of being learned.

    W = Q diag(max(sqrt(e) + eps, 1e-4)) Q^T, where Q and e are F's eigenvectors and eigenvalues (divided by the
    largest), and F is a running mean of z z^T for z of unit length, not centred.

    Source: Nakamura et al. 2023, eq. 23-24, where z lies on the sphere; Tian, Chen & Ganguli 2021, "Understanding
    self-supervised learning dynamics without contrastive pairs" (DirectPred), sec. 4; rho and eps from its authors'
    code. Their z is not normalised, and a momentum copy of the network is the target: without the copy, as here, an F
    of unnormalised z learns nothing (docs/studies/training.md).
    """

    correlation: Tensor
    weight: Tensor
    seen: Tensor

    def __init__(self, latent_dim: int, *, rho: float = 0.3, eps: float = 0.01) -> None:
        super().__init__()
        self.rho, self.eps = rho, eps
        self.register_buffer("correlation", torch.zeros(latent_dim, latent_dim))
        self.register_buffer("weight", torch.eye(latent_dim))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, z: Tensor) -> Tensor:
        """Return the prediction, shape (B, M), from z of the same shape."""
        return z @ self.weight  # the weight is symmetric

    @torch.no_grad()
    def follow(self, z: Tensor) -> None:
        """Update the running correlation with the directions of a batch of z, shape (B, M)."""
        unit = F.normalize(z.detach().float(), dim=1)
        batch = unit.T @ unit / len(unit)
        rho = torch.where(self.seen == 0, 0.0, self.rho)
        self.correlation.mul_(rho).add_(batch * (1 - rho))
        self.seen.add_(1)

    @torch.no_grad()
    def renew(self) -> None:
        """Recompute the weights from the running correlation."""
        values, vectors = torch.linalg.eigh(self.correlation.double())
        share = (values.clamp(min=0) / values[-1].clamp(min=1e-30)).sqrt()
        self.weight.copy_((vectors * (share + self.eps).clamp(min=1e-4)) @ vectors.T)


def simsiam_loss(cosine: Tensor) -> Tensor:
    """Return minus the mean cosine of prediction and target, for cosines of any shape.

    Source: Chen & He 2021, eq. 1-2, over all pairs of a target and another view.
    """
    return -cosine.mean()


def visimsiam_loss(cosine: Tensor, kappa: Tensor, dim: int) -> Tensor:
    """Return the mean negative log-likelihood of the targets divided by M - 1, the dimension of the sphere.

    L = -mean log PS(z; mu, kappa) / (M - 1). The division changes no minimum, but makes one learning rate suit every M:
    gradients of the likelihood grow with kappa, which is of the order of M.

    Args:
        cosine: z.mu of a target without gradient and its prediction, any shape, in [-1, 1].
        kappa: predicted concentrations, same shape, >= 0.
        dim: M, the width of z.

    Source: Nakamura et al. 2023, eq. 33 and algorithm 1.
    """
    return -power_spherical.log_prob_at_cosine(cosine, kappa, dim).mean() / (dim - 1)


def pairs(n_views: int, n_standard: int) -> tuple[list[int], list[int]]:
    """Return the targets and the other views of all (target, other view) pairs; targets are standard views only.

    >>> pairs(3, 2)
    ([0, 0, 1, 1], [1, 2, 0, 2])
    """
    indices = [(i, j) for i in range(n_standard) for j in range(n_views) if i != j]
    return [i for i, _ in indices], [j for _, j in indices]


@lru_cache(maxsize=32)
def _pair_tensors(n_views: int, n_standard: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return ``pairs`` as tensors; cached, since a copy to a GPU waits for its queue."""
    targets, others = pairs(n_views, n_standard)
    with torch.inference_mode(False):
        return torch.tensor(targets, device=device), torch.tensor(others, device=device)


class SimSiam(Method[SiameseSettings]):
    """The baseline without uncertainty."""

    paper = "Chen & He 2021, arXiv:2011.10566"
    Settings = SiameseSettings
    defaults: ClassVar = {"lr": 0.2, "schedule": "cosine"}

    def __init__(self, settings: SiameseSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.n_small, self.small_size = settings.n_small, settings.small_size
        latent, hidden = settings.latent_dim, settings.hidden_dim
        self.projector = projector(task.width, hidden, latent)
        self.predictor = MLPPredictor(latent, hidden) if settings.predictor == "mlp" else DirectPredictor(latent)

    def predict(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return z and mu of every view, unit vectors, each of shape (V, N, M), float32."""
        n_views, n = features.shape[:2]
        z = self.projector(features.flatten(0, 1)).float()
        if self.training:
            self.predictor.follow(z[: self.n_standard * n])
        mu = self.predictor(z).float()
        return F.normalize(z, dim=1).view(n_views, n, -1), F.normalize(mu, dim=1).view(n_views, n, -1)

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the loss over all pairs of a standard view and another view."""
        z, mu = self.predict(features)
        target, other = _pair_tensors(len(features), self.n_standard, features.device)
        cosine = (z[target].detach() * mu[other]).sum(-1)  # (pairs, N)
        measures = {"cosine": cosine.detach().mean(), "spread": spread(z[0].detach())}
        kappa = None if head is None else head(features.flatten(0, 1)).view(features.shape[:2])[other]
        return self.loss(cosine, kappa, z.shape[-1], measures)

    def loss(self, cosine: Tensor, kappa: Tensor | None, dim: int, measures: dict[str, Tensor]) -> Step:
        """Return the loss of this method, with measures, from the cosines of the pairs."""
        return Step(simsiam_loss(cosine), measures)

    def after_step(self, step: int) -> None:
        """Recompute a DirectPred predictor at a fixed interval of steps."""
        if step % self.settings.predictor_every == 0:
            self.predictor.renew()


class VISimSiam(SimSiam):
    """SimSiam as variational inference: kappa is the concentration of the predicted distribution."""

    paper = "Nakamura et al. 2023, arXiv:2203.11437"
    defaults: ClassVar = {}

    @classmethod
    def head(cls, settings: SiameseSettings, size: int, n_classes: int = 2) -> HeadSpec:
        """Return a kappa head scaled for the latent space."""
        return KappaHeadSpec(HEAD_HIDDEN, float(settings.latent_dim - 1))

    def loss(self, cosine: Tensor, kappa: Tensor | None, dim: int, measures: dict[str, Tensor]) -> Step:
        """Return the power spherical likelihood instead of the cosine."""
        kappa = needed(kappa, "a kappa head")
        return Step(visimsiam_loss(cosine, kappa, dim), {**measures, "kappa": kappa.detach().mean()})
