"""Samples of the von Mises-Fisher distribution, with gradients to its mean direction and its concentration.

A sample is z = w mu + sqrt(1 - w^2) v with a tangent v drawn uniformly. The cosine w comes from Wood's rejection, in
coordinates where it is plain: with x0 = (1-b)/(1+b), b the exact b = (M-1) / (2 kappa + sqrt(4 kappa^2 + (M-1)^2)),
and t the cosine of a uniform direction, the proposal is w = (x0 + t) / (1 + x0 t), and it is accepted with probability
exp(-(M-1) (log(1+y) - y/(1+y))), y = x0 t. That is never below 0.65 on average, for any M and kappa.

Source: Wood 1994, "Simulation of the von Mises Fisher distribution"; Ulrich 1984 for the cosine of a uniform direction.
"""

import math

import torch
from torch import Tensor

ROUNDS = 24  # at most 0.35^24 = 1e-11 of the cosines are still undecided then; they keep their last proposal
NARROW = 8  # below this many dimensions the tangent can lose digits in float32


def sample(mu: Tensor, kappa: Tensor, n: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Draw ``n`` unit vectors from each distribution, differentiable in ``mu`` and ``kappa``.

    Args:
        mu: mean directions, unit vectors, shape (*batch, M), floating.
        kappa: concentrations, broadcastable to (*batch), >= 0; inf returns ``mu`` itself.
        n: samples of each.
        generator: where the random numbers come from; without one, torch's own for the device.

    Returns:
        Shape (n, *batch, M), in the dtype and on the device of ``mu``.

    Raises:
        ValueError: if M < 2, a kappa is negative, or ``kappa`` does not broadcast to the batch of ``mu``.
    """
    dim, batch = _checked_shapes(mu, kappa)
    work = mu.dtype if mu.dtype == torch.float64 else torch.float32
    with torch.no_grad():
        cosine, sine = _draw_cosine(kappa.double().expand(batch), dim, n, generator)
    wide = torch.float64 if dim < NARROW else work
    noise = torch.randn(n, *batch, dim, dtype=wide, device=mu.device, generator=generator)
    return _assemble(mu.to(wide), cosine.to(wide), sine.to(wide), noise).to(mu.dtype)


def _checked_shapes(mu: Tensor, kappa: Tensor) -> tuple[int, torch.Size]:
    if mu.ndim < 1 or mu.shape[-1] < 2:
        raise ValueError(f"mu must have shape (*batch, M) with M >= 2, got {tuple(mu.shape)}")
    batch = mu.shape[:-1]
    try:
        fits = torch.broadcast_shapes(kappa.shape, batch) == batch
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(f"kappa must broadcast to the batch {tuple(batch)} of mu, got {tuple(kappa.shape)}")
    if kappa.device.type == "cpu" and (kappa < 0).any():
        raise ValueError(f"kappa must be >= 0, got {kappa.min().item():g} among {kappa.numel()} values")
    return mu.shape[-1], batch


def _uniform_cosine(
    shape: tuple[int, ...], dim: int, device: torch.device, generator: torch.Generator | None
) -> Tensor:
    """Return first coordinates of uniform directions, float64: r cos(angle) with r^2 = 1 - u^(2/(M-2))."""
    angle = torch.rand(shape, dtype=torch.float64, device=device, generator=generator)
    cosine = torch.cos(2 * math.pi * angle)
    if dim > 2:
        u = torch.rand(shape, dtype=torch.float64, device=device, generator=generator)
        cosine = cosine * torch.expm1(torch.log(u) * (2 / (dim - 2))).neg().sqrt()
    return cosine.clamp(min=-1 + 1e-15)


def _draw_cosine(kappa: Tensor, dim: int, n: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    b = (dim - 1) / (2 * kappa + (4 * kappa.square() + (dim - 1) ** 2).sqrt())
    x0 = (1 - b) / (1 + b)
    shape = (n, *kappa.shape)
    t = torch.zeros(shape, dtype=torch.float64, device=kappa.device)
    accepted = torch.zeros(shape, dtype=torch.bool, device=kappa.device)
    for _ in range(ROUNDS):
        proposal = _uniform_cosine(shape, dim, kappa.device, generator)
        y = x0 * proposal
        height = torch.rand(shape, dtype=torch.float64, device=kappa.device, generator=generator)
        t = torch.where(accepted, t, proposal)
        accepted |= torch.log(height) <= (dim - 1) * (y / (1 + y) - torch.log1p(y))
        if kappa.device.type == "cpu" and accepted.all():
            break
    below = 1 + x0 * t
    return (x0 + t) / below, 2 * b.sqrt() / (1 + b) * (1 - t.square()).clamp(min=0).sqrt() / below


def _assemble(mu: Tensor, cosine: Tensor, sine: Tensor, noise: Tensor) -> Tensor:
    tangent = noise - (noise * mu).sum(-1, keepdim=True) * mu
    tangent = tangent / tangent.norm(dim=-1, keepdim=True)
    return cosine.unsqueeze(-1) * mu + sine.unsqueeze(-1) * tangent
