"""The best rows by a value, with exact counts: ties go to the higher hash."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Floats, Ints, Mask

LEAST_SIZE = 32  # mean group size from which groups are ranked separately
ROWS_AT_ONCE = 1 << 22
SAMPLE = 1 << 19  # sample size for quantiles that bound the cuts; only rows between the bounds are ranked


def best(
    values: NDArray[Any], inside: Mask, n_kept: Callable[[int], int], ties: NDArray[np.uint64], *, low_is_best: bool
) -> tuple[Mask, float]:
    """Return a mask of the best rows, shape (N,), and the worst value among them, NaN if there are none.

    Memory: a copy of the competing values, and three bytes per row; nothing is sorted.

    Args:
        values: shape (N,), without NaN in competing rows.
        inside: mask of competing rows, shape (N,).
        n_kept: number of competing rows -> number of kept rows.
        ties: of equal values, rows with higher ties are better, shape (N,).
        low_is_best: whether low values are the best.
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
    inside: Mask,
    codes: NDArray[np.int32],
    n_groups: int,
    n_kept: Callable[[int], int],
    ties: NDArray[np.uint64],
    *,
    low_is_best: bool,
) -> tuple[Mask, Floats]:
    """Return a mask of the best rows of each group, shape (N,), and the worst kept value in each group, (G,).

    Args:
        values: as in ``best``.
        inside: as in ``best``.
        codes: shape (N,), the group of each row.
        n_groups: G.
        n_kept: size of a group -> number of kept rows.
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
    amounts: tuple[Ints, Ints, Ints],
    ties: NDArray[np.uint64],
    *,
    low_is_best: bool,
) -> tuple[Mask, Mask]:
    """Return masks of the worst rows of each part, and of the next worst rows, shape (N,) each.

    Memory: three bytes per row, and about 40 per row near a cut (by a sample of the rows), for an eighth of these or
    one part at a time; about 90 if parts have fewer than 32 rows on average.

    Args:
        values: as in ``best``.
        part: of each row, shape (N,); P for rows that do not compete.
        amounts: for each part, shape (P,) each: rows, number of worst rows, number of next worst rows.
        ties: as in ``best``.
        low_is_best: as in ``best``.
    """
    if len(values) <= SAMPLE:
        return _ranked_parts(values, part, amounts, ties, low_is_best=low_is_best)
    worst, near = _near_cuts(values, part, amounts, low_is_best=low_is_best)
    rows, following, n_parts = np.flatnonzero(near), np.zeros(len(values), bool), len(amounts[0])
    amounts = counts_of(part[rows], n_parts), amounts[1] - counts_of(part[worst], n_parts), amounts[2]
    near_worst, near_following = _ranked_parts(values[rows], part[rows], amounts, ties[rows], low_is_best=low_is_best)
    worst[rows[near_worst]] = following[rows[near_following]] = True
    return worst, following


def _near_cuts(
    values: NDArray[Any], part: NDArray[np.unsignedinteger], amounts: tuple[Ints, Ints, Ints], *, low_is_best: bool
) -> tuple[Mask, Mask]:
    """Return masks of the rows certainly among the worst of their part, and of rows near its cuts, shape (N,) each.

    Quantiles of a sample bound the cuts; if the counts show that a cut is beyond the bounds, the whole part is near.
    Arguments are as in ``worst_of_parts``.
    """
    sizes, n_worst, n_following = amounts
    low, high = _bounds(values, part, amounts, low_is_best=low_is_best)
    worst, near = np.zeros(len(values), bool), np.zeros(len(values), bool)
    while True:
        for start in range(0, len(values), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            some, of = values[rows], part[rows]
            least, most = low[of], high[of]
            worst[rows] = some > most if low_is_best else some < least
            near[rows] = (some >= least) & (some <= most) & (of < len(sizes))
        surely = counts_of(part[worst], len(sizes))
        beyond = (surely > n_worst) | (surely + counts_of(part[near], len(sizes)) < n_worst + n_following)
        if not beyond.any():
            return worst, near
        low[:-1][beyond], high[:-1][beyond] = low[-1], high[-1]


def _bounds(
    values: NDArray[Any], part: NDArray[np.unsignedinteger], amounts: tuple[Ints, Ints, Ints], *, low_is_best: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the bounds of the cuts of each part by a sample, shape (P + 1,) each; all values for the last."""
    sizes, n_worst, n_following = amounts
    sample = np.arange(0, len(values), len(values) // SAMPLE)
    sample = sample[part[sample] < len(sizes)]
    ordered = values[sample[np.lexsort((values[sample], part[sample]))]]
    n = counts_of(part[sample], len(sizes))
    shares = np.stack([n_worst, n_worst + n_following]) / np.maximum(sizes, 1)
    first, last = n * (1 - shares[::-1] if low_is_best else shares) + 2 * np.sqrt(n) * [[-1], [1]]  # 4 deviations
    ends = (-np.inf, np.inf) if values.dtype.kind == "f" else (np.iinfo(values.dtype).min, np.iinfo(values.dtype).max)
    low, high = (np.full(len(sizes) + 1, end, values.dtype) for end in ends)
    starts = np.cumsum(n) - n
    for bound, place in ((low, np.floor(first)), (high, np.ceil(last))):
        inside = np.flatnonzero((place >= 0) & (place < n))
        bound[inside] = ordered[starts[inside] + place[inside].astype(np.int64)]
    return low, high


def _ranked_parts(
    values: NDArray[Any],
    part: NDArray[np.unsignedinteger],
    amounts: tuple[Ints, Ints, Ints],
    ties: NDArray[np.uint64],
    *,
    low_is_best: bool,
) -> tuple[Mask, Mask]:
    """Return the result of ``worst_of_parts`` by ranking all rows of each part."""
    sizes, n_worst, n_following = amounts
    worst, either = np.zeros(len(values), bool), np.zeros(len(values), bool)
    ends, first = np.cumsum([0, *sizes]), 0
    while first < len(sizes):
        at_once = ends[first] + max(ROWS_AT_ONCE, len(values) // 8)
        last = max(int(np.searchsorted(ends, at_once, "right")) - 1, first + 1)
        rows = np.flatnonzero((part >= first) & (part < last))
        codes = (part[rows] - first).astype(np.min_scalar_type(last - first))
        place = sizes[first:last][codes] - 1
        place -= places(values[rows], codes, sizes[first:last], ties[rows], low_is_best=low_is_best)
        worst[rows] = place < n_worst[first:last][codes]
        either[rows] = place < (n_worst + n_following)[first:last][codes]
        first = last
    return worst, either & ~worst


def counts_of(codes: NDArray[np.integer], n: int) -> Ints:
    """Return the number of rows with each code below n, shape (n,), in bounded memory."""
    counts = np.zeros(n, np.int64)
    for start in range(0, len(codes), ROWS_AT_ONCE):
        counts += np.bincount(codes[start : start + ROWS_AT_ONCE], minlength=n)[:n]
    return counts


def places(
    values: NDArray[Any], codes: NDArray[np.integer], sizes: Ints, ties: NDArray[np.uint64], *, low_is_best: bool
) -> Ints:
    """Return the rank of each row in its group, 0 for the best, shape (M,); arguments are as in ``best_of_groups``."""
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


def _ascending(values: NDArray[Any], ties: NDArray[np.uint64]) -> Ints:
    """Return the order of M rows by values, then ties; sorting by one key is several times faster."""
    order = np.argsort(values)
    ordered = values[order]
    changes = np.ones(len(order) + 1, bool)
    changes[1:-1] = ordered[1:] != ordered[:-1]
    equal = ~(changes[:-1] & changes[1:])  # to the value before or after
    rows = order[equal]
    order[equal] = rows[np.lexsort((ties[rows], values[rows]))]
    return order


def worst_of(
    values: NDArray[Any], codes: NDArray[np.integer], stays: Mask, n_groups: int, *, low_is_best: bool
) -> Floats:
    """Return the worst kept value of each group, shape (G,); NaN if nothing is kept."""
    cuts, worse = np.full(n_groups, np.nan), np.fmax if low_is_best else np.fmin
    for start in range(0, len(codes), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        worse.at(cuts, codes[rows][stays[rows]], values[rows][stays[rows]].astype(np.float64))
    return cuts


def _highest(ties: NDArray[np.uint64], k: int) -> Ints:
    """Return the indices of the k highest numbers."""
    if k == len(ties):
        return np.arange(k)
    return np.argpartition(ties, len(ties) - k)[len(ties) - k :]
