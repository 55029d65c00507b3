"""The order in which an epoch reads streamed images, determined by seed, epoch and number of images."""

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK = 64  # neighbouring rows that are read together: a jump on a disk, or in a file, for each
WINDOW = 128  # blocks, from anywhere, whose rows are mixed


def windows(n: int, *, epoch: int, seed: int) -> Iterator[Tensor]:
    """Yield all rows of an epoch in shuffle windows of 8,192; the last may be shorter.

    Args:
        n: how many images there are.
        epoch: from 0.
        seed: of the run.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    blocks = torch.randperm(-(-n // BLOCK), generator=generator)
    for some in blocks.split(WINDOW):
        rows = (some[:, None] * BLOCK + torch.arange(BLOCK)).flatten()
        rows = rows[rows < n]
        yield rows[torch.randperm(len(rows), generator=generator)]
