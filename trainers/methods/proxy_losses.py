"""Losses of deep metric learning with proxies: one point, or one distribution, per class."""

import torch.nn.functional as F
from torch import Tensor


def proxy_nca(distances: Tensor, labels: Tensor, temperature: Tensor | float) -> Tensor:
    """Return -log of the softmax weight e^(-d/t) of the right class, averaged over images, in nats.

    Args:
        distances: of images from classes, shape (B, C).
        labels: shape (B,), int64, in [0, C).
        temperature: t, > 0.

    Source: Teh, DeVries & Taylor 2020 (ProxyNCA++), arXiv:2004.01113, eq. 6; Kirchhof et al. 2022, arXiv:2207.03784,
    eq. 2. As printed there, the sign of the loss is missing.
    """
    return F.cross_entropy(-distances / temperature, labels)


def proxy_anchor(cosines: Tensor, labels: Tensor, *, alpha: float = 32.0, delta: float = 0.1) -> Tensor:
    """Return the Proxy-Anchor loss: proxies pull the hardest images of their class and push the hardest others.

    mean over classes of the batch of log(1 + sum over their images of e^(-alpha (s - delta))), and mean over all
    classes of log(1 + sum over images of others of e^(alpha (s + delta))).

    Args:
        cosines: s, of images and proxies, shape (B, C).
        labels: shape (B,), int64, in [0, C).
        alpha: scale, > 0.
        delta: margin.

    Source: Kim et al. 2020, arXiv:2003.13911, eq. 4.
    """
    of_label = F.one_hot(labels, cosines.shape[1]).bool()
    pull = (-alpha * (cosines - delta)).masked_fill(~of_label, -float("inf"))
    push = (alpha * (cosines + delta)).masked_fill(of_label, -float("inf"))
    present = of_label.any(0)
    pulls = _log1p_sum(pull[:, present])
    return pulls.mean() + _log1p_sum(push).mean()


def _log1p_sum(exponents: Tensor) -> Tensor:
    """Return log(1 + sum_i e^x_i) for every column, shape (C,)."""
    return F.pad(exponents, (0, 0, 0, 1)).logsumexp(0)
