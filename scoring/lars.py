"""LARS: SGD with a step size per layer proportional to the norm of its weights."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

ETA = 0.001  # trust coefficient: step relative to the norm of the weights


class LARS(torch.optim.Optimizer):
    """SGD with momentum; the gradient of a matrix, decay included, is scaled to ETA times the norm of the matrix.

    Vectors (biases and normalisation weights) take plain SGD steps.

    Source: You, Gitman & Ginsburg 2017, arXiv:1708.03888, algorithm 1; vectors as Bardes et al. 2022 (VICReg) have it.

    Args:
        groups: of parameters, each with ``weight_decay``.
        lr: the learning rate.
        momentum: of the velocity, in [0, 1).
    """

    def __init__(self, groups: list[dict[str, Any]], *, lr: float, momentum: float) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        change = parameter.grad
        if change is None:
            return
        if parameter.ndim > 1:
            change = change.add(parameter, alpha=group["weight_decay"])
            of_weights, of_change = parameter.norm(), change.norm()
            both = (of_weights > 0) & (of_change > 0)
            change = change * torch.where(both, ETA * of_weights / of_change, torch.ones_like(of_weights))
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        velocity = state["momentum_buffer"].mul_(group["momentum"]).add_(change)
        parameter.sub_(group["lr"] * velocity)
