"""Quantiles of the cosine of a von Mises-Fisher distribution: how far its mass spreads from the mean direction.

In the coordinates of the sampler, w = (x0 + t) / (1 + x0 t) and t = cos(angle), the density of the angle is

    sin(angle)^(M-2) exp(-(M-1) (log(1+y) - y/(1+y))),   y = x0 t,   1 - x0^2 = (M-1) x0 / kappa,

smooth, of width 1/sqrt(M) whatever kappa is, and without a normaliser that could overflow. It is integrated by
Gauss-Legendre panels; the quantile is in one of them and is found there by Newton's steps, or halving where a step
would leave the bracket.
"""

import math
from functools import cache

import numpy as np
import torch
from torch import Tensor

from scoring.distributions.vmf_sampler import proposal_constants

PANELS, NODES = 64, 12
WIDTH = 14.0  # standard deviations of the angle at kappa = 0, on either side; it is narrower at any other kappa
STEPS = 16  # of the search; six reach the last digit for shares between 1e-9 and 1 - 1e-9
BLOCK = 2048  # concentrations at a time: 13 MB a temporary


def credible_cosine(share: Tensor | float, kappa: Tensor, dim: int) -> Tensor:
    """Return the cosine t with P(mu.z >= t) = share: the edge of the cap that contains this share of the mass.

    Args:
        share: of the mass, in [0, 1], broadcastable with ``kappa``; 0 gives 1, and 1 gives -1.
        kappa: concentrations, any shape, >= 0; inf gives 1.
        dim: M >= 2.

    Returns:
        The broadcast shape, float64, in [-1, 1], without a gradient. The cap's angle is its arc cosine.

    Raises:
        ValueError: if ``dim`` < 2, a share lies outside [0, 1] or is NaN, a kappa is negative, or the shapes do not
            broadcast.

    >>> round(credible_cosine(0.5, torch.tensor(0.0), 512).item(), 12)  # half of a sphere is a hemisphere
    0.0
    """
    shares = torch.as_tensor(share, dtype=torch.float64, device=kappa.device)
    if dim < 2:
        raise ValueError(f"the sphere needs dim >= 2, got {dim}")
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError(f"share must be in [0, 1], got {shares.flatten().tolist()[:5]}")
    if (kappa < 0).any():
        raise ValueError(f"kappa must be >= 0, got {kappa.min().item():g} among {kappa.numel()} values")
    try:
        shares, kappa = torch.broadcast_tensors(shares, kappa.detach().double())
    except RuntimeError:
        got = f"{tuple(shares.shape)} and {tuple(kappa.shape)}"
        raise ValueError(f"share and kappa must have shapes that broadcast, got {got}") from None
    blocks = zip(shares.reshape(-1).split(BLOCK), kappa.reshape(-1).split(BLOCK), strict=True)
    cosines = [_block(s, k, dim) for s, k in blocks]
    return torch.cat(cosines).reshape(shares.shape)


def cap_share(cosine: Tensor, kappa: Tensor, dim: int) -> Tensor:
    """Return P(mu.z >= cosine), the share of the mass inside the cap; decreasing in the cosine.

    The inverse of ``credible_cosine``.

    Args:
        cosine: in [-1, 1], broadcastable with ``kappa``.
        kappa: concentrations, any shape, finite, >= 0.
        dim: M >= 2.

    Returns:
        The broadcast shape, float64, in [0, 1], without a gradient.

    Raises:
        ValueError: if ``dim`` < 2, a kappa is negative, or a cosine lies outside [-1, 1] or is NaN.

    >>> round(cap_share(torch.tensor(0.0), torch.tensor(0.0), 512).item(), 12)
    0.5
    """
    if dim < 2 or (kappa < 0).any() or not ((cosine >= -1) & (cosine <= 1)).all():
        raise ValueError(f"expected dim >= 2, kappa >= 0 and cosines in [-1, 1], got dim {dim}, {cosine}, {kappa}")
    cosine, kappa = torch.broadcast_tensors(cosine.detach().double(), kappa.detach().double())
    blocks = zip(cosine.reshape(-1).split(BLOCK), kappa.reshape(-1).split(BLOCK), strict=True)
    return torch.cat([_share(c, k, dim) for c, k in blocks]).reshape(cosine.shape)


