"""The terms of evidence lower bounds as pure functions: diagonal Gaussians, in nats, summed over dimensions."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)


def log_likelihood(pixels: Tensor, decoded: Tensor, variance: float) -> Tensor:
    """Return log N(x; decoder(z), variance) summed over the values of an image, in nats, shape (...).

    Args:
        pixels: x, shape (..., C, H, W).
        decoded: mean predicted by the decoder, same shape.
        variance: of every value, > 0.

    Source: Bizeul et al. 2024, arXiv:2402.01399, eq. 4, first term.
    """
    squares = (pixels - decoded).square().flatten(-3).sum(-1)
    return -0.5 * (squares / variance + pixels[0, 0].numel() * (LOG_2PI + math.log(variance)))


def log_bernoulli(pixels: Tensor, decoded: Tensor) -> Tensor:
    """Return the log-likelihood of values in [0, 1] under Bernoulli distributions, summed over an image: nats, <= 0.

    Args:
        pixels: x, shape (..., C, H, W), in [0, 1].
        decoded: probabilities predicted by the decoder, same shape.

    Source: Kingma & Welling 2014, appendix C.1.
    """
    return -F.binary_cross_entropy(decoded, pixels, reduction="none").flatten(-3).sum(-1)


def entropy(log_variance: Tensor) -> Tensor:
    """Return the entropy of N(., diag e^log_variance), in nats, shape (...), from log variances of shape (..., M).

    It is 1/2 sum_m (log 2 pi e + log_variance_m).

    Source: Bizeul et al. 2024, eq. 4, second term, the expectation of -log q(z|x). Algorithm 1 as printed minimises a
    sum with +1/2 log|Sigma|, which would shrink the posterior without bound.
    """
    return 0.5 * (log_variance + LOG_2PI + 1).sum(-1)


def log_prior_of_set(
    mean: Tensor, log_variance: Tensor | None, variance: float, centre_variance: float = 0.0
) -> Tensor:
    """Return E_q log p(z^1..z^J | y): the views of an image share a centre psi, which is integrated out.

    p(z|y) = integral of p(psi) prod_j N(z^j; psi, variance) over psi. With a uniform p(psi) = 1, a dimension gives

        -1/2 [sum_j (z^j - zbar)^2 / variance + (J - 1) log(2 pi variance) + log J]

    and with p(psi) = N(0, centre_variance), where t = variance + J centre_variance,

        -1/2 [sum_j (z^j - zbar)^2 / variance + J zbar^2 / t + J log 2 pi + (J - 1) log variance + log t].

    The expectation over independent z^j ~ N(mean^j, diag e^log_variance^j) is exact: it adds (1 - 1/J) sum_j v^j to the
    first sum, and sum_j v^j / J^2 to zbar^2.

    Args:
        mean: of q(z|x), shape (J, ..., M), J >= 2.
        log_variance: of q(z|x), same shape; None for the density at z = mean.
        variance: of p(z|psi), > 0.
        centre_variance: of p(psi), > 0; 0 for a uniform p(psi).

    Returns:
        Shape (...), nats.

    Raises:
        ValueError: for fewer than two views.

    Source: Bizeul et al. 2024, eq. 9 and appendix A.4, which omit the constants; algorithm 1 uses one draw instead of
    the expectation.
    """
    views = len(mean)
    if views < 2:
        raise ValueError(f"expected two views of an image or more, got {views}")
    centre = mean.mean(0)
    within, of_centre = (mean - centre).square().sum(0), centre.square()
    if log_variance is not None:
        spread = log_variance.exp().sum(0)
        within, of_centre = within + (1 - 1 / views) * spread, of_centre + spread / views**2
    constant = (views - 1) * (LOG_2PI + math.log(variance))
    if centre_variance == 0:
        each = within / variance + constant + math.log(views)
    else:
        total = variance + views * centre_variance
        each = within / variance + views * of_centre / total + constant + LOG_2PI + math.log(total)
    return -0.5 * each.sum(-1)


def kl_to_standard(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return KL(N(mean, diag e^log_variance) || N(0, I)), shape (...), nats, >= 0, of shapes (..., M).

    Source: Kingma & Welling 2014, arXiv:1312.6114, appendix B.
    """
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)


def kl(mean: Tensor, log_variance: Tensor, other_mean: Tensor, other_log_variance: Tensor) -> Tensor:
    """Return KL between two diagonal Gaussians of shapes (..., M): shape (...), nats, >= 0."""
    gap = (mean - other_mean).square()
    ratio = (log_variance - other_log_variance).exp()
    return 0.5 * (ratio + gap * (-other_log_variance).exp() - 1 - log_variance + other_log_variance).sum(-1)


def active(mean: Tensor) -> Tensor:
    """Return the share of active dimensions of q(z|x)'s means (N, M), whose variance over N >= 2 images exceeds 0.01.

    Source: Burda et al. 2016, arXiv:1509.00519, sec. 5.2.
    """
    return (mean.var(0) > 0.01).to(torch.get_default_dtype()).mean()
