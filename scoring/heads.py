"""Heads: features -> one number an image."""

from dataclasses import asdict, dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from scoring.errors import InputError


@dataclass(frozen=True)
class KappaHeadSpec:
    """The shape of a kappa head, as a checkpoint records it.

    ``scale`` multiplies the softplus. The best kappa for a cosine c is (M-1) c / (1-c): with scale = M-1 the head
    has to move within one or two units, where plain softplus would have to move by thousands.
    """

    hidden: int = 512
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.hidden <= 65536:
            raise InputError(f"a kappa head needs a hidden width between 1 and 65536, got {self.hidden}")
        if not self.scale > 0:
            raise InputError(f"a kappa head needs a scale above 0, got {self.scale}")

    def to_json(self) -> dict[str, Any]:
        """Return the spec as plain JSON values."""
        return asdict(self)


class KappaHead(nn.Module):
    """Two layers with batch normalisation between: features (N, D) -> kappa (N,), >= 0, higher is more certain.

    Source: Nakamura et al. 2023, appendix B: Linear(D, 512), BN, ReLU, Linear(512, 1), softplus.
    """

    def __init__(self, width: int, spec: KappaHeadSpec) -> None:
        super().__init__()
        self.spec = spec
        self.hidden = nn.Linear(width, spec.hidden)
        self.norm = nn.BatchNorm1d(spec.hidden)
        self.out = nn.Linear(spec.hidden, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Return kappa, shape (N,), in float32 whatever the precision of the backbone."""
        hidden = F.relu(self.norm(self.hidden(features.float())))
        return self.spec.scale * F.softplus(self.out(hidden)).squeeze(1)
