"""All backbones of a model as one module from pixels to features, for other runtimes.

What it replaces normalises an image three channels at a time, four passes over all of it: a fifth of the time of a
small model on a CPU. Here it is one pass. Images are run in steps that fit the processor's cache.
"""

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scoring.joined_backbone import JoinedBackbone
from scoring.model import ScoringModel

STEP = 32  # images; of 8 to 64 the fastest for small backbones, and level for large ones


def with_quick(model: ScoringModel, quick: nn.Module) -> ScoringModel:
    """Return a copy of a model with the same heads whose features come from ``quick``.

    Args:
        model: in evaluation mode.
        quick: pixel values (N, 3, S, S) -> features (N, D), float32.
    """
    faster = copy.copy(model)
    faster._modules = {**model._modules, "quick": quick, "backbone": _without_weights(model.backbone)}
    return faster


def _without_weights(backbone: nn.Module) -> nn.Module:
    """Return the layers from features to embeddings, without the weights of the backbones."""
    if not isinstance(backbone, JoinedBackbone):
        return nn.Identity()
    light = copy.copy(backbone)
    light._modules = {**backbone._modules, "parts": nn.ModuleList()}
    return light


class BackboneInputs(nn.Module):
    """The input of each backbone, (N, 3, S/k, S/k), float32, from pixel values in [0, 255], (N, 3, S, S)."""

    def __init__(self, model: ScoringModel) -> None:
        super().__init__()
        self.pools, self.affine = [], []
        device = model.mean.device
        for part in model.backbone_parts():
            side = model.spec.preprocessing.size // part.pool
            self.pools.append(part.pool)
            self.affine.append((_spread(part.scale.to(device), side), _spread(part.shift.to(device), side)))

    def forward(self, pixels: Tensor) -> list[Tensor]:
        """Return one tensor per backbone, channels last."""
        values = pixels.to(torch.float32, memory_format=torch.channels_last)
        inputs = []
        for pool, (scale, shift) in zip(self.pools, self.affine, strict=True):
            seen = F.avg_pool2d(values, pool) if pool > 1 else values
            inputs.append(torch.addcmul(shift, seen, scale))
        return inputs


def _spread(channels: Tensor, side: int) -> Tensor:
    """Return (1, 3, S, S) of (3,), channels last, so that sums run over whole rows."""
    return channels.view(1, 3, 1, 1).expand(1, 3, side, side).contiguous(memory_format=torch.channels_last)


class QuickBackbones(nn.Module):
    """Backbones for any runtime: pixel values in [0, 255], (N, 3, S, S) -> features (N, D), float32.

    Args:
        model: what they belong to.
        backbones: one for each of the model's, (N, 3, S/k, S/k) -> pooled features.
        step: images run at once.
        padded: what the backbones fill fewer up to, so that fewer need no less memory.
    """

    def __init__(
        self, model: ScoringModel, backbones: Sequence[nn.Module], *, step: int = STEP, padded: int = 1
    ) -> None:
        super().__init__()
        self.step, self.padded = step, padded
        self.inputs = BackboneInputs(model)
        self.backbones = nn.ModuleList(backbones)
        self.all = _without_weights(model.backbone)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the features."""
        pooled = torch.cat([self._pooled(part) for part in pixels.split(self.step)])
        return self.all.standardize(pooled) if isinstance(self.all, JoinedBackbone) else pooled

    def _pooled(self, pixels: Tensor) -> Tensor:
        return torch.cat(
            [backbone(seen).float() for backbone, seen in zip(self.backbones, self.inputs(pixels), strict=True)], dim=1
        )
