"""The number of torch threads: small products are faster on one thread."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def few_threads(*, small: bool = True) -> Iterator[None]:
    """Use one thread inside the block if the problem is small."""
    before = torch.get_num_threads()
    if small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
