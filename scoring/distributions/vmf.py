"""The von Mises-Fisher distribution: p(z) = C_M(kappa) exp(kappa mu.z) on the unit sphere in M dimensions.

Everything but the sampler is computed in float64 and returned in it, whatever comes in; `bessel` says how the
normaliser stays exact from kappa = 0 to 1e6 and for M from 2 to 4096.

A negative kappa is a ValueError on the CPU. On a GPU, where looking would stall the stream, it gives NaN.

Source: Mardia & Jupp 2000, "Directional Statistics", sec. 9.3; Kirchhof et al. 2023 (MCInfoNCE), eq. 1.
"""

import math

import torch
from torch import Tensor

from scoring.distributions.bessel import log_series, ratio
from scoring.distributions.vmf_quantiles import credible_cosine
from scoring.distributions.vmf_sampler import sample

__all__ = [
    "credible_cosine",
    "entropy",
    "kl",
    "kl_at_cosine",
    "kl_to_uniform",
    "log_expected_likelihood",
    "log_normalizer",
    "log_prob",
    "log_prob_at_cosine",
    "mean_cosine",
    "sample",
]


def _log_uniform(dim: int) -> float:
    """Return the log-density of the uniform distribution: minus the log-area of the sphere."""
    return math.lgamma(dim / 2) - math.log(2) - dim / 2 * math.log(math.pi)


def _checked(kappa: Tensor, dim: int) -> Tensor:
    """Return kappa in float64; ValueError if it is negative (NaN there on a GPU) or ``dim`` < 2."""
    if dim < 2:
        raise ValueError(f"the sphere needs dim >= 2, got {dim}")
    kappa = kappa.double()
    if kappa.device.type != "cpu":
        return torch.where(kappa < 0, torch.nan, kappa)
    if (kappa < 0).any():
        raise ValueError(f"kappa must be >= 0, got {kappa.min().item():g} among {kappa.numel()} values")
    return kappa


def _check_shapes(**shapes: torch.Size) -> None:
    try:
        torch.broadcast_shapes(*shapes.values())
    except RuntimeError:
        listed = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ValueError(f"shapes must broadcast, got {listed}") from None


def _shared_dim(first: Tensor, second: Tensor) -> int:
    if first.ndim < 1 or second.ndim < 1 or first.shape[-1] != second.shape[-1]:
        raise ValueError(
            f"both need shape (..., M) with the same M, got {tuple(first.shape)} and {tuple(second.shape)}"
        )
    return first.shape[-1]


def log_normalizer(kappa: Tensor, dim: int) -> Tensor:
    """Return log C_M(kappa), the constant in log p(z) = kappa mu.z + log C_M(kappa); decreasing in kappa.

    Args:
        kappa: concentration, any shape, finite, >= 0; 0 is the uniform distribution.
        dim: M, the dimension of the space that holds the sphere, >= 2.

    Returns:
        Same shape, float64; its gradient is exactly ``-mean_cosine(kappa, dim)``, and that one has a gradient too.

    Raises:
        ValueError: if ``dim`` < 2 or a kappa is negative.

    >>> round(log_normalizer(torch.tensor(10.0), 512).item(), 6)
    867.870465
    """
    return _log_uniform(dim) - log_series(_checked(kappa, dim).square(), dim)


def mean_cosine(kappa: Tensor, dim: int) -> Tensor:
    """Return A_M(kappa) = E[mu.z], the mean resultant length; increasing in kappa.

    Args:
        kappa: concentration, any shape, finite, >= 0.
        dim: M >= 2.

    Returns:
        Same shape, float64, in [0, 1), differentiable any number of times: A' = 1 - A^2 - (M-1) A / kappa.

    Raises:
        ValueError: if ``dim`` < 2 or a kappa is negative.

    >>> round(mean_cosine(torch.tensor(100.0), 512).item(), 6)
    0.188405
    """
    kappa = _checked(kappa, dim)
    return kappa * ratio(kappa.square(), dim)


def log_prob_at_cosine(cosine: Tensor, kappa: Tensor, dim: int) -> Tensor:
    """Return the log-density at a cosine mu.z; increasing in the cosine.

    Args:
        cosine: shape (...), in [-1, 1].
        kappa: concentrations, broadcastable with ``cosine``, >= 0.
        dim: M >= 2.

    Returns:
        Nats, the broadcast shape, float64, differentiable in both.

    Raises:
        ValueError: if ``dim`` < 2, a kappa is negative or the shapes do not broadcast.
    """
    _check_shapes(cosine=cosine.shape, kappa=kappa.shape)
    return kappa.double() * cosine.double() + log_normalizer(kappa, dim)


