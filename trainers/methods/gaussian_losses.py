"""The losses of UMM as pure functions: images as diagonal Gaussians, and sets of draws from them.

N images, C Gaussians per image, M dimensions, G draws per image. Means and draws are unit vectors.

Source: Zhou et al. 2022 (UMM), arXiv:2107.08892, sec. 3.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from scoring.errors import InputError

BLOCK_CPU = 2**20  # elements of a block of cosines, 4 MB: fits the CPU cache
BLOCK_GPU = 2**27


def draw(mean: Tensor, log_variance: Tensor, samples: int) -> Tensor:
    """Return draws of every Gaussian, normalised to unit length, with gradients, shape (N, C k, M).

    Each of an image's Gaussians gives the same number of draws, which is less noisy than choosing one at random.

    Args:
        mean: shape (N, C, M).
        log_variance: same shape, of the diagonal.
        samples: k, draws of each Gaussian.

    Source: eq. 3 and 4.
    """
    noise = torch.randn(samples, *mean.shape, dtype=mean.dtype, device=mean.device)
    z = mean + (0.5 * log_variance).exp() * noise  # (k, N, C, M)
    return F.normalize(z, dim=-1).permute(1, 2, 0, 3).flatten(1, 2)


def set_loss(sets: Tensor, others: Tensor, *, temperature: float) -> Tensor:
    """Return the mean cross-entropy of identifying an image by another view's set of draws, in nats.

    -log e^{d(x_i, x'_i) / T} / sum_j e^{d(x_j, x'_i) / T}, where d is the mean inner product over all pairs of draws of
    the two sets. It equals the inner product of the sets' means, so no table of pairs is built.

    Args:
        sets: draws of x, shape (N, G, M).
        others: draws of x', shape (N, G', M).
        temperature: T, > 0.

    Raises:
        ValueError: if the shapes do not fit.

    Source: eq. 5 to 7, with the mean over images instead of their sum.
    """
    if sets.ndim != 3 or others.ndim != 3 or len(sets) != len(others) or sets.shape[2] != others.shape[2]:
        got = f"{tuple(sets.shape)} and {tuple(others.shape)}"
        raise ValueError(f"expected shapes (N, G, M) and (N, G', M), got {got}")
    logits = others.mean(1) @ sets.mean(1).T / temperature  # row i: x'_i against every x_j
    return F.cross_entropy(logits, torch.arange(len(sets), device=sets.device))


def symmetric_kl(mean: Tensor, log_variance: Tensor, other_mean: Tensor, other_log_variance: Tensor) -> Tensor:
    """Return KL(p || q) + KL(q || p) of Gaussians of diagonal covariance, shape (...), nats, >= 0, of shapes (..., M).

    1/2 sum_m [v / v' + v' / v - 2 + (mu - mu')^2 (1 / v + 1 / v')]; the logarithms of the two cancel.

    Source: eq. 8 and 9.
    """
    ratio = log_variance - other_log_variance
    precisions = (-log_variance).exp() + (-other_log_variance).exp()
    return (ratio.cosh() - 1 + 0.5 * (mean - other_mean).square() * precisions).sum(-1)


def ranking_loss(sets: Tensor, *, bins: int = 10) -> Tensor:
    """Return 1 minus the mean average precision, with every draw as a query among all others (FastAP), in [0, 1].

    Precision and recall come from a histogram of squared distances in [0, 4] with ``bins`` + 1 centres. A distance is
    assigned to its two nearest centres by linear interpolation, which is differentiable. The query is excluded. AP =
    sum_b h+_b H+_b / H_b / (G - 1): h is the count of one bin, H the cumulative count, + counts only draws of the
    query's image.

    Time is O((N G)^2 (B + M)); memory is bounded: cosines are computed in blocks, and again in the backward pass.

    Args:
        sets: unit vectors, shape (N, G, M), G >= 2.
        bins: B, >= 1.

    Raises:
        InputError: if G < 2.

    Source: UMM, eq. 11 and 12; Cakir et al. 2019, "Deep Metric Learning to Rank", eq. 7 to 11.
    """
    if sets.ndim != 3 or sets.shape[1] < 2:
        raise InputError(
            f"a ranking needs at least 2 draws of an image, so that one can be found, got shape {tuple(sets.shape)}; "
            "draw more (--set samples) or switch it off (--set lambda_r=0)"
        )
    n, group, width = sets.shape
    flat = sets.reshape(n * group, width)
    block = BLOCK_CPU if sets.device.type == "cpu" else BLOCK_GPU
    among = _CumulativeCounts.apply(flat, bins, max(1, block // len(flat)))  # H, (N G, B + 1)
    within = torch.einsum("ngm,nhm->ngh", sets, sets)
    other = ~torch.eye(group, dtype=torch.bool, device=sets.device)
    within = within.masked_select(other).view(n * group, group - 1)
    cumulated = torch.stack([_soft_step(within, number, bins).sum(1) for number in range(bins + 1)], dim=1)  # H+
    in_bin = torch.diff(cumulated, dim=1, prepend=torch.zeros_like(cumulated[:, :1]))  # h+
    least = torch.finfo(sets.dtype).tiny
    return 1 - (in_bin * cumulated / among.clamp(min=least)).sum(1).mean() / (group - 1)


def _soft_step(cosine: Tensor, number: int, bins: int) -> Tensor:
    """Return the soft cumulative count of a pair up to centre ``number``: 1 below it, 0 from the next centre on."""
    return ((cosine - 1) * (bins / 2) + number + 1).clamp(0, 1)  # a squared distance is 2 - 2 cosine, a bin is 4 / bins


class _CumulativeCounts(torch.autograd.Function):
    """Cumulative histogram counts of the other rows: unit vectors (B, M) -> (B, bins + 1)."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, bins: int, rows: int) -> Tensor:
        out = z.new_empty(len(z), bins + 1)
        for start in range(0, len(z), rows):
            cosine = _cosines_to_others(z, start, rows)
            for number in range(bins + 1):
                out[start : start + rows, number] = _soft_step(cosine, number, bins).sum(1)
        ctx.save_for_backward(z)
        ctx.bins, ctx.rows = bins, rows
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (z,), bins, rows = ctx.saved_tensors, ctx.bins, ctx.rows
        slope = torch.cat([grads[0] * (bins / 2), grads[0].new_zeros(len(z), 1)], dim=1)
        to_z = torch.zeros_like(z)
        for start in range(0, len(z), rows):
            part = slice(start, start + rows)
            distance = (1 - _cosines_to_others(z, start, rows)) * (
                bins / 2
            )  # in bins; only one soft step has a slope there
            interval = distance.floor_().clamp_(0, bins + 1).long()
            table = slope[part].gather(1, interval)
            to_z[part] += table @ z
            to_z += table.T @ z[part]
        return to_z, None, None


def _cosines_to_others(z: Tensor, start: int, rows: int) -> Tensor:
    """Return cosines of some rows with all; -3 for a row with itself, beyond the last bin."""
    cosine = z[start : start + rows] @ z.T
    cosine.diagonal(start).fill_(-3.0)
    return cosine
