"""MCInfoNCE, InfoNCE, contrastive HIB and contrastive ELK as pure functions of mu and kappa.

All four compare B items, each a von Mises-Fisher distribution (mu, kappa), by the pairs of a ``Contrast``. Memory is
bounded: S x B x B tables are computed in blocks, which the backward pass computes again.

Source: Kirchhof et al. 2023 (MCInfoNCE), eq. 5-7, 54 and 55.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from scoring.distributions import vmf
from trainers.methods.contrast import Contrast

BLOCK_CPU = 2**19  # elements of a block, 2 MB: fits the CPU cache
BLOCK_GPU = 2**27  # 512 MB: few large kernel launches


def infonce(mu: Tensor, contrast: Contrast, *, kappa_pos: float, denominator: str = "eq7") -> Tensor:
    """Return InfoNCE of point embeddings, the limit of MCInfoNCE for kappa = inf; lower if positives are closer.

    Args:
        mu: unit vectors, shape (B, M).
        contrast: the pairs and their negatives.
        kappa_pos: concentration of positives around one another, > 0; the inverse temperature.
        denominator: see ``mcinfonce``.

    Returns:
        Scalar, nats, in the dtype of ``mu``.
    """
    return mcinfonce_of_samples(mu.unsqueeze(0), contrast, kappa_pos=kappa_pos, denominator=denominator)


def mcinfonce(
    mu: Tensor,
    kappa: Tensor,
    contrast: Contrast,
    *,
    kappa_pos: float,
    samples: int,
    denominator: str = "eq7",
    cross: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return MCInfoNCE: InfoNCE averaged over draws from the items' distributions, inside the logarithm.

    -mean_i log( 1/S sum_s e^{k z_is.p_is} / D_is ), z_is drawn from item i, p_is from its positive, and with the
    negatives' draws n_ms of the same s and their weights w_im, W_i = sum_m w_im:

    - "eq7": D = (e^{k z.p} + sum_m w_m e^{k z.n_m}) / W, equation 7;
    - "authors": D = e^{k z.p} + sum_m w_m e^{k z.n_m} / W, which the authors' code runs;
    - "negatives": D = sum_m w_m e^{k z.n_m} / W, equation 5, the limit of both for many negatives.

    Args:
        mu: unit vectors, shape (B, M).
        kappa: concentrations, shape (B,), >= 0; inf gives InfoNCE.
        contrast: the pairs and their negatives.
        kappa_pos: k, > 0.
        samples: S, number of draws per item. A small S biases kappa upwards (Figure 3 of the paper).
        denominator: which D of the three.
        cross: average over all S x S pairs of a draw of the anchor and a draw of its positive, instead of the S pairs
            with equal index of equation 7. The expectation of equation 5 is the same and the bias of small S is lower:
            16 crossed draws are almost as good as 128 paired ones, at little extra cost.
        generator: for the draws.

    Returns:
        Scalar, nats, in the dtype of ``mu``; its gradient reaches mu and kappa through the draws.

    Raises:
        ValueError: if shapes or names do not fit.

    Source: Kirchhof et al. 2023, eq. 7.
    """
    z = vmf.sample(mu, kappa, samples, generator=generator)  # (S, B, M)
    return mcinfonce_of_samples(z, contrast, kappa_pos=kappa_pos, denominator=denominator, cross=cross)


