"""The modules of heads: features -> one number an image, in float32 whatever the precision of the backbone."""

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn


class KappaHead(nn.Module):
    """Two layers with batch normalisation between: features (N, D) -> kappa (N,), >= 0, higher is more certain.

    Source: Nakamura et al. 2023, appendix B: Linear(D, 512), BN, ReLU, Linear(512, 1), softplus.
    """

    def __init__(self, width: int, hidden: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.hidden = nn.Linear(width, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Return kappa, shape (N,), in float32 whatever the precision of the backbone."""
        hidden = F.relu(self.norm(self.hidden(features.float())))
        return self.scale * F.softplus(self.out(hidden)).squeeze(1)


class NormHead(nn.Module):
    """A linear map e = W f: its direction is mu, its length kappa; features (N, D) -> kappa (N,), >= 0.

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
    """A multi-layer perceptron: features (N, D) -> uncertainty (N,), > 0, higher is less certain; the order counts.

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
        """Return the uncertainty, shape (N,), in float32 whatever the precision of the backbone."""
        return self.scale * (F.softplus(self.layers(features.float())).squeeze(1) + 1e-6)
