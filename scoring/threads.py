"""Threads of torch: small products take one, for more cost more than they bring."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def few_threads(*, small: bool = True) -> Iterator[None]:
    """Take one thread for small problems, and afterwards as many as before."""
    before = torch.get_num_threads()
    if small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
