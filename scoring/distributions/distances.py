"""Seven distances between an image and a class, either of which may be a distribution on the sphere.

Each is a pure function of C proxies, the distributions of the classes, and B images, and returns shape (B, C). Lower is
nearer; exp(-d/t) weighs the classes of a loss. Three take an image for a point: ``cosine``, ``squared_euclidean`` and
``nivmf_point``. The other four take it for a von Mises-Fisher distribution.

Source: Kirchhof et al. 2022, arXiv:2207.03784, sec. 3.3 and supplements C to E.
"""

import math
from typing import NamedTuple

from torch import Tensor

from scoring.distributions import nivmf, vmf


class Directions(NamedTuple):
    """Distributions on the sphere.

    Attributes:
        mu: unit vectors, shape (N, M).
        kappa: concentrations; shape (N,), >= 0, of von Mises-Fisher distributions, or (N, M), > 0, of non-isotropic
            ones.
    """

    mu: Tensor
    kappa: Tensor


def cosine(proxies: Directions, images: Directions) -> Tensor:
    """Return -cos(mu_p, mu_z), in [-1, 1], without kappa (the paper's d_Cos)."""
    return -(images.mu @ proxies.mu.T)


def squared_euclidean(proxies: Directions, images: Directions) -> Tensor:
    """Return |kappa_p mu_p - kappa_z mu_z|^2, >= 0 (the paper's d_L2); proxies have one kappa each."""
    p, z = proxies.kappa, images.kappa[:, None]
    return (p - z).square() + 2 * p * z * (1 - images.mu @ proxies.mu.T).clamp(min=0)


def nivmf_point(proxies: Directions, images: Directions, *, published: bool = False) -> Tensor:
    """Return -log rho(mu_z) in nats, float64, rho the non-isotropic density of a proxy (the paper's d_nivMF).

    Args:
        proxies: with kappa of shape (C, M).
        images: kappa is ignored.
        published: use the published measure instead of the density.
    """
    return -_log_rho(images.mu, proxies, published=published)


def expected_likelihood_nivmf(proxies: Directions, draws: Tensor, *, published: bool = False) -> Tensor:
    """Return -log of the mean over draws of rho(z) in nats, float64: the paper's d_EL-nivMF, equation 5.

    Args:
        proxies: with kappa of shape (C, M).
        draws: unit vectors from the images' distributions, shape (S, B, M), S >= 1, as ``vmf.sample`` gives them.
        published: use the published measure instead of the density.
    """
    return math.log(len(draws)) - _log_rho(draws, proxies, published=published).logsumexp(0)


def expected_likelihood(proxies: Directions, images: Directions) -> Tensor:
    """Return -log of the integral of rho zeta in nats, float64: the paper's d_EL-vMF, equation 35.

    As printed, equations 29 and 35 have the opposite sign of what 26 and 32 give; this is the latter.
    """
    return -_product_kernel(proxies, images, 1.0)


def bhattacharyya(proxies: Directions, images: Directions) -> Tensor:
    """Return -log of the integral of sqrt(rho zeta) in nats, >= 0, float64: the paper's d_B-vMF, equation 29."""
    return -_product_kernel(proxies, images, 0.5)


def kullback_leibler(proxies: Directions, images: Directions) -> Tensor:
    """Return KL(zeta || rho) in nats, >= 0, float64, of image from class: the paper's d_KL-vMF.

    Equation 39 puts mu_z where the mean of zeta belongs, A_M(kappa_z) mu_z; this is the divergence itself.
    """
    return vmf.kl_at_cosine(images.mu @ proxies.mu.T, images.kappa[:, None], proxies.kappa, proxies.mu.shape[1])


def _product_kernel(proxies: Directions, images: Directions, power: float) -> Tensor:
    pairs = (images.mu[:, None], images.kappa[:, None], proxies.mu[None], proxies.kappa[None])
    return vmf.log_expected_likelihood(*pairs, power=power)


def _log_rho(z: Tensor, proxies: Directions, *, published: bool) -> Tensor:
    """Return log rho of every class at every point, shape (..., C), from points (..., M)."""
    density = nivmf.log_prob_published if published else nivmf.log_prob
    return density(z.unsqueeze(-2), proxies.mu, proxies.kappa)