def _share(cosine: Tensor, kappa: Tensor, dim: int) -> Tensor:
    """Return the mass of caps, shape (B,)."""
    x0 = proposal_constants(kappa, dim)[0].unsqueeze(1)  # (B, 1)
    reach = min(math.pi / 2, WIDTH / math.sqrt(dim))
    edges = torch.linspace(math.pi / 2 - reach, math.pi / 2 + reach, PANELS + 1, dtype=torch.float64, device=x0.device)
    panels = _mass(edges[:-1], edges[1:], x0, dim)  # (B, PANELS)
    inside = torch.nn.functional.pad(panels.cumsum(1), (1, 0))  # (B, PANELS + 1)
    t = ((cosine.unsqueeze(1) - x0) / (1 - x0 * cosine.unsqueeze(1))).clamp(-1, 1)
    angle = t.acos().clamp(edges[0], edges[-1])  # (B, 1)
    panel = (torch.searchsorted(edges, angle) - 1).clamp(0, PANELS - 1)
    mass = inside.gather(1, panel) + _mass(edges[panel], angle, x0, dim)
    return (mass / inside[:, -1:]).squeeze(1).clamp(0, 1)


def _block(share: Tensor, kappa: Tensor, dim: int) -> Tensor:
    """Return the quantiles, shape (B,), for shares and concentrations of shape (B,)."""
    x0, sine_scale = (c.unsqueeze(1) for c in proposal_constants(kappa, dim))  # (B, 1)
    reach = min(math.pi / 2, WIDTH / math.sqrt(dim))
    edges = torch.linspace(math.pi / 2 - reach, math.pi / 2 + reach, PANELS + 1, dtype=torch.float64, device=x0.device)
    panels = _mass(edges[:-1], edges[1:], x0, dim)  # (B, PANELS)
    inside = torch.nn.functional.pad(panels.cumsum(1), (1, 0))  # (B, PANELS + 1): mass below every edge
    goal = share.unsqueeze(1) * inside[:, -1:]
    panel = (torch.searchsorted(inside, goal) - 1).clamp(0, PANELS - 1)
    start = edges[panel]  # (B, 1)
    goal = goal - inside.gather(1, panel)
    low, high = start, edges[panel + 1]
    angle = (low + high) / 2
    for _ in range(STEPS):
        excess = _mass(start, angle, x0, dim) - goal
        low, high = torch.where(excess < 0, angle, low), torch.where(excess < 0, high, angle)
        step = angle - excess / _density(angle, x0, dim)
        angle = torch.where((step >= low) & (step <= high), step, (low + high) / 2)
    # 1 - w = (1 - x0)(1 - t) / (1 + x0 t), with 1 - t = 2 sin^2(angle/2): exact also where w is nearly 1
    drop = sine_scale.square() / (1 + x0) * 2 * (angle / 2).sin().square()
    cosine = (1 - drop / (1 + x0 * angle.cos())).squeeze(1)
    cosine = torch.where(share == 1, -1.0, cosine)
    return torch.where((share == 0) | torch.isinf(kappa), 1.0, cosine)


@cache
def _rule(device: torch.device) -> tuple[Tensor, Tensor]:
    points, weights = np.polynomial.legendre.leggauss(NODES)
    return torch.from_numpy(points).to(device), torch.from_numpy(weights).to(device)


def _mass(low: Tensor, high: Tensor, x0: Tensor, dim: int) -> Tensor:
    """Return the integral of the density between angles, shape (B, panels); ``x0`` is (B, 1)."""
    points, weights = _rule(x0.device)
    half = (high - low).unsqueeze(-1) / 2
    angle = (high + low).unsqueeze(-1) / 2 + half * points  # (B or 1, panels, NODES)
    return half.squeeze(-1) * (_density(angle, x0.unsqueeze(-1), dim) @ weights)


def _density(angle: Tensor, x0: Tensor, dim: int) -> Tensor:
    """Return the density of the angle, up to a constant."""
    y = x0 * angle.cos()
    return torch.exp((dim - 2) * angle.sin().log() - (dim - 1) * (y.log1p() - y / (1 + y)))
