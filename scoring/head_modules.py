"""The modules of heads: from features to columns, in float32 at any precision of the backbone."""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class KappaHead(nn.Module):
    """Two layers with batch normalisation in between: features (N, D) -> kappa (N,), >= 0, higher is more certain.

    Source: Nakamura et al. 2023, appendix B: Linear(D, 512), BN, ReLU, Linear(512, 1), softplus.
    """

    def __init__(self, width: int, hidden: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.hidden = nn.Linear(width, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Return kappa, shape (N,), in float32 at any precision of the backbone."""
        hidden = F.relu(self.norm(self.hidden(features.float())))
        return self.scale * F.softplus(self.out(hidden)).squeeze(1)


class NormHead(nn.Module):
    """A linear map e = W f with direction mu and length kappa; features (N, D) -> kappa (N,), >= 0.

    Source: Kirchhof et al. 2023 (MCInfoNCE), sec. 4.3 and appendix C: the norm of the embedding is the concentration.
    """

    def __init__(self, width: int, dim: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.out = nn.Linear(width, dim, bias=False)

    def project(self, features: Tensor) -> Tensor:
        """Return e, shape (N, dim), float32."""
        return self.scale * self.out(features.float())

    def forward(self, features: Tensor) -> Tensor:
        """Return kappa, the length of e, shape (N,)."""
        return self.project(features).norm(dim=1)


class UncertaintyHead(nn.Module):
    """A multi-layer perceptron: features (N, D) -> uncertainty (N,), > 0; only its order matters.

    Source: Kirchhof et al. 2024 (Pretrained Visual Uncertainties), sec. 3.2: hidden layers of 512 with LeakyReLU,
    then softplus and 1e-6, which keeps it above 0.
    """

    def __init__(self, width: int, hidden: int, depth: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        widths = [width, *[hidden] * depth]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.LeakyReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, features: Tensor) -> Tensor:
        """Return the uncertainty, shape (N,), in float32 at any precision of the backbone."""
        return self.scale * (F.softplus(self.layers(features.float())).squeeze(1) + 1e-6)


class GaussiansHead(nn.Module):
    """Two linear maps for each of C diagonal Gaussians: features (N, D) -> mu and log variance.

    mu has unit length, since samples are normalised and the scale of Sigma would otherwise be undetermined. The trace
    of Sigma is initialised to about 1, so that a sample is as far from mu as mu is from 0, and stays within a factor of
    e^4 of that: the divergence of two Gaussians grows with the ratio of their variances, and would diverge in a few
    steps without a bound.

    Source: Zhou et al. 2022 (UMM), sec. 3.1 and 4.3.2.
    """

    BOUND = 4.0  # largest change of a log variance from its initial value

    def __init__(self, width: int, dim: int, branches: int) -> None:
        super().__init__()
        self.shape = (branches, dim)
        self.mean = nn.Linear(width, branches * dim)
        self.log_variance = nn.Linear(width, branches * dim)

    def project(self, features: Tensor) -> Tensor:
        """Return the mean of the mixture, shape (N, M), float32; a unit vector if there is one Gaussian."""
        return self._means(features.float()).mean(1)

    def _means(self, features: Tensor) -> Tensor:
        return F.normalize(self.mean(features).unflatten(1, self.shape), dim=-1)

    def forward(self, features: Tensor) -> Tensor:
        """Return mu and the logarithm of the variances, shape (N, 2, C, M), float32."""
        features = features.float()
        around = self.BOUND * torch.tanh(self.log_variance(features) / self.BOUND)
        log_variance = around.unflatten(1, self.shape) - math.log(self.shape[1])
        return torch.stack([self._means(features), log_variance], dim=1)


class Prototypes(nn.Module):
    """A perceptron onto a sphere, and unit prototypes on it: features (N, D) -> cosines (N, K), float32.

    Source: Caron et al. 2021 (DINO), arXiv:2104.14294, sec. 3.1: Linear, GELU, Linear, GELU, Linear to the bottleneck,
    unit length, then a linear map with rows of unit length and no bias.
    """

    def __init__(self, width: int, prototypes: int, hidden: int, bottleneck: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU()), nn.Linear(hidden, bottleneck)
        )
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        self.prototypes = nn.Parameter(torch.randn(prototypes, bottleneck))

    def forward(self, features: Tensor) -> Tensor:
        """Return the cosine to every prototype, shape (N, K)."""
        place = F.normalize(self.layers(features.float()), dim=1)
        return place @ F.normalize(self.prototypes, dim=1).T


class PrototypeHead(nn.Module):
    """A teacher's prediction: features (N, D) -> logits (N, K) = (cosine - centre) / temperature, float32.

    The centre is the running mean of the cosines in training.
    """

    centre: Tensor

    def __init__(self, width: int, prototypes: int, hidden: int, bottleneck: int, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.cosines = Prototypes(width, prototypes, hidden, bottleneck)
        self.register_buffer("centre", torch.zeros(prototypes))

    def sharpened(self, cosines: Tensor) -> Tensor:
        """Return the logits for cosines of any shape (..., K)."""
        return (cosines.float() - self.centre) / self.temperature

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits, shape (N, K), in float32 at any precision of the backbone."""
        return self.sharpened(self.cosines(features))
