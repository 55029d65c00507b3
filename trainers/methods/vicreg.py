"""VICReg: views of an image agree, while dimensions keep their variance and are decorrelated."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scoring.errors import InputError
from trainers.methods.concentration import spread
from trainers.methods.method import Method, Step, Task
from trainers.methods.settings import MOST_WIDTH, Settings, setting

LEAST_VARIANCE = 1e-4  # added inside the root, so that its gradient is finite


class Terms(NamedTuple):
    """The three terms of VICReg, scalars >= 0; lower is better."""

    invariance: Tensor
    variance: Tensor
    covariance: Tensor


def vicreg_terms(x: Tensor, y: Tensor) -> Terms:
    """Return the three terms of two views' embeddings.

    invariance = mean over all values of (x - y)^2; variance = mean over dimensions of max(0, 1 - s), where s = sqrt(var
    + 1e-4) over the batch with N - 1, averaged over both views; covariance = sum of squared covariances of different
    dimensions, divided by D, summed over both views.

    Args:
        x: of one view, shape (N, D), N >= 2; neither normalised nor centred.
        y: of the other view of the same images, same shape.

    Raises:
        ValueError: if the shapes do not fit.

    Source: Bardes, Ponce & LeCun 2022, arXiv:2105.04906, eq. 1-5; half the variance term, as in its authors' code.
    """
    if x.ndim != 2 or x.shape != y.shape or len(x) < 2:
        raise ValueError(f"expected two shapes (N, D), N at least 2, got {tuple(x.shape)} and {tuple(y.shape)}")
    hinges, off = [], []
    for view in (x, y):
        centred = view - view.mean(0)
        hinges.append(F.relu(1 - (centred.square().sum(0) / (len(x) - 1) + LEAST_VARIANCE).sqrt()).mean())
        covariance = centred.T @ centred / (len(x) - 1)  # (D, D)
        off.append((covariance.square().sum() - covariance.diagonal().square().sum()) / x.shape[1])
    return Terms((x - y).square().mean(), (hinges[0] + hinges[1]) / 2, off[0] + off[1])


@dataclass(frozen=True)
class VICRegSettings(Settings):
    """The settings of VICReg; the weights are the paper's, whose expander is 8,192 wide in all layers."""

    latent_dim: int = setting(2048, "width D of the expanded embedding; 8,192 in the paper", least=2, most=MOST_WIDTH)
    hidden_dim: int = setting(2048, "width of the two hidden layers of the expander", least=1, most=MOST_WIDTH)
    invariance: float = setting(25.0, "weight of the distance between views of one image", least=0, most=1e6)
    variance: float = setting(25.0, "weight of dimensions whose spread over the batch is below 1", least=0, most=1e6)
    covariance: float = setting(1.0, "weight of the correlation between dimensions", least=0, most=1e6)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.invariance and self.variance):
            raise InputError(
                f"expected weights of invariance and variance above 0, got {self.invariance:g} and {self.variance:g}: "
                "without either nothing is learned"
            )


def expander(width: int, hidden_dim: int, latent_dim: int) -> nn.Sequential:
    """Return layers (B, D) -> (B, M): twice Linear, BN, ReLU, then Linear without bias, as in the authors' code."""
    layers: list[nn.Module] = []
    for before in (width, hidden_dim):
        layers += [nn.Linear(before, hidden_dim), nn.BatchNorm1d(hidden_dim), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden_dim, latent_dim, bias=False))


class VICReg(Method[VICRegSettings]):
    """Two views agree; variance and decorrelation terms, not negatives, prevent collapse. No uncertainty."""

    paper = "Bardes et al. 2022, arXiv:2105.04906"
    Settings = VICRegSettings
    defaults: ClassVar = {"optimizer": "adamw", "lr": 1e-3, "schedule": "cosine", "warmup": 0.1, "weight_decay": 1e-6}

    def __init__(self, settings: VICRegSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.expander = expander(task.width, settings.hidden_dim, settings.latent_dim)

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the weighted sum of the three terms of two views."""
        z = self.expander(features.flatten(0, 1)).float().view(*features.shape[:2], -1)
        terms = vicreg_terms(z[0], z[1])
        weights = self.settings
        loss = weights.invariance * terms.invariance + weights.variance * terms.variance
        loss = loss + weights.covariance * terms.covariance
        with torch.no_grad():
            measures = {**terms._asdict(), "spread": spread(F.normalize(z[0], dim=1))}
        return Step(loss, {name: measure.detach() for name, measure in measures.items()})
