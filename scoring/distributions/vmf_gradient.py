"""The derivative of a von Mises-Fisher cosine sample with respect to kappa.

At a fixed value of its distribution function the cosine w moves by dw/dkappa = (1-w^2) phi(w), where

    phi(w) = integral_w^1 (s - A) p(s) ds / ((1-w^2) p(w)).

In the coordinates of the sampler, w = (x0 + t) / (1 + x0 t) with 1 - x0^2 = (M-1) x0 / kappa, phi is nearly

    phi0 = (1-x0^2) (1+y) / ((M-1) (1 + x0^2 + 2y)),   y = x0 t,

exactly so at kappa = 0 and as kappa grows without bound, and chi = phi/phi0 is a smooth function of t and x0 on a
square. It is integrated once for each dimension, on the nodes of a Chebyshev series in both, and summed from that.
"""

import math
from functools import cache

import numpy as np
import torch
from torch import Tensor

from scoring.distributions.bessel import ratio

WIDTH = 7.0  # in units of 1/sqrt(M), the standard deviation of t at kappa = 0; it is narrower at any other
SPAN = 14.0  # in the same unit, of the angle: how far an integral goes before it adds nothing
NODES = 160  # of Gauss-Legendre


def motion_over_sine_squared(t: Tensor, x0: Tensor, dim: int) -> Tensor:
    """Return phi = (dw/dkappa) / (1-w^2), > 0, for cosines w = (x0 + t) / (1 + x0 t).

    Args:
        t: cosines in the coordinates of the sampler, shape (n, *batch), float64, in [-1, 1].
        x0: the sampler's constant, shape (*batch), float64, in [0, 1]; 1 is kappa = inf, where nothing moves.
        dim: M >= 2.

    Returns:
        Shape (n, *batch), float64.
    """
    table, half_width = _table(dim, t.device)  # (terms in x0, terms in t)
    coefficients = (_chebyshev(2 * x0 - 1, len(table)) @ table).unbind(-1)  # one of (*batch) for each term in t
    position = (t / half_width).clamp(-1, 1)
    doubled, last, before = 2 * position, torch.zeros_like(t), torch.zeros_like(t)
    for c in reversed(coefficients[1:]):  # Clenshaw's recurrence
        last, before = torch.addcmul(c - before, doubled, last), last
    chi = torch.addcmul(coefficients[0] - before, position, last)
    above = 1 + x0 * t
    return chi * (1 - x0.square()) * above / ((dim - 1) * (2 * above - (1 - x0.square())))


def _chebyshev(x: Tensor, terms: int) -> Tensor:
    """Return T_0(x) .. T_{terms-1}(x) on a new last axis."""
    values = [torch.ones_like(x), x]
    while len(values) < terms:
        values.append(2 * x * values[-1] - values[-2])
    return torch.stack(values, dim=-1)


@cache
def _table(dim: int, device: torch.device) -> tuple[Tensor, float]:
    """Return the Chebyshev coefficients of chi, float64, (terms in x0, terms in t), and the half-width of t."""
    # least smooth for small M near x0 = 1, t = -1, where a cosine hardly ever falls
    terms = 48 if dim < 8 else 24 if dim < 32 else 16
    half_width = min(1.0, WIDTH / math.sqrt(dim))
    nodes = torch.cos(math.pi * (torch.arange(terms, dtype=torch.float64) + 0.5) / terms)
    values = torch.stack([_chi(half_width * nodes, x0, dim) for x0 in ((1 + nodes) / 2).tolist()])  # (x0, t)
    basis = _chebyshev(nodes, terms)  # (node, term)
    in_t = torch.linalg.solve(basis, values.T)  # (term in t, node of x0)
    return torch.linalg.solve(basis, in_t.T).contiguous().to(device), half_width


def _chi(t: Tensor, x0: float, dim: int) -> Tensor:
    """Return phi/phi0 at ``t``, shape (T,), in (-1, 1), for one ``x0`` in (0, 1), by integration over the angle."""
    kappa = (dim - 1) * x0 / (1 - x0 * x0)
    mean = kappa * ratio(torch.tensor(kappa * kappa, dtype=torch.float64), dim).item()
    offset = (mean - x0) / (1 - x0 * x0)  # w - mean is (1 - x0^2) (t/(1+y) - offset)
    angle, y = torch.arccos(t), x0 * t
    reach = SPAN / math.sqrt(dim)
    beyond = t / (1 + y) < offset  # integrate over the side without the mean: the other would cancel
    far = torch.where(beyond, (angle + reach).clamp(max=math.pi), (angle - reach).clamp(min=0))
    points, weights = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(NODES))
    half = (far - angle).unsqueeze(1) / 2  # (T, 1); it has the integral's sign
    angles = (far + angle).unsqueeze(1) / 2 + half * points  # (T, nodes)
    u = angles.cos()
    density = torch.exp(_log_density(angles, x0 * u, dim) - _log_density(angle, y, dim).unsqueeze(1))
    integral = -(half * weights * (u / (1 + x0 * u) - offset) * density).sum(1)
    return (dim - 1) * (1 + x0 * x0 + 2 * y) / (angle.sin() * (1 + y)) * integral


def _log_density(angle: Tensor, y: Tensor, dim: int) -> Tensor:
    """Return the log-density of the angle arccos(t), up to a constant."""
    return (dim - 2) * angle.sin().log() - (dim - 1) * (y.log1p() - y / (1 + y))
