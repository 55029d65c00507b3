"""The distributions on the sphere as ``torch.distributions`` classes.

Densities, entropies and divergences are float64 whatever comes in: in thousands of dimensions float32 would round
them by 1e-3. Samples have the dtype of ``loc``.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl
from torch.distributions.constraints import Constraint

from scoring.distributions import nivmf, power_spherical, vmf

UNIT = 1e-3  # tolerance of unit lengths
NODES, SPAN = 96, 10.0  # of Gauss-Legendre in each part of an angle; standard deviations that they cover
SEED = 0


class _Sphere(Constraint):
    """Unit vectors."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value.norm(dim=-1) - 1).abs() < UNIT


SPHERE = _Sphere()


class _Spherical(Distribution, ABC):
    """The common part of the three: a direction ``loc``, and a differentiable sampler."""

    has_rsample = True
    support = SPHERE
    loc: Tensor
    concentration: Tensor

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Return unit vectors of shape (*sample_shape, *batch_shape, M), differentiable in both parameters."""
        shape = torch.Size(sample_shape)
        return self._draw(shape.numel()).view(*shape, *self.batch_shape, *self.event_shape)

    @abstractmethod
    def _draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Return n samples of each distribution, shape (n, *batch_shape, M)."""


class _Symmetric(_Spherical):
    """A distribution around its mean direction, with one concentration."""

    arg_constraints: ClassVar = {"loc": SPHERE, "concentration": constraints.nonnegative}

    def __init__(self, loc: Tensor, concentration: Tensor | float, validate_args: bool | None = None) -> None:
        kappa = torch.as_tensor(concentration, dtype=loc.dtype, device=loc.device)
        batch = torch.broadcast_shapes(loc.shape[:-1], kappa.shape)
        self.loc, self.concentration = loc.expand(*batch, loc.shape[-1]), kappa.expand(batch)
        super().__init__(batch, loc.shape[-1:], validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "_Symmetric":
        """Return the distribution with a larger batch."""
        shape = torch.Size(batch_shape)
        return type(self)(self.loc.expand(*shape, *self.event_shape), self.concentration.expand(shape), False)

    @property
    def dim(self) -> int:
        """M, the dimension of the space that holds the sphere."""
        return self.event_shape[0]

    @property
    def mode(self) -> Tensor:
        """The direction of the greatest density."""
        return self.loc


class VonMisesFisher(_Symmetric):
    """C_M(kappa) exp(kappa loc.z), exact in thousands of dimensions; see ``scoring.distributions.vmf``.

    Args:
        loc: mean directions, unit vectors, shape (*batch, M), M >= 2.
        concentration: kappa >= 0, broadcastable to the batch.

    >>> loc = torch.nn.functional.one_hot(torch.tensor(0), 512).float()
    >>> round(VonMisesFisher(loc, 100.0).entropy().item(), 4)
    -877.2197
    """

    @property
    def mean(self) -> Tensor:
        """E[z], of length A_M(kappa)."""
        return (vmf.mean_cosine(self.concentration, self.dim).unsqueeze(-1) * self.loc).to(self.loc.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log-density in nats, shape (*sample, *batch), float64."""
        if self._validate_args:
            self._validate_sample(value)
        return vmf.log_prob(value, self.loc, self.concentration)

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats, shape (*batch), float64."""
        return vmf.entropy(self.concentration, self.dim)

    def _draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        return vmf.sample(self.loc, self.concentration, n, generator)


class PowerSpherical(_Symmetric):
    """Proportional to (1 + loc.z)^kappa; see ``scoring.distributions.power_spherical``.

    Args:
        loc: mean directions, unit vectors, shape (*batch, M), M >= 2.
        concentration: kappa >= 0, broadcastable to the batch.
    """

    @property
    def mean(self) -> Tensor:
        """E[z]."""
        cosine = power_spherical.mean_cosine(self.concentration, self.dim)
        return (cosine.unsqueeze(-1) * self.loc).to(self.loc.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log-density in nats, shape (*sample, *batch), float64."""
        if self._validate_args:
            self._validate_sample(value)
        return power_spherical.log_prob(value, self.loc, self.concentration)

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats, shape (*batch), float64."""
        return power_spherical.entropy(self.concentration, self.dim)

    def _draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        loc = self.loc.expand(n, *self.loc.shape)
        rows = loc.reshape(-1, self.dim)
        return power_spherical.sample(rows, self.concentration.expand(loc.shape[:-1]).reshape(-1), generator=generator)


class NonIsotropicVMF(_Spherical):
    """A distribution with one concentration per axis; see ``scoring.distributions.nivmf``.

    Entropy and divergence have no closed form: one expectation is estimated from ``draws`` samples with a fixed seed.
    The entropy is exact if all concentrations of a distribution are equal.

    Args:
        loc: unit vectors, shape (*batch, M), M >= 2.
        concentration: the diagonal of K, > 0, broadcastable with ``loc``.
        draws: samples of an expectation.
    """

    arg_constraints: ClassVar = {"loc": SPHERE, "concentration": constraints.independent(constraints.positive, 1)}

    def __init__(
        self, loc: Tensor, concentration: Tensor, draws: int = 4096, validate_args: bool | None = None
    ) -> None:
        shape = torch.broadcast_shapes(loc.shape, concentration.shape)
        self.loc, self.concentration, self.draws = loc.expand(shape), concentration.expand(shape), draws
        super().__init__(shape[:-1], shape[-1:], validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "NonIsotropicVMF":
        """Return the distribution with a larger batch."""
        shape = (*torch.Size(batch_shape), *self.event_shape)
        return NonIsotropicVMF(self.loc.expand(shape), self.concentration.expand(shape), self.draws, False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log-density in nats, shape (*sample, *batch), float64."""
        if self._validate_args:
            self._validate_sample(value)
        return nivmf.log_prob(value, self.loc, self.concentration)

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats, shape (*batch), float64: all exact but E[log |K z|]."""
        kappas = self.concentration.double()
        dim = self.event_shape[0]
        of_length = (kappas * self._seeded().double()).norm(dim=-1).log().mean(0)
        mapped = vmf.entropy((kappas * self.loc.double()).norm(dim=-1), dim)
        return mapped - kappas.log().sum(-1) + dim * of_length

    def _seeded(self) -> Tensor:
        generator = torch.Generator(self.loc.device).manual_seed(SEED)
        return self._draw(self.draws, generator)  # (draws, *batch, M)

    def _draw(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        return nivmf.sample(self.loc, self.concentration, n, generator)


@register_kl(VonMisesFisher, VonMisesFisher)  # type: ignore[untyped-decorator]
def _kl_vmf(p: VonMisesFisher, q: VonMisesFisher) -> Tensor:
    return vmf.kl(p.loc, p.concentration, q.loc, q.concentration)


@register_kl(NonIsotropicVMF, NonIsotropicVMF)  # type: ignore[untyped-decorator]
def _kl_nivmf(p: NonIsotropicVMF, q: NonIsotropicVMF) -> Tensor:
    return -p.entropy() - nivmf.log_prob(p._seeded(), q.loc, q.concentration).mean(0)


@register_kl(PowerSpherical, PowerSpherical)  # type: ignore[untyped-decorator]
def _kl_power_spherical(p: PowerSpherical, q: PowerSpherical) -> Tensor:
    """-H(p) - log N(q) - kappa_q E_p[log(1 + mu_q.z)]; the expectation is integrated over two angles."""
    near, far = ((p.loc.double() + sign * q.loc.double()).norm(dim=-1) for sign in (-1, 1))
    expected = _mean_log1p(p.concentration, 2 * torch.atan2(near, far), p.dim)
    return -p.entropy() - power_spherical.log_normalizer(q.concentration, q.dim) - q.concentration.double() * expected


def _mean_log1p(kappa: Tensor, alpha: Tensor, dim: int) -> Tensor:
    """Return E[log(1 + mu'.z)] of a power spherical z around mu, where alpha is the angle between mu and mu'.

    With 2x the angle of z from mu and phi the angle of its tangent from mu's,
    1 + mu'.z = 2 cos^2(x + alpha/2) + 2 sin 2x sin alpha cos^2(phi/2); the densities of x and phi are of a beta and of
    a uniform direction of M - 1 dimensions. The logarithm has its pole at x = (pi - alpha)/2, where both sides of the
    integral begin, with nodes that are denser near it.
    """
    kappa, alpha = torch.broadcast_tensors(kappa.double(), alpha)
    points, weights = (torch.from_numpy(array).to(kappa.device) for array in np.polynomial.legendre.leggauss(NODES))
    a, b = (dim - 1) / 2 + kappa, (dim - 1) / 2
    # x has the density cos^(2a-1) x sin^(2b-1) x, with its mode at the angle below
    mode = torch.atan2(torch.tensor(max(2 * b - 1, 0.0)).sqrt().double().to(kappa), (2 * a - 1).clamp(min=1e-12).sqrt())
    reach = SPAN / (2 * (a + b).sqrt())
    ends = (mode - reach).clamp(min=1e-12).detach(), (mode + reach).clamp(max=math.pi / 2).detach()
    pole = ((math.pi - alpha) / 2).clamp(*ends)
    share = (1 + points) / 2  # of the way from the pole to an end, to the third power
    length = torch.stack([end - pole for end in ends], -1).unsqueeze(-1)  # (..., 2, 1)
    x = (pole[..., None, None] + length * share**3).flatten(-2)  # (..., nodes)
    area = (length.abs() * share.square() * weights).flatten(-2)
    log_density = (2 * a - 1).unsqueeze(-1) * x.cos().log() + (2 * b - 1) * x.sin().log()
    density = (log_density - log_density.amax(-1, keepdim=True)).exp() * area
    if dim == 2:  # in two dimensions there are two tangent directions
        turn, of_turn = kappa.new_tensor([0.0, 1.0]), kappa.new_tensor([0.5, 0.5])
    else:
        phi = math.pi / 2 + min(math.pi / 2, SPAN / math.sqrt(dim - 1)) * points
        turn = (phi / 2).cos().square()
        of_turn = torch.softmax((dim - 3) * phi.sin().log() + weights.log(), dim=-1)
    half = alpha.unsqueeze(-1) / 2
    along, across = 2 * (x + half).cos().square(), 2 * (2 * x).sin() * (2 * half).sin()
    inside = along.unsqueeze(-1) + across.unsqueeze(-1) * turn  # (..., nodes, turns)
    mean = (inside.clamp(min=1e-30).log() * of_turn).sum(-1)
    return (density * mean).sum(-1) / density.sum(-1)
