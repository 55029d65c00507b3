"""One model that scores: a backbone and its heads."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scoring.backbones import create_backbone, feature_width
from scoring.heads import HeadSpec
from scoring.images import Preprocessing


@dataclass(frozen=True)
class ModelSpec:
    """Everything that is needed to build a model, bar its weights."""

    backbone: str
    backbone_options: dict[str, Any] = field(default_factory=dict)
    heads: dict[str, HeadSpec] = field(default_factory=dict)  # method -> head
    preprocessing: Preprocessing = field(default_factory=Preprocessing)


@dataclass(frozen=True)
class Outputs:
    """What a model says of N images.

    Attributes:
        embedding: shape (N, D), float32, rows of unit length.
        kappas: method -> concentration, shape (N,), float32, >= 0, higher is more certain.
        uncertainties: method -> uncertainty, shape (N,), float32, > 0, higher is less certain; methods without kappa.
    """

    embedding: Tensor
    kappas: dict[str, Tensor]
    uncertainties: dict[str, Tensor] = field(default_factory=dict)


class ScoringModel(nn.Module):
    """A timm backbone and the heads that read its features."""

    mean: Tensor
    std: Tensor

    def __init__(self, spec: ModelSpec, *, backbone: nn.Module | None = None) -> None:
        """Build the model; ``backbone`` takes the place of a fresh one of that name."""
        super().__init__()
        self.spec = spec
        self.backbone = backbone or create_backbone(spec.backbone, options=spec.backbone_options)
        self.width = feature_width(self.backbone)
        self.heads = nn.ModuleDict({name: head.build(self.width) for name, head in spec.heads.items()})
        preprocessing = spec.preprocessing
        self.register_buffer("mean", 255 * torch.tensor(preprocessing.mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", 255 * torch.tensor(preprocessing.std).view(1, 3, 1, 1), persistent=False)

    def normalize(self, pixels: Tensor) -> Tensor:
        """Return what the backbone reads, float32, from pixel values in [0, 255], shape (N, 3, H, W)."""
        return (pixels.float() - self.mean) / self.std

    def features(self, pixels: Tensor) -> Tensor:
        """Return pooled features, shape (N, D), from pixel values in [0, 255], shape (N, 3, H, W)."""
        return self.backbone(self.normalize(pixels))

    def forward(self, pixels: Tensor) -> Outputs:
        """Score a batch.

        Args:
            pixels: RGB, shape (N, 3, H, W), uint8 or float in [0, 255].

        Returns:
            Embeddings and what the heads say in float32: the heads run in float32 whatever the precision of the
            backbone, since half precision leaves only a few thousand distinct values.
        """
        return self.read(self.features(pixels))

    def read(self, features: Tensor) -> Outputs:
        """Return what the heads say of features, shape (N, D), and the embedding that they give."""
        features = features.float()
        with torch.autocast(features.device.type, enabled=False):
            said: dict[str, dict[str, Tensor]] = {"kappa": {}, "unc": {}}
            for name, head in self.heads.items():
                said[self.spec.heads[name].column][name] = head(features)
            return Outputs(F.normalize(features, dim=1), said["kappa"], said["unc"])
