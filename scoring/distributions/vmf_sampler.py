"""Samples of the von Mises-Fisher distribution, with exact gradients to its mean direction and its concentration.

A sample is z = w mu + sqrt(1 - w^2) v with a tangent v drawn uniformly. The cosine w comes from Wood's rejection, in
coordinates where it is plain: with x0 = (1-b)/(1+b), b the exact (M-1) / (2 kappa + sqrt(4 kappa^2 + (M-1)^2)), and t
the cosine of a uniform direction, the proposal is w = (x0 + t) / (1 + x0 t), and it is accepted with probability
exp(-(M-1) (log(1+y) - y/(1+y))), y = x0 t: on average between 0.65 and 1, for any M and kappa.

Gradients are by implicit reparametrisation. Turning mu carries the tangent along without a twist, and raising
kappa moves w by dw/dkappa = -(dF/dkappa)/p at a fixed value of its distribution function F (`vmf_gradient`), so
that the rejection adds no bias: a pathwise derivative through the accepted proposal would.

Source: Wood 1994, "Simulation of the von Mises Fisher distribution"; Ulrich 1984 for the cosine of a uniform
direction; Figurnov et al. 2018, arXiv:1805.08498, for implicit reparametrisation.

At a fixed value of its distribution function the cosine w moves by dw/dkappa = (1-w^2) phi(w), where

    phi(w) = integral_w^1 (s - A) p(s) ds / ((1-w^2) p(w)).

In the coordinates of the sampler, w = (x0 + t) / (1 + x0 t) with 1 - x0^2 = (M-1) x0 / kappa, phi is nearly

    phi0 = (1-x0^2) (1+y) / ((M-1) (1 + x0^2 + 2y)),   y = x0 t,

exactly so at kappa = 0 and as kappa grows without bound, and chi = phi/phi0 is a smooth function of t and x0 on a
square. It is integrated once for each dimension, on the nodes of a Chebyshev series in both, and summed from that.
"""

import math
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from scoring.distributions.bessel import ratio

WIDTH = 7.0  # in units of 1/sqrt(M), the standard deviation of t at kappa = 0; it is narrower at any other
SPAN = 14.0  # in the same unit, of the angle: how far an integral goes before it adds nothing
NODES = 160  # of Gauss-Legendre
NARROW = 8  # below this many dimensions the tangent can lose digits in float32
ROUNDS, PROPOSALS = 4, 4  # without a look at the outcome: 16 proposals each, and 0.35^16 = 5e-8 stay undecided
PATIENCE = 100  # rounds with a look, each over what is still undecided; 0.35^100 never happens


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