def log_prob(z: Tensor, mu: Tensor, kappa: Tensor) -> Tensor:
    """Return the log-density of ``z``; highest at ``mu``.

    Args:
        z: unit vectors, shape (..., M).
        mu: mean directions, unit vectors, broadcastable with ``z``.
        kappa: concentrations, broadcastable with the shape (...), >= 0.

    Returns:
        Nats, shape (...), float64, differentiable in all three.

    Raises:
        ValueError: if M < 2 or differs, a kappa is negative or the shapes do not broadcast.
    """
    dim = _shared_dim(z, mu)
    _check_shapes(z=z.shape[:-1], mu=mu.shape[:-1], kappa=kappa.shape)
    return log_prob_at_cosine(_dot(z, mu), kappa, dim)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the inner products in float64; as a matrix product if the shapes broadcast to pairs."""
    return torch.einsum("...m,...m->...", a.double(), b.double())


def entropy(kappa: Tensor, dim: int) -> Tensor:
    """Return the differential entropy in nats; decreasing in kappa.

    Args:
        kappa: concentration, any shape, finite, >= 0.
        dim: M >= 2.

    Returns:
        -log C_M(kappa) - kappa A_M(kappa), same shape, float64; at kappa = 0 the log-area of the sphere.

    Raises:
        ValueError: if ``dim`` < 2 or a kappa is negative.

    >>> round(entropy(torch.tensor(1000.0), 128).item(), 6)
    -262.406367
    """
    return -_log_uniform(dim) - kl_to_uniform(kappa, dim)


def kl_to_uniform(kappa: Tensor, dim: int) -> Tensor:
    """Return KL(vMF(kappa) || uniform) in nats, >= 0; 0 at kappa = 0, increasing in kappa.

    Args:
        kappa: concentration, any shape, finite, >= 0.
        dim: M >= 2.

    Returns:
        Same shape, float64, with relative accuracy down to kappa = 0.

    Raises:
        ValueError: if ``dim`` < 2 or a kappa is negative.
    """
    squared = _checked(kappa, dim).square()
    return squared * ratio(squared, dim) - log_series(squared, dim)


def kl(mu1: Tensor, kappa1: Tensor, mu2: Tensor, kappa2: Tensor) -> Tensor:
    """Return KL(vMF(mu1, kappa1) || vMF(mu2, kappa2)) in nats, >= 0, and exactly 0 for equal ones.

    Args:
        mu1: mean directions, unit vectors, shape (..., M).
        kappa1: concentrations, broadcastable with the shape (...), finite, >= 0.
        mu2: as ``mu1``, broadcastable with it.
        kappa2: as ``kappa1``.

    Returns:
        Shape (...), float64, differentiable in all four.

    Raises:
        ValueError: if M < 2 or differs, a kappa is negative or the shapes do not broadcast.
    """
    dim = _shared_dim(mu1, mu2)
    _check_shapes(mu1=mu1.shape[:-1], kappa1=kappa1.shape, mu2=mu2.shape[:-1], kappa2=kappa2.shape)
    return _kl((mu1.double() - mu2.double()).square().sum(-1) / 2, kappa1, kappa2, dim)


def kl_at_cosine(cosine: Tensor, kappa1: Tensor, kappa2: Tensor, dim: int) -> Tensor:
    """Return KL(vMF(mu1, kappa1) || vMF(mu2, kappa2)) in nats, >= 0, from the cosine mu1.mu2.

    For all pairs at once, whose cosines are a matrix product; between equals it is 0 up to the rounding of the cosine.

    Args:
        cosine: shape (...), in [-1, 1].
        kappa1: concentrations, broadcastable with ``cosine``, finite, >= 0.
        kappa2: as ``kappa1``.
        dim: M >= 2.

    Returns:
        The broadcast shape, float64, differentiable in all three.

    Raises:
        ValueError: if ``dim`` < 2, a kappa is negative or the shapes do not broadcast.
    """
    _check_shapes(cosine=cosine.shape, kappa1=kappa1.shape, kappa2=kappa2.shape)
    return _kl((1 - cosine.double()).clamp(min=0), kappa1, kappa2, dim)


def _kl(apart: Tensor, kappa1: Tensor, kappa2: Tensor, dim: int) -> Tensor:
    """Return the KL divergence for two directions with 1 - mu1.mu2 = ``apart``."""
    kappa1, kappa2 = _checked(kappa1, dim), _checked(kappa2, dim)
    cosine1 = mean_cosine(kappa1, dim)
    between_kappas = log_normalizer(kappa1, dim) - log_normalizer(kappa2, dim) + cosine1 * (kappa1 - kappa2)
    return between_kappas.clamp(min=0) + cosine1 * kappa2 * apart


def log_expected_likelihood(mu1: Tensor, kappa1: Tensor, mu2: Tensor, kappa2: Tensor, *, power: float = 1.0) -> Tensor:
    """Return the log of a probability product kernel, the integral of (p1 p2)^power; higher where directions agree.

    power (log C(kappa1) + log C(kappa2)) - log C(power |kappa1 mu1 + kappa2 mu2|): at a power of 1 the expected
    likelihood kernel, at 1/2 the Bhattacharyya coefficient, whose logarithm is <= 0, and 0 between equals. Shapes
    (N, 1, M) and (1, N, M) give all pairs through a matrix product.

    Args:
        mu1: mean directions, unit vectors, shape (..., M).
        kappa1: concentrations, broadcastable with the shape (...), finite, >= 0.
        mu2: as ``mu1``, broadcastable with it.
        kappa2: as ``kappa1``.
        power: of the densities, > 0.

    Returns:
        Nats, shape (...), float64, differentiable in all four; finite with finite gradients also where the resultant
        vanishes (opposite directions of equal kappa).

    Raises:
        ValueError: if M < 2 or differs, a kappa is negative or the shapes do not broadcast.

    Source: Kirchhof et al. 2023 (MCInfoNCE), eq. 55; Kirchhof et al. 2022, arXiv:2207.03784, supplement C and D.
    """
    dim = _shared_dim(mu1, mu2)
    _check_shapes(mu1=mu1.shape[:-1], kappa1=kappa1.shape, mu2=mu2.shape[:-1], kappa2=kappa2.shape)
    kappa1, kappa2 = _checked(kappa1, dim), _checked(kappa2, dim)
    squared = (kappa1 - kappa2).square() + 2 * kappa1 * kappa2 * (1 + _dot(mu1, mu2))
    resultant = log_series(power**2 * squared.clamp(min=0), dim)
    apart = log_series(kappa1.square(), dim) + log_series(kappa2.square(), dim)
    return (2 * power - 1) * _log_uniform(dim) - power * apart + resultant
