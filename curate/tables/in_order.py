"""Threaded decoding in order, with a bounded number of images and encoded bytes at a time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

from scoring.images.budget import ENCODED

T = TypeVar("T")
R = TypeVar("R")


def in_order(
    pool: Executor, work: Callable[[T], R], items: Iterable[T], most: int, n_bytes: Callable[[T], int]
) -> Iterator[R]:
    """Yield the results of threads in the order of the items; an item larger than the bound is processed alone.

    Args:
        pool: of threads.
        work: function of an item.
        items: consumed on demand.
        most: maximal number of items in progress, >= 1.
        n_bytes: encoded bytes of an item, or its result; at most ``ENCODED`` in progress.
    """
    waiting: deque[tuple[Future[R], int]] = deque()
    held = 0
    try:
        for item in items:
            size = n_bytes(item)
            while waiting and (len(waiting) >= most or held + size > ENCODED):
                held -= waiting[0][1]
                yield waiting.popleft()[0].result()
            waiting.append((pool.submit(work, item), size))
            held += size
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        for future, _ in waiting:
            future.cancel()
