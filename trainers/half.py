"""Half precision: autocast of the backbone, and loss scaling for float16."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}  # dtype of a precision; fp32 has no autocast
LEAST_SCALE = 2.0**-10  # below, the unscaled gradients are not finite


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the autocast context for a precision: fp32, bf16 or fp16."""
    return torch.autocast(device.type, DTYPES.get(precision, torch.bfloat16), enabled=precision in DTYPES)


def compiled(backbone: nn.Module, device: torch.device, precision: str) -> Callable[[Tensor], Tensor]:
    """Return the backbone compiled separately for each view size, which is faster than one graph for all sizes.

    The precision is part of the compiled function: torch 2.11 reused a bf16 graph from its disk cache for fp16.
    """

    def read(images: Tensor) -> Tensor:
        with autocast(device, precision):
            features: Tensor = backbone(images)
            return features

    return torch.compile(read, dynamic=False)


class LossScale:
    """Loss scaling for float16, which skips steps with overflowing gradients; does nothing for other precisions.

    ``kept`` is what ``to_json`` returned when the run was saved; empty at the start.
    """

    def __init__(self, device: torch.device, precision: str, kept: dict[str, Any]) -> None:
        self._scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
        if kept and precision == "fp16":
            self._scaler.load_state_dict(kept)

    def to_json(self) -> dict[str, Any]:
        """Return the state for the next step; empty without scaling."""
        return dict(self._scaler.state_dict())

    def backward(self, loss: Tensor) -> None:
        """Backpropagate the scaled loss, accumulating gradients."""
        self._scaler.scale(loss).backward()

    def norm(self, optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], clip: float) -> Tensor:
        """Unscale gradients and return their global norm; clip them to ``clip`` unless it is 0."""
        self._scaler.unscale_(optimizer)
        norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        if clip:
            nn.utils.clip_grads_with_norm_(parameters, clip, norm)
        return norm

    def step(self, optimizer: torch.optim.Optimizer, norm: Tensor) -> bool:
        """Step the optimiser and return True; on overflow, lower the scale and return False."""
        self._scaler.step(optimizer)
        self._scaler.update()
        return not self._scaler.is_enabled() or bool(norm.isfinite())

    @property
    def is_lost(self) -> bool:
        """Whether gradients overflow at the lowest scale."""
        return self._scaler.is_enabled() and self._scaler.get_scale() < LEAST_SCALE
