"""The non-isotropic von Mises-Fisher distribution: a concentration per axis.

With K = diag(kappa_1 .. kappa_M) > 0 the map T(z) = K z / |K z| takes the sphere to itself. Where T(Z) is von
Mises-Fisher around T(mu) with concentration |K mu|, Z has the density

    p(z) = C_M(|K mu|) exp(|K mu| cos(K z, K mu)) |det K| / |K z|^M,

the last factor being how T changes areas. It integrates to 1, and K = kappa I gives the von Mises-Fisher density. The
paper has D(K) = |det K| / |K mu| instead of that factor, a constant, and says that the result is no density; it is
``log_prob_published`` here, for comparison.

The paper calls mu the mode. It is where T(z) agrees with T(mu), but where K spreads widely the areas move the
mode away from it, towards axes of a small kappa.

Everything but draws is computed in float64 and returned in it.

Source: Kirchhof et al. 2022, arXiv:2207.03784, eq. 4 and supplement B; the factor of area is as in the angular
central Gaussian distribution, Tyler 1987, Biometrika 74(3).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from scoring.distributions import vmf


def log_prob(z: Tensor, mu: Tensor, kappas: Tensor) -> Tensor:
    """Return the log-density of ``z``; highest if K z points in the direction of K mu.

    Shapes (N, 1, M), (C, M) and (C, M) give all pairs through two matrix products.

    Args:
        z: unit vectors, shape (..., M).
        mu: unit vectors, broadcastable with ``z``.
        kappas: the diagonal of K, broadcastable with ``z``, finite, > 0.

    Returns:
        Nats, shape (...), float64, differentiable in all three.

    Raises:
        ValueError: if M < 2 or differs, a kappa is not above 0 (on a GPU that gives NaN), or the shapes do not
            broadcast.

    >>> z, mu = torch.tensor([0.6, 0.8], dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)
    >>> alike = log_prob(z, mu, torch.tensor([5.0, 5.0])) - vmf.log_prob(z, mu, torch.tensor(5.0))
    >>> abs(alike.item()) < 1e-12
    True
    """
    z, mu, kappas = _checked(z, mu, kappas)
    scale = kappas.log().mean(-1, keepdim=True)
    stretch = (kappas.log() - scale).exp()  # K less its size, of determinant 1: an isotropic one is 1 exactly
    length = (stretch * mu).norm(dim=-1)  # |K mu| / size
    stretched = _dot(z.square(), stretch.square())  # |K z|^2 / size^2
    kappa = scale.squeeze(-1).exp() * length
    cosine = _dot(z, stretch.square() * mu) / stretched.sqrt() / length
    return vmf.log_prob_at_cosine(cosine, kappa, mu.shape[-1]) - mu.shape[-1] / 2 * stretched.log()


def log_prob_published(z: Tensor, mu: Tensor, kappas: Tensor) -> Tensor:
    """Return the logarithm of the published measure, which is not a density: its integral is not 1.

    C_M(|K mu|) exp(|K mu| cos(K z, K mu)) |det K| / |K mu|. Where K = kappa I it is kappa^(M-1) times the von
    Mises-Fisher density. Arguments, shapes and errors are as in ``log_prob``.

    Source: Kirchhof et al. 2022, arXiv:2207.03784, eq. 4 with D(K) of eq. 19.
    """
    z, mu, kappas = _checked(z, mu, kappas)
    concentration = (kappas * mu).norm(dim=-1)
    of_areas = kappas.log().sum(-1) - concentration.log()
    cosine = _dot(z, kappas.square() * mu) / _dot(z.square(), kappas.square()).sqrt() / concentration
    return vmf.log_prob_at_cosine(cosine, concentration, mu.shape[-1]) + of_areas


def sample(mu: Tensor, kappas: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw ``n`` unit vectors from each distribution, differentiable in ``mu`` and ``kappas``.

    Args:
        mu: unit vectors, shape (*batch, M), floating.
        kappas: the diagonals of K, broadcastable with ``mu``, > 0.
        n: samples of each, >= 0.
        generator: where the random numbers come from; without one, torch's own for the device.

    Returns:
        Shape (n, *batch, M), in the dtype and on the device of ``mu``.

    Raises:
        ValueError: as ``log_prob``; if ``n`` is negative.
    """
    _, wide, kappas = _checked(mu, mu, kappas)
    direction = kappas * wide
    concentration = direction.norm(dim=-1)
    mapped = vmf.sample(F.normalize(direction, dim=-1), concentration, n, generator)
    return F.normalize(mapped / kappas, dim=-1).to(mu.dtype)


def _checked(z: Tensor, mu: Tensor, kappas: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return all three in float64; ValueError if they do not define a density."""
    shapes = [tuple(part.shape) for part in (z, mu, kappas)]
    dims = {shape[-1] if shape else 0 for shape in shapes}
    if len(dims) > 1 or min(dims) < 2:
        raise ValueError(f"z, mu and kappas need shape (..., M) with the same M >= 2, got {shapes}")
    try:
        torch.broadcast_shapes(*shapes)
    except RuntimeError:
        raise ValueError(f"the shapes of z, mu and kappas must broadcast, got {shapes}") from None
    kappas = kappas.double()
    if kappas.device.type != "cpu":
        kappas = torch.where(kappas > 0, kappas, torch.nan)
    elif not (kappas > 0).all():
        raise ValueError(f"every kappa must be > 0, got {kappas.min().item():g} among {kappas.numel()} values")
    return z.double(), mu.double(), kappas


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.einsum("...m,...m->...", a, b)
