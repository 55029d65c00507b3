"""A budget over groups: so many in each, or equal shares as far as they go."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from curate.digests import tie_breaks


def water_fill(sizes: Sequence[int], budget: int) -> list[int]:
    """Return how much each group gives: equal shares, and what a small group cannot give comes from the others.

    Groups that come first give one more where it does not come out even.

    Args:
        sizes: rows of each group.
        budget: in [0, sum of the sizes].

    >>> water_fill([2, 10, 10], 13)
    [2, 6, 5]
    """
    level, rest = 0, budget
    while True:
        open_groups = [size for size in sizes if size > level]
        if not open_groups or rest < len(open_groups):
            break
        step = min(min(open_groups) - level, rest // len(open_groups))
        level, rest = level + step, rest - step * len(open_groups)
    shares = []
    for size in sizes:
        one_more = 1 if size > level and rest > 0 else 0
        rest -= one_more
        shares.append(min(size, level) + one_more)
    return shares


def group_order(names: Sequence[str]) -> NDArray[np.int64]:
    """Return the groups in an order that no file decides: by a hash of their names."""
    hashes = tie_breaks([name.encode("utf-8", "backslashreplace") for name in names])
    return np.lexsort((np.array(names, object).astype(str), hashes)) if len(names) else np.zeros(0, np.int64)


def in_turns(quotas: Sequence[int]) -> NDArray[np.int64]:
    """Return the places of picks that stand group after group, in turns: the first of each group, then the second.

    So the start of a balanced batch is a balanced batch.

    >>> in_turns([1, 3, 2]).tolist()
    [0, 1, 4, 2, 5, 3]
    """
    group = np.repeat(np.arange(len(quotas)), quotas)
    place = np.concatenate([np.arange(quota) for quota in quotas]) if len(quotas) else np.zeros(0, np.int64)
    return np.lexsort((group, place))
