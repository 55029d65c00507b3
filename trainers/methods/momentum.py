"""The two parts of momentum contrast: a momentum encoder, and a queue of its outputs.

Both are modules of the method, so the state of a run contains them, but a checkpoint does not.

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
    """A copy of sequential modules whose weights are a moving average: w <- m w + (1 - m) original.

    It gets no gradient. The originals are not registered as submodules: the caller trains them.

    Args:
        live: the trained modules, in order of execution, the backbone first.
        momentum: m, in [0, 1); with 0 it is the original of the step before.
        groups: number of shuffled parts of a batch, each normalised separately. Otherwise the batch statistics reveal
            the key of a query, and little is learned (sec. 3.3).
        precision: of the forward pass: fp32, bf16 or fp16.
    """

    def __init__(self, live: Sequence[nn.Module], *, momentum: float, groups: int = 1, precision: str = "fp32") -> None:
        super().__init__()
        self._live = tuple(live)  # a tuple, so that they are not registered
        self.momentum, self.groups, self.precision = momentum, groups, precision
        self.copies = nn.ModuleList(deepcopy(module).requires_grad_(False) for module in self._live)

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tensor:
        """Return the copies' outputs for views, shape (N, ...), from pixels as the backbone reads them (N, 3, S, S).

        The copies run in the mode of the originals. In a distributed run each process computes some of the groups, so
        running statistics differ between processes; they are never used.
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
        """Move the weights towards the originals by one step."""
        for copy, live in zip(self.copies, self._live, strict=True):
            for ours, original in zip(copy.parameters(), live.parameters(), strict=True):
                ours.lerp_(original.to(ours.dtype), 1 - self.momentum)


def _depends_on_batch(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training


class Queue(nn.Module):
    """The newest ``length`` keys, shape (length, width), oldest dropped first; random directions until full.

    ``length`` is a multiple of the batch size.
    """

    keys: Tensor
    at: Tensor

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.register_buffer("keys", F.normalize(torch.randn(length, width), dim=1))
        self.register_buffer("at", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, keys: Tensor) -> None:
        """Replace the oldest keys with new ones, shape (N, M)."""
        places = (self.at + torch.arange(len(keys), device=self.keys.device)) % len(self.keys)
        self.keys[places] = keys.to(self.keys.dtype)
        self.at.add_(len(keys)).remainder_(len(self.keys))


def fitted_queue(length: int, batch_size: int, n: int) -> int:
    """Return the longest queue, at most ``length``, that is a multiple of the batch size and holds no image twice.

    It is at least one batch.

    >>> fitted_queue(4096, 256, 3000)
    2816
    """
    return max(min(n, length) // batch_size, 1) * batch_size


def check_queue(length: int, batch_size: int, n: int) -> None:
    """Raise ``InputError`` unless the queue length is a multiple of the batch size and holds none of n images twice."""
    advice = f"use --set queue={fitted_queue(length, batch_size, n)}, or another --batch-size"
    if length % batch_size:
        raise InputError(f"the queue must be a multiple of the batch, {batch_size} images, got {length}; {advice}")
    if length > n:
        raise InputError(f"the queue must not be longer than the data, {n} images, got {length}; {advice}")