def sample(mu: Tensor, kappa: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw ``n`` unit vectors from each distribution, differentiable in ``mu`` and ``kappa``.

    On the CPU rejected proposals are drawn again. On a GPU the number of proposals is fixed, so that a step can be
    captured in a CUDA graph: each cosine is the first accepted of 16 proposals, or the last if none is accepted, which
    changes the distribution by less than 5e-8 (total variation). The tables for the gradient are made at the first
    backward pass for a dimension and a device: run one before the capture.

    Args:
        mu: mean directions, unit vectors, shape (*batch, M), floating.
        kappa: concentrations, broadcastable to (*batch), >= 0; inf returns ``mu`` itself.
        n: samples of each, >= 0.
        generator: where the random numbers come from; without one, torch's own for the device.

    Returns:
        Shape (n, *batch, M), in the dtype and on the device of ``mu``. Cosines are drawn in float64, tangents in
        float32 (float64 for M < 8 or a float64 ``mu``). The gradient to ``mu`` is tangent to the sphere; that to
        ``kappa`` is interpolated: on average off by at most 3e-4 of itself for M = 2, 1e-4 from M = 3 on and 1e-7
        from M = 64 on. Differentiable once.

    Raises:
        ValueError: if M < 2, ``n`` or a kappa is negative, or ``kappa`` does not broadcast to the batch of ``mu``.
    """
    batch, dim = _check(mu, kappa, n)
    kappa = kappa.double().expand(batch)
    x0, sine_scale = proposal_constants(kappa.detach(), dim)
    t = _draw(x0, n, dim, generator)
    wide = torch.float64 if dim < NARROW else torch.promote_types(mu.dtype, torch.float32)
    noise = torch.randn(n, *batch, dim, dtype=wide, device=mu.device, generator=generator)
    direction = mu.to(wide)
    if wide != mu.dtype:  # what is a unit vector in the lower precision is not one in the higher
        direction = torch.nn.functional.normalize(direction, dim=-1)
    return _Assemble.apply(direction, kappa, x0, sine_scale, t, noise).to(mu.dtype)


def _check(mu: Tensor, kappa: Tensor, n: int) -> tuple[torch.Size, int]:
    if mu.ndim < 1 or mu.shape[-1] < 2 or not mu.is_floating_point():
        raise ValueError(f"mu must have shape (*batch, M) with M >= 2, floating, got {tuple(mu.shape)} {mu.dtype}")
    batch = mu.shape[:-1]
    try:
        fits = torch.broadcast_shapes(kappa.shape, batch) == batch
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(f"kappa must broadcast to the batch {tuple(batch)} of mu, got {tuple(kappa.shape)}")
    if n < 0:
        raise ValueError(f"n must be >= 0 samples, got {n}")
    if kappa.device.type == "cpu" and (kappa < 0).any():
        raise ValueError(f"kappa must be >= 0, got {kappa.min().item():g} among {kappa.numel()} values")
    return batch, mu.shape[-1]


def proposal_constants(kappa: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return x0 and sqrt(1 - x0^2), the latter without cancellation; NaN for a negative kappa."""
    b = (dim - 1) / (2 * kappa + (4 * kappa.square() + (dim - 1) ** 2).sqrt())
    b = torch.where(kappa < 0, torch.nan, b)
    return (1 - b) / (1 + b), 2 * b.sqrt() / (1 + b)


def _uniform_cosine(shape: torch.Size, dim: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return first coordinates of uniform directions: r cos(angle) with r^2 = 1 - u^(2/(M-2))."""
    angle = torch.rand(shape, dtype=like.dtype, device=like.device, generator=generator)
    cosine = angle.mul_(2 * math.pi).cos_()
    if dim > 2:
        u = torch.rand(shape, dtype=like.dtype, device=like.device, generator=generator)
        cosine *= u.log_().mul_(2 / (dim - 2)).expm1_().neg_().sqrt_()
    return cosine.clamp_(min=-1 + 1e-15)


def _propose(x0: Tensor, dim: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Return one proposal t per element of x0, and whether it is accepted."""
    t = _uniform_cosine(x0.shape, dim, x0, generator)
    y = x0 * t
    height = torch.rand(x0.shape, dtype=x0.dtype, device=x0.device, generator=generator).log_()
    return t, height <= (dim - 1) * (y / (1 + y) - y.log1p())


def _draw(x0: Tensor, n: int, dim: int, generator: torch.Generator | None) -> Tensor:
    """Return the accepted t, shape (n, *batch), float64."""
    x0 = x0.expand(n, *x0.shape)
    return _draw_by_looking(x0, dim, generator) if x0.device.type == "cpu" else _draw_blindly(x0, dim, generator)


def _draw_by_looking(x0: Tensor, dim: int, generator: torch.Generator | None) -> Tensor:
    t, accepted = _propose(x0, dim, generator)
    drawn, x0, pending = t.view(-1), x0.reshape(-1), (~accepted).view(-1).nonzero().squeeze(1)
    for _ in range(PATIENCE):
        if len(pending) == 0:
            break
        drawn[pending], accepted = _propose(x0[pending], dim, generator)
        pending = pending[~accepted]
    return t


def _draw_blindly(x0: Tensor, dim: int, generator: torch.Generator | None) -> Tensor:
    t, done = torch.zeros_like(x0), torch.zeros_like(x0, dtype=torch.bool)
    for _ in range(ROUNDS):
        proposals, accepted = _propose(x0.expand(PROPOSALS, *x0.shape), dim, generator)
        first = accepted.byte().argmax(0, keepdim=True)
        t = torch.where(done, t, proposals.gather(0, first).squeeze(0))
        done |= accepted.any(0)
    return t


class _Assemble(torch.autograd.Function):
    """z = w mu + sqrt(1-w^2) v, with the gradients of implicit reparametrisation.

    Writing dw/dkappa = (1-w^2) phi, dz/dkappa . g = phi (g.mu - w g.z), which divides by nothing; and a tangent that
    is carried along a turn of mu gives the gradient w g - (g.mu) z, less its part along mu.
    """

    @staticmethod
    def forward(
        ctx: Any, mu: Tensor, kappa: Tensor, x0: Tensor, sine_scale: Tensor, t: Tensor, noise: Tensor
    ) -> Tensor:
        below = 1 + x0 * t
        cosine = ((x0 + t) / below).to(mu.dtype)
        sine = (sine_scale * (1 - t.square()).clamp(min=0).sqrt() / below).to(mu.dtype)
        noise.addcmul_((noise * mu).sum(-1, keepdim=True), mu, value=-1)
        scale = sine / noise.norm(dim=-1)
        z = noise.mul_(scale.unsqueeze(-1)).addcmul_(cosine.unsqueeze(-1), mu)
        ctx.mark_dirty(noise)
        ctx.save_for_backward(mu, kappa, x0, t, cosine, z)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        mu, kappa, x0, t, cosine, z = ctx.saved_tensors
        along = (grad * mu).sum(-1)  # g.mu, shape (n, *batch)
        grad_mu = grad_kappa = None
        if ctx.needs_input_grad[0]:
            grad_mu = (cosine.unsqueeze(-1) * grad).addcmul_(along.unsqueeze(-1), z, value=-1).sum(0)
            grad_mu = grad_mu - (grad_mu * mu).sum(-1, keepdim=True) * mu
        if ctx.needs_input_grad[1]:
            phi = motion_over_sine_squared(t, x0, mu.shape[-1])
            grad_kappa = (phi * (along - cosine * (grad * z).sum(-1))).sum(0).to(kappa.dtype)
        return grad_mu, grad_kappa, None, None, None, None