def mcinfonce_of_samples(
    z: Tensor,
    contrast: Contrast,
    *,
    kappa_pos: float,
    denominator: str = "eq7",
    cross: bool = False,
    block: int | None = None,
) -> Tensor:
    """Return MCInfoNCE of given draws z, shape (S, B, M); other arguments are as in ``mcinfonce``.

    ``block`` is the largest number of elements of a temporary table, at least one row of N; by default 2^19 on a CPU
    and 2^27 on a GPU.
    """
    _check(z, contrast)
    anchors = z[:, contrast.anchors]  # (S, P, M)
    positives, limit = z[:, contrast.positives], _block(z, block)
    weights = contrast.weights.to(z.dtype)
    negative = _NegativeSum.apply(anchors, z[:, contrast.among], weights.log(), kappa_pos, limit)  # (S, P)
    log_total = weights.sum(1).log()
    if not cross:
        positive = kappa_pos * (anchors * positives).sum(-1)  # (S, P)
        return (math.log(len(z)) - _log_ratio(positive, negative, log_total, denominator).logsumexp(0)).mean()

    def rows(some: Tensor, of_positive: Tensor, of_negative: Tensor, total: Tensor) -> Tensor:
        positive = kappa_pos * torch.einsum("spm,tpm->tsp", some, of_positive)  # (S, S, r)
        return _log_ratio(positive, of_negative, total, denominator).logsumexp((0, 1)) - 2 * math.log(len(z))

    step = max(1, limit // len(z) ** 2)
    chunks = zip(
        *(of_rows.split(step, dim=1) for of_rows in (anchors, positives, negative)), log_total.split(step), strict=True
    )
    return -torch.cat([_checkpointed(rows, *chunk, single_block=step >= len(contrast)) for chunk in chunks]).mean()


def elk(
    mu: Tensor,
    kappa: Tensor,
    contrast: Contrast,
    *,
    kappa_pos: float,
    denominator: str = "eq7",
    block: int | None = None,
) -> Tensor:
    """Return contrastive ELK: InfoNCE with the log expected likelihood kernel instead of the cosine.

    Args:
        mu: unit vectors, shape (B, M).
        kappa: concentrations, shape (B,), >= 0, finite.
        contrast: the pairs and their negatives.
        kappa_pos: factor of the log kernel, > 0.
        denominator: see ``mcinfonce``.
        block: see ``mcinfonce_of_samples``; elements are float64.

    Returns:
        Scalar, nats, in the dtype of ``mu``. No draws are needed: the kernel has a closed form.

    Source: Kirchhof et al. 2023, eq. 55, with d the negative log kernel.
    """
    _check(mu.unsqueeze(0), contrast)
    anchor_mu, anchor_kappa = mu[contrast.anchors], kappa[contrast.anchors]
    positive = kappa_pos * vmf.log_expected_likelihood(
        anchor_mu, anchor_kappa, mu[contrast.positives], kappa[contrast.positives]
    )
    log_weights, other_mu, other_kappa = contrast.weights.double().log(), mu[contrast.among], kappa[contrast.among]

    def rows(mu_1: Tensor, kappa_1: Tensor, log_weight: Tensor) -> Tensor:
        kernel = vmf.log_expected_likelihood(mu_1.unsqueeze(1), kappa_1.unsqueeze(1), other_mu, other_kappa)
        return (kappa_pos * kernel + log_weight).logsumexp(1)

    step = max(1, _block(mu, block) // len(other_mu))
    chunks = zip(anchor_mu.split(step), anchor_kappa.split(step), log_weights.split(step), strict=True)
    negative = torch.cat([_checkpointed(rows, *chunk, single_block=step >= len(contrast)) for chunk in chunks])
    ratio = _log_ratio(positive, negative, contrast.weights.double().sum(1).log(), denominator)
    return -ratio.mean().to(mu.dtype)


def hib(
    mu: Tensor,
    kappa: Tensor,
    contrast: Contrast,
    *,
    a: float,
    b: float,
    samples: int,
    generator: torch.Generator | None = None,
    block: int | None = None,
) -> Tensor:
    """Return contrastive hedged instance embeddings: match probability is the mean of s(a z.z' + b) over draws.

    -mean_i [ log mean_s s(a z_is.p_is + b) + 1/W_i sum_m w_im log mean_s (1 - s(a z_is.n_ms + b)) ], s the sigmoid.
    The means are inside the logarithms, as in equation 54; the regulariser of the original is left out, as there.

    Args:
        mu: unit vectors, shape (B, M).
        kappa: concentrations, shape (B,), >= 0.
        contrast: the pairs and their negatives.
        a: slope, > 0.
        b: offset.
        samples: S, number of draws per item.
        generator: for the draws.
        block: see ``mcinfonce_of_samples``; exceeded if one S x N table is larger.

    Returns:
        Scalar, nats, in the dtype of ``mu``.

    Source: Kirchhof et al. 2023, eq. 54, after Oh et al. 2019.
    """
    z = vmf.sample(mu, kappa, samples, generator=generator)
    _check(z, contrast)
    log_samples = math.log(len(z))
    anchors, others, weights = z[:, contrast.anchors], z[:, contrast.among], contrast.weights.to(z.dtype)
    score = a * (anchors * z[:, contrast.positives]).sum(-1) + b  # (S, P)
    positive = F.logsigmoid(score).logsumexp(0) - log_samples

    def rows(some: Tensor, weight: Tensor) -> Tensor:
        no_match = F.logsigmoid(-a * some @ others.transpose(1, 2) - b).logsumexp(0) - log_samples  # (r, N)
        return (weight * no_match).sum(1) / weight.sum(1)

    step = max(1, _block(z, block) // others[:, :, 0].numel())
    chunks = zip(anchors.split(step, dim=1), weights.split(step), strict=True)
    negative = torch.cat([_checkpointed(rows, *chunk, single_block=step >= len(contrast)) for chunk in chunks])
    return -(positive + negative).mean()


def _checkpointed(function: Any, *tensors: Tensor, single_block: bool) -> Tensor:
    """Call a function of tensors with checkpointing: intermediate results are recomputed in the backward pass."""
    if single_block:
        return function(*tensors)
    return checkpoint(function, *tensors, use_reentrant=False, preserve_rng_state=False)


def _block(z: Tensor, block: int | None) -> int:
    if block is not None and block < 1:
        raise ValueError(f"block must be at least 1, got {block}")
    return block or (BLOCK_CPU if z.device.type == "cpu" else BLOCK_GPU)


def _check(z: Tensor, contrast: Contrast) -> None:
    count = contrast.weights.shape[1]
    if z.ndim != 3 or len(range(z.shape[1])[contrast.among]) != count:
        raise ValueError(f"expected draws (S, B, M) with a weight for {count} of B items, got {tuple(z.shape)}")


def _log_ratio(positive: Tensor, negative: Tensor, log_total: Tensor, denominator: str) -> Tensor:
    """Return log(e^positive / D) from log of the weighted sum over negatives and log of the total weight."""
    if denominator == "eq7":
        return positive - torch.logaddexp(positive, negative) + log_total
    if denominator == "authors":
        return positive - torch.logaddexp(positive, negative - log_total)
    if denominator == "negatives":
        return positive - negative + log_total
    raise ValueError(f"denominator must be eq7, authors or negatives, got {denominator!r}")


class _NegativeSum(torch.autograd.Function):
    """log sum_b w_pb exp(k a_sp.z_sb), shape (S, P), in blocks that are recomputed in the backward pass."""

    @staticmethod
    def forward(ctx: Any, anchors: Tensor, z: Tensor, log_weights: Tensor, k: float, block: int) -> Tensor:
        out = torch.empty(anchors.shape[:2], dtype=z.dtype, device=z.device)
        for draws, rows in _blocks(anchors, z, block):
            table = torch.baddbmm(log_weights[rows], anchors[draws, rows], z[draws].transpose(1, 2), alpha=k)
            peak = table.amax(2, keepdim=True)
            out[draws, rows] = table.sub_(peak).exp_().sum(2).log_().add_(peak.squeeze(2))
        ctx.save_for_backward(anchors, z, log_weights, out)
        ctx.k, ctx.block = k, block
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        anchors, z, log_weights, out = ctx.saved_tensors
        scale = grads[0] * ctx.k
        to_anchors, to_z = torch.empty_like(anchors), torch.zeros_like(z)
        for draws, rows in _blocks(anchors, z, ctx.block):
            table = torch.baddbmm(log_weights[rows], anchors[draws, rows], z[draws].transpose(1, 2), alpha=ctx.k)
            table.sub_(out[draws, rows].unsqueeze(2)).exp_().mul_(scale[draws, rows].unsqueeze(2))
            to_anchors[draws, rows] = table @ z[draws]
            to_z[draws].baddbmm_(table.transpose(1, 2), anchors[draws, rows])
        return to_anchors, to_z, None, None, None


def _blocks(anchors: Tensor, z: Tensor, block: int) -> list[tuple[slice, slice]]:
    """Return slices of draws and anchors whose tables have at most ``block`` elements, or one row."""
    n_samples, n_anchors = anchors.shape[:2]
    rows = min(n_anchors, max(1, block // z.shape[1]))
    draws = min(n_samples, max(1, block // (rows * z.shape[1]))) if rows == n_anchors else 1
    return [
        (slice(s, s + draws), slice(p, p + rows)) for s in range(0, n_samples, draws) for p in range(0, n_anchors, rows)
    ]
