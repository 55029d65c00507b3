"""The best rows by a value, with exact counts: ties go to the higher hash, and the dataset is never sorted."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 20  # rows that are looked at together
DIGIT = 16  # bits by which the cut is narrowed down in a pass


def best(
    values: NDArray[Any],
    inside: NDArray[np.bool_],
    n_kept: Callable[[int], int],
    ties: NDArray[np.uint64],
    *,
    low_is_best: bool,
) -> tuple[NDArray[np.bool_], float]:
    """Return which rows are the best, and the value of the last of them.

    Memory: two bytes a row and a block of 1,048,576 rows; values are never copied or sorted as a whole.

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
    if k == n:
        keep = inside.copy()
        worst = (np.max if low_is_best else np.min)(values, where=inside, initial=_extreme(values.dtype, low_is_best))
        return keep, float(worst)
    cut, n_better = _kth(values, inside, k, low_is_best=low_is_best)
    keep = np.empty(len(values), bool)
    tied = []
    for here in _blocks(len(values)):
        block = values[here]
        keep[here] = inside[here] & ((block < cut) if low_is_best else (block > cut))
        tied.append(here.start + np.flatnonzero(inside[here] & (block == cut)))
    equal = np.concatenate(tied)
    keep[equal[_highest(ties[equal], k - n_better)]] = True
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


def _kth(values: NDArray[Any], inside: NDArray[np.bool_], k: int, *, low_is_best: bool) -> tuple[Any, int]:
    """Return the k-th best value of those inside, 1 <= k, and how many are better.

    Values are read as whole numbers of the same order, and the number sought is found 16 bits a pass, by counting.
    """
    bits = values.dtype.itemsize * 8
    prefix, better = 0, 0
    for shift in range(bits - DIGIT, -1, -DIGIT) if bits > DIGIT else (0,):
        counts = np.zeros(1 << min(DIGIT, bits), np.int64)
        for here in _blocks(len(values)):
            numbers = _ordered(values[here][inside[here]])
            if shift + DIGIT < bits:
                numbers = numbers[numbers >> numbers.dtype.type(shift + DIGIT) == prefix]
            digits = (numbers >> numbers.dtype.type(shift)) & numbers.dtype.type(len(counts) - 1)
            counts += np.bincount(digits.astype(np.int64), minlength=len(counts))
        from_best = counts if low_is_best else counts[::-1]
        place = int(np.searchsorted(np.cumsum(from_best), k - better))
        better += int(from_best[:place].sum())
        prefix = (prefix << DIGIT) | (place if low_is_best else len(counts) - 1 - place)
    return _value_of(prefix, values.dtype), better


def _ordered(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers as unsigned whole ones of the same width and order; -0.0 is 0.0."""
    kind = values.dtype
    unsigned = np.dtype(f"u{kind.itemsize}")
    top = unsigned.type(1 << (8 * kind.itemsize - 1))
    if kind.kind == "b":
        return values.view(np.uint8)
    if kind.kind == "u":
        return values
    if kind.kind == "i":
        return values.view(unsigned) ^ top
    numbers = (values + kind.type(0)).view(unsigned)  # the sum of -0.0 and 0.0 is 0.0
    return np.where(numbers & top, ~numbers, numbers | top)


def _value_of(number: int, kind: np.dtype) -> Any:
    """Return the value that ``_ordered`` makes this number of."""
    bits = 8 * kind.itemsize
    top = 1 << (bits - 1)
    if kind.kind in "bu":
        whole = number
    elif kind.kind == "i":
        whole = number ^ top
    else:
        whole = number ^ top if number & top else number ^ ((1 << bits) - 1)
    return np.array([whole], f"u{kind.itemsize}").view(kind)[0]


def _highest(ties: NDArray[np.uint64], k: int) -> NDArray[np.int64]:
    """Return the places of the k highest of at least as many numbers."""
    if k == len(ties):
        return np.arange(k)
    return np.argpartition(ties, len(ties) - k)[len(ties) - k :]


def _extreme(kind: np.dtype, lowest: bool) -> Any:
    """Return the lowest or the highest value of a type."""
    if kind.kind == "f":
        return kind.type(-np.inf if lowest else np.inf)
    if kind.kind == "b":
        return not lowest
    return np.iinfo(kind).min if lowest else np.iinfo(kind).max


def _blocks(n: int) -> list[slice]:
    return [slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)]
