"""The best rows by a value, with exact counts: ties go to the higher hash."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def best(
    values: NDArray[Any],
    inside: NDArray[np.bool_],
    n_kept: Callable[[int], int],
    ties: NDArray[np.uint64],
    *,
    low_is_best: bool,
) -> tuple[NDArray[np.bool_], float]:
    """Return which rows are the best, and the value of the last of them.

    Memory: the values that compete once more, and three bytes a row; nothing is sorted.

    Args:
        values: shape (N,), numbers, of which those inside are no NaN.
        inside: shape (N,), the rows that compete.
        n_kept: how many stay, from how many compete.
        ties: shape (N,), who wins where values are equal: the highest.
        low_is_best: whether low values are the best.

    Returns:
        shape (N,) bool, and the worst value that stays, NaN where none does.
    """
    n = int(inside.sum())
    k = n_kept(n)
    if k == 0:
        return np.zeros(len(values), bool), np.nan
    competing = values[inside]
    place = k - 1 if low_is_best else n - k
    competing.partition(place)
    cut = competing[place]
    del competing
    keep = inside & (values < cut if low_is_best else values > cut)
    equal = np.flatnonzero(inside & (values == cut))
    keep[equal[_highest(ties[equal], k - int(keep.sum()))]] = True
    return keep, float(cut)


def best_of_groups(
    values: NDArray[Any],
    codes: NDArray[np.int32],
    n_groups: int,
    n_kept: Callable[[int], int],
    ties: NDArray[np.uint64],
    *,
    low_is_best: bool,
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return which rows are among the best of their group, shape (M,), and the worst value that stays in each, (G,).

    Args:
        values: shape (M,), numbers, no NaN.
        codes: shape (M,), the group of each row.
        n_groups: G.
        n_kept: how many of a group stay, from its size.
        ties: as in ``best``.
        low_is_best: as in ``best``.
    """
    sizes = np.bincount(codes, minlength=n_groups)
    quota = np.array([n_kept(n) for n in sizes.tolist()], np.int64)
    order = np.lexsort((~ties if low_is_best else ties, values, codes))  # ascending in each group
    starts = np.cumsum(sizes) - sizes
    rank = np.arange(len(codes)) - starts[codes[order]]
    if not low_is_best:
        rank = sizes[codes[order]] - 1 - rank  # 0 is the best of its group
    stays = np.zeros(len(codes), bool)
    stays[order] = rank < quota[codes[order]]
    cuts = np.full(n_groups, np.nan)
    last = rank == quota[codes[order]] - 1
    cuts[codes[order][last]] = values[order][last]
    return stays, cuts


def _highest(ties: NDArray[np.uint64], k: int) -> NDArray[np.int64]:
    """Return the places of the k highest of at least as many numbers."""
    if k == len(ties):
        return np.arange(k)
    return np.argpartition(ties, len(ties) - k)[len(ties) - k :]
