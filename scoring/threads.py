"""Torch threads: small products run faster on one."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def few_threads(*, small: bool = True) -> Iterator[None]:
    """Use one thread for small problems inside the block."""
    before = torch.get_num_threads()
    if small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
