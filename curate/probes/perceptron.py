"""Neural probes on embeddings, trained from scratch: one with a hidden layer, and a linear one with LARS."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scoring.lars import LARS
from scoring.threads import few_threads

HIDDEN = 256
LARS_MOMENTUM = 0.9
DEVIATION = 0.01  # of the first weights of the linear probe


@dataclass(frozen=True)
class Steps:
    """Training settings of a network.

    Attributes:
        passes: epochs.
        batch: batch size.
        rate: learning rate.
    """

    passes: int
    batch: int
    rate: float


PERCEPTRON_STEPS = Steps(200, 128, 3e-4)
LINEAR_STEPS = Steps(100, 512, 1.6)


def perceptron_answers(
    rows: Tensor,
    labels: Tensor,
    queries: Tensor,
    n_classes: int,
    *,
    seed: int,
    hidden: int = HIDDEN,
    steps: Steps = PERCEPTRON_STEPS,
) -> Tensor:
    """Return the class predicted for each query by a network with one hidden layer, shape (Q,), int64.

    Args:
        rows: training rows, shape (N, D), float32, N >= 2.
        labels: shape (N,), int64, in [0, n_classes).
        queries: shape (Q, D).
        n_classes: C; a class without rows is never predicted.
        seed: of weights and batches.
        hidden: width of the hidden layer.
        steps: settings of AdamW.

    Source: Bizeul et al. 2024 ("SimVAE"), arXiv:2402.01399, sec. A.7.5: two layers with a ReLU between, Adam at 3e-4,
    200 epochs, batches of 128. The width is not stated; 256 is ours, and so are the scale and AdamW.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        probe = nn.Sequential(nn.Linear(rows.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, n_classes))
    optimizer = torch.optim.AdamW(probe.parameters(), lr=steps.rate, fused=True)
    return _logits(probe, optimizer, (rows, labels, queries), seed=seed, steps=steps).argmax(1)


def lars_logits(
    rows: Tensor, labels: Tensor, queries: Tensor, n_classes: int, *, seed: int, steps: Steps = LINEAR_STEPS
) -> Tensor:
    """Return the logits of each query from a linear probe trained with LARS, shape (Q, C).

    The learning rate follows half a cosine by epoch; there is no weight decay. Arguments are as in
    ``perceptron_answers``.

    Source: Nakamura et al. 2023 ("VI-SimSiam"), appendix B: rate 1.6, momentum 0.9, batches of 512, 100 epochs; the
    schedule and the weights, N(0, 0.01^2), are of SimSiam's code. They train on random crops, we on the rows.
    """
    probe = nn.Linear(rows.shape[1], n_classes)
    nn.init.normal_(probe.weight, std=DEVIATION, generator=torch.Generator().manual_seed(seed))
    nn.init.zeros_(probe.bias)
    optimizer = LARS([{"params": list(probe.parameters())}], lr=steps.rate, momentum=LARS_MOMENTUM)
    falling = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: 0.5 * (1 + math.cos(math.pi * done / steps.passes))
    )
    return _logits(probe, optimizer, (rows, labels, queries), seed=seed, steps=steps, schedule=falling)


def _logits(
    probe: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: tuple[Tensor, Tensor, Tensor],
    *,
    seed: int,
    steps: Steps,
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
) -> Tensor:
    """Return logits of queries from a probe trained on rows and labels; -inf for a class without rows.

    Features are centred and scaled to a mean standard deviation of 1.
    """
    rows, labels, queries = data
    mean, scale = rows.mean(0), rows.std(0).mean().clamp(min=1e-9)
    learned, new = (rows - mean) / scale, (queries - mean) / scale
    generator = torch.Generator().manual_seed(seed)
    with few_threads():
        for _ in range(steps.passes):
            for at in torch.randperm(len(learned), generator=generator).split(steps.batch):
                optimizer.zero_grad()
                F.cross_entropy(probe(learned[at]), labels[at]).backward()
                optimizer.step()
            if schedule is not None:
                schedule.step()
    with torch.inference_mode():
        logits: Tensor = probe(new)
        return logits.masked_fill(torch.bincount(labels, minlength=logits.shape[1]) == 0, -torch.inf)
