"""The best rows by a value, with exact counts: ties go to the higher hash."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_SIZE = 32  # rows of a group on average, from which groups are ranked one by one
ROWS_AT_ONCE = 1 << 22


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
    inside: NDArray[np.bool_],
    codes: NDArray[np.int32],
    n_groups: int,
    n_kept: Callable[[int], int],
    ties: NDArray[np.uint64],
    *,
    low_is_best: bool,
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return which rows are among the best of their group, shape (N,), and the worst value that stays in each, (G,).

    Args:
        values: as in ``best``.
        inside: as in ``best``.
        codes: shape (N,), the group of each row.
        n_groups: G.
        n_kept: how many of a group stay, from its size.
        ties: as in ``best``.
        low_is_best: as in ``best``.
    """
    part = codes.astype(np.min_scalar_type(n_groups))
    part[~inside] = n_groups
    sizes = counts_of(part, n_groups)
    n_dropped = np.array([n - n_kept(n) for n in sizes.tolist()], np.int64)
    amounts = sizes, n_dropped, np.zeros_like(sizes)
    stays = inside & ~worst_of_parts(values, part, amounts, ties, low_is_best=low_is_best)[0]
    return stays, worst_of(values, codes, stays, n_groups, low_is_best=low_is_best)


def worst_of_parts(
    values: NDArray[Any],
    part: NDArray[np.unsignedinteger],
    amounts: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    ties: NDArray[np.uint64],
    *,
    low_is_best: bool,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the worst rows of each part, and those that follow them, shape (N,) each.

    Memory: some 40 bytes for each row that is ranked together with others, at most an eighth of all or one part; some
    90 where parts have fewer than 32 rows on average.

    Args:
        values: as in ``best``.
        part: of each row, shape (N,); P for rows that do not compete.
        amounts: of each part, shape (P,) each: its rows, how many of them are the worst, and how many follow.
        ties: as in ``best``.
        low_is_best: as in ``best``.
    """
    sizes, n_worst, n_following = amounts
    worst, either = np.zeros(len(values), bool), np.zeros(len(values), bool)
    ends, first = np.cumsum([0, *sizes]), 0
    while first < len(sizes):
        at_once = ends[first] + max(ROWS_AT_ONCE, len(values) // 8)
        last = max(int(np.searchsorted(ends, at_once, "right")) - 1, first + 1)
        rows = np.flatnonzero((part >= first) & (part < last))
        codes = (part[rows] - first).astype(np.min_scalar_type(last - first))
        if len(rows) < LEAST_SIZE * (last - first):
            place = sizes[first:last][codes] - 1
            place -= places(values[rows], codes, sizes[first:last], ties[rows], low_is_best=low_is_best)
            worst[rows] = place < n_worst[first:last][codes]
            either[rows] = place < (n_worst + n_following)[first:last][codes]
            first = last
            continue
        rows = rows[np.argsort(codes, kind="stable")]
        for number, (start, stop) in enumerate(pairwise((ends[first : last + 1] - ends[first]).tolist()), first):
            n, more, members = int(n_worst[number]), int(n_following[number]), rows[start:stop]
            both = members[_worst(values[members], ties[members], n + more, low_is_best=low_is_best)]
            either[both] = True
            worst[both[_worst(values[both], ties[both], n, low_is_best=low_is_best)]] = True
        first = last
    return worst, either & ~worst


def _worst(values: NDArray[Any], ties: NDArray[np.uint64], n: int, *, low_is_best: bool) -> NDArray[np.int64]:
    """Return the places of the n worst of at least as many values; of equal ones the lowest by ``ties`` are worse."""
    if n in (0, len(values)):
        return np.arange(n)
    place = len(values) - n if low_is_best else n - 1
    cut = np.partition(values, place)[place]
    worse, equal = np.flatnonzero(values > cut if low_is_best else values < cut), np.flatnonzero(values == cut)
    return np.concatenate([worse, equal[_highest(~ties[equal], n - len(worse))]])


def counts_of(codes: NDArray[np.integer], n: int) -> NDArray[np.int64]:
    """Return how many rows have each of the codes below n, shape (n,), in bounded memory."""
    counts = np.zeros(n, np.int64)
    for start in range(0, len(codes), ROWS_AT_ONCE):
        counts += np.bincount(codes[start : start + ROWS_AT_ONCE], minlength=n)[:n]
    return counts


def places(
    values: NDArray[Any],
    codes: NDArray[np.integer],
    sizes: NDArray[np.int64],
    ties: NDArray[np.uint64],
    *,
    low_is_best: bool,
) -> NDArray[np.int64]:
    """Return the place of each row in its group, shape (M,): 0 for the best; arguments as in ``best_of_groups``."""
    if len(codes) < LEAST_SIZE * len(sizes):
        order = np.lexsort((~ties if low_is_best else ties, values, codes))  # ascending in each group
    else:
        order = np.argsort(codes.astype(np.min_scalar_type(len(sizes))), kind="stable")  # 16 bits are counted
        for start, stop in pairwise([0, *np.cumsum(sizes).tolist()]):
            rows = order[start:stop]
            order[start:stop] = rows[_ascending(values[rows], ~ties[rows] if low_is_best else ties[rows])]
    place = np.empty(len(codes), np.int64)
    place[order] = np.arange(len(codes))
    place -= (np.cumsum(sizes) - sizes)[codes]
    return place if low_is_best else sizes[codes] - 1 - place


def _ascending(values: NDArray[Any], ties: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the order of M rows by values, and of equal ones by ties: a sort by one key is several times as fast."""
    order = np.argsort(values)
    ordered = values[order]
    changes = np.ones(len(order) + 1, bool)
    changes[1:-1] = ordered[1:] != ordered[:-1]
    equal = ~(changes[:-1] & changes[1:])  # to the value before or after
    rows = order[equal]
    order[equal] = rows[np.lexsort((ties[rows], values[rows]))]
    return order


def worst_of(
    values: NDArray[Any], codes: NDArray[np.integer], stays: NDArray[np.bool_], n_groups: int, *, low_is_best: bool
) -> NDArray[np.float64]:
    """Return the worst value that stays in each group, shape (G,); NaN where none does."""
    cuts, worse = np.full(n_groups, np.nan), np.fmax if low_is_best else np.fmin
    for start in range(0, len(codes), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        worse.at(cuts, codes[rows][stays[rows]], values[rows][stays[rows]].astype(np.float64))
    return cuts


def _highest(ties: NDArray[np.uint64], k: int) -> NDArray[np.int64]:
    """Return the places of the k highest of at least as many numbers."""
    if k == len(ties):
        return np.arange(k)
    return np.argpartition(ties, len(ties) - k)[len(ties) - k :]
