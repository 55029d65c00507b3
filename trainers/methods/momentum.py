"""The two parts of momentum contrast: a momentum encoder, and a queue of its outputs.

Both are modules of the method, so that they are in the state of a run and never in a checkpoint.

Source: He et al. 2020 (MoCo), arXiv:1911.05722, sec. 3.2 and 3.3.
"""

from collections.abc import Sequence
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scoring.errors import InputError
from trainers import ranks
from trainers.half import autocast


class MomentumEncoder(nn.Module):
    """A copy of sequential modules whose weights follow the originals': w <- m w + (1 - m) original.

    It never gets a gradient. The originals are not registered: they belong to the caller that trains them.

    Args:
        live: what learns, the backbone first; each reads what the one before gives.
        momentum: m, in [0, 1); 0 makes it the original one step later.
        groups: into how many parts a batch is split, shuffled, so that batch normalisation sees each part on its own.
            Else the statistics of the batch separate a key from its query, and little is learned (sec. 3.3).
        precision: in which pixels are read, as by the backbone.
    """

    def __init__(self, live: Sequence[nn.Module], *, momentum: float, groups: int = 1, precision: str = "fp32") -> None:
        super().__init__()
        self._live = tuple(live)  # a tuple, which a module does not register
        self.momentum, self.groups, self.precision = momentum, groups, precision
        self.copies = nn.ModuleList(deepcopy(module).requires_grad_(False) for module in self._live)

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tensor:
        """Return the copies' outputs for views, shape (N, ...), from pixels as the backbone reads them (N, 3, S, S).

        The copies run in the mode of the originals, so that what is frozen is frozen here. Of several processes each
        reads some of the groups. Each then has other running statistics of them, which nothing reads.
        """
        for copy, live in zip(self.copies, self._live, strict=True):
            for ours, original in zip(copy.modules(), live.modules(), strict=True):
                ours.training = original.training
        order = torch.randperm(len(pixels), device=pixels.device)
        members = ranks.group()
        groups = self.groups if any(map(_depends_on_batch, self.copies.modules())) else members.size
        parts = order.tensor_split(groups)
        if members.size == 1 or groups % members.size:
            outputs = torch.cat([self._read(pixels[part]) for part in parts])
            return torch.empty_like(outputs).index_copy_(0, order, outputs)
        mine = parts[members.rank :: members.size]
        outputs = torch.cat([self._read(pixels[part]) for part in mine])
        every = outputs.new_zeros(len(pixels), *outputs.shape[1:])
        return ranks.summed(every.index_copy_(0, torch.cat(mine), outputs))

    def _read(self, pixels: Tensor) -> Tensor:
        with autocast(pixels.device, self.precision):
            features = self.copies[0](pixels).float()
        for copy in self.copies[1:]:
            features = copy(features)
        return features

    @torch.no_grad()
    def follow(self) -> None:
        """Update towards the originals by one step."""
        for copy, live in zip(self.copies, self._live, strict=True):
            for ours, original in zip(copy.parameters(), live.parameters(), strict=True):
                ours.lerp_(original.to(ours.dtype), 1 - self.momentum)


def _depends_on_batch(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training


class Queue(nn.Module):
    """The newest ``length`` keys, oldest dropped first; random directions until full.

    Args:
        length: K, a multiple of the batch.
        width: M, of a key.
    """

    keys: Tensor
    at: Tensor

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.register_buffer("keys", F.normalize(torch.randn(length, width), dim=1))
        self.register_buffer("at", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, keys: Tensor) -> None:
        """Replace the oldest keys by new ones, shape (N, M)."""
        places = (self.at + torch.arange(len(keys), device=self.keys.device)) % len(self.keys)
        self.keys[places] = keys.to(self.keys.dtype)
        self.at.add_(len(keys)).remainder_(len(self.keys))


def fitted_queue(length: int, batch_size: int, n: int) -> int:
    """Return the longest queue up to this length that is a multiple of the batch, for n images; at least a batch.

    >>> fitted_queue(4096, 256, 3000)
    2816
    """
    return max(min(n, length) // batch_size, 1) * batch_size


def check_queue(length: int, batch_size: int, n: int) -> None:
    """Raise ``InputError`` unless the queue is a multiple of the batch, and holds no image twice.

    Args:
        length: of the queue.
        batch_size: of the recipe.
        n: how many images there are, at least a batch.
    """
    advice = f"use --set queue={fitted_queue(length, batch_size, n)}, or another --batch-size"
    if length % batch_size:
        raise InputError(f"the queue must be a multiple of the batch, {batch_size} images, got {length}; {advice}")
    if length > n:
        raise InputError(f"the queue must not be longer than the data, {n} images, got {length}; {advice}")
