"""Directions to contrast, and what contrasts hold."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def directions(*shape, seed=0, dtype=torch.float64):
    return F.normalize(torch.randn(*shape, generator=seeded(seed), dtype=dtype), dim=-1)


def rows(of, n):
    return list(range(n))[of] if isinstance(of, slice) else of.tolist()


def n_items(contrast):
    return max(max(rows(of, 10**4)) for of in (contrast.anchors, contrast.positives)) + 1


def weighed(contrast):
    """Weights of all items, zero for those that the contrast leaves out."""
    weights = torch.zeros(len(contrast), max(n_items(contrast), contrast.weights.shape[1]))
    weights[:, contrast.among] = contrast.weights
    return weights


I = torch.arange(1, 25, dtype=torch.float64)  # noqa: E741
X = F.normalize(torch.sin(I).reshape(4, 6), dim=1)
Y = F.normalize(torch.cos(0.5 * I).reshape(4, 6), dim=1)
Z = torch.cat([X, Y])  # item 4 + i is the other view of item i
