"""A network with one hidden layer on embeddings, trained from random weights."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scoring.threads import few_threads

HIDDEN, PASSES, BATCH, RATE = 256, 200, 128, 3e-4


def perceptron_answers(
    rows: Tensor,
    labels: Tensor,
    queries: Tensor,
    n_classes: int,
    *,
    seed: int,
    hidden: int = HIDDEN,
    passes: int = PASSES,
    batch: int = BATCH,
    rate: float = RATE,
) -> Tensor:
    """Return the class that a network with one hidden layer gives each query, shape (Q,), int64.

    Features are centred and get one common scale, so that a number has a standard deviation of 1 on average.

    Args:
        rows: to learn from, shape (N, D), float32, N >= 2.
        labels: shape (N,), int64, in [0, n_classes).
        queries: shape (Q, D).
        n_classes: C; a class without rows is never predicted.
        seed: of weights and batches.
        hidden: units.
        passes: over the rows.
        batch: rows a step of AdamW.
        rate: of its steps.

    Source: Bizeul et al. 2024 ("SimVAE"), arXiv:2402.01399, sec. A.7.5: two layers with a ReLU between, Adam at 3e-4,
    200 epochs, batches of 128. The width is not stated; 256 is ours, and so are the scale and AdamW.
    """
    mean, scale = rows.mean(0), rows.std(0).mean().clamp(min=1e-9)
    learned, asked = (rows - mean) / scale, (queries - mean) / scale
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        probe = nn.Sequential(nn.Linear(rows.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, n_classes))
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(probe.parameters(), lr=rate, fused=True)
    with few_threads():
        for _ in range(passes):
            for at in torch.randperm(len(learned), generator=generator).split(batch):
                optimizer.zero_grad()
                F.cross_entropy(probe(learned[at]), labels[at]).backward()
                optimizer.step()
    absent = torch.bincount(labels, minlength=n_classes) == 0
    with torch.inference_mode():
        return probe(asked).masked_fill(absent, -torch.inf).argmax(1)
