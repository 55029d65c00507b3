"""How many rows of each cell to keep: integers close to the target shares, or why there are none."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.counted import counted
from curate.policies.balance.request import BalanceRequest
from curate.policies.balance.target import shares_in
from curate.tables.amount import Amount
from scoring.errors import InputError

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
N_NAMED = 3


@dataclass(frozen=True)
class Amounts:
    """The numbers of rows from C cells.

    Attributes:
        taken: rows of each, shape (C,), never more than it has.
        quota: rows of each that the shares ask for of so many rows in all, shape (C,).
        limit: the cell that has the fewest rows for its share.
        most: rows in all at which no share asks for more than there is.
    """

    taken: Counts
    quota: Counts
    limit: int
    most: int

    @property
    def short(self) -> Counts:
        """Number of missing rows in each cell, shape (C,)."""
        return np.maximum(self.quota - self.taken, 0)

    @property
    def apart(self) -> float:
        """Total variation distance between actual and target shares, in [0, 1]."""
        total = max(1, int(self.taken.sum()))
        return float(np.abs(self.taken - self.quota).sum() / 2 / total)


def amounts(sizes: Counts, shares: Floats, total: int | None = None) -> Amounts:
    """Return how many rows of each cell to keep, as close to the shares as integers allow.

    Where a cell has fewer rows than its share asks for, it gives all, and the others give more, in proportion to their
    shares.

    Args:
        sizes: rows of each cell, shape (C,).
        shares: of each, shape (C,), 0 or more; they sum to 1 and those above 0 have rows.
        total: rows in all, at most the rows of cells with a share; None for as many as the shares allow.
    """
    requested = shares > 0
    room = np.full(len(sizes), np.inf)
    room[requested] = sizes[requested] / shares[requested]
    limit = int(room.argmin())
    most = int(np.floor(room[limit] * (1 + 1e-12)))
    while most and (apportioned(shares * most, most) > sizes).any():
        most -= 1  # a share such as a third is not exact in floats
    total = most if total is None else total
    quotas = apportioned(shares * total, total)
    return Amounts(apportioned(_filled(sizes, shares, room, total), total), quotas, limit, most)


def apportioned(quotas: Floats, total: int) -> Counts:
    """Return integers that sum to ``total``: quotas rounded down, plus one for the largest remainders.

    Equal remainders go to the earlier cell.

    Args:
        quotas: shape (C,), 0 or more; they sum to ``total`` up to rounding.
        total: rows in all.

    >>> apportioned(np.array([1.5, 1.25, 0.25]), 3).tolist()
    [2, 1, 0]
    """
    rounded = np.floor(quotas + 1e-9).astype(np.int64)
    missing = total - int(rounded.sum())
    order = np.argsort(-np.round(quotas - rounded, 9), kind="stable")
    rounded[order[:missing]] += 1
    return rounded


def _filled(sizes: Counts, shares: Floats, room: Floats, total: int) -> Floats:
    """Return min(size, level * share) of each cell, with the level at which they sum to ``total``."""
    order = np.argsort(room, kind="stable")
    full = np.cumsum(sizes[order]) - sizes[order]  # rows of the cells before, which give all they have
    open_share = shares.sum() - (np.cumsum(shares[order]) - shares[order])
    with np.errstate(divide="ignore", invalid="ignore"):
        level = (total - full) / open_share
    first = int(np.argmax(level <= room[order] * (1 + 1e-12)))
    filled: Floats = np.minimum(sizes, level[first] * shares)
    return filled


def planned(request: BalanceRequest, names: Sequence[str], sizes: NDArray[np.int64]) -> Amounts:
    """Return how many rows of each cell to keep.

    Args:
        request: what is requested.
        names: of the cells, C of them.
        sizes: rows of each, shape (C,), 1 or more.

    Raises:
        InputError: for a class that no row has, more rows than there are, or shares that were named and cannot be met.
    """
    shares = shares_in(request.alpha, request.shares, names, sizes, what=request.per)
    n = int(sizes[shares > 0].sum())
    total = None
    if request.rows is not None:
        amount = Amount.parse(request.rows, "--rows")
        total = amount.count if amount.count is not None else amount.of(n, up=False)
        if not 1 <= total <= n:
            of = "of the classes that are named" if request.shares else "that have a cell"
            raise InputError(f"--rows must be between 1 and the {counted(n, 'row')} {of}, got {total:,}; choose fewer")
    plan = amounts(sizes, shares, total)
    if total is None and not plan.taken.sum():
        raise InputError(
            f"no row can be kept with every share met: {names[plan.limit]} has {counted(int(sizes[plan.limit]), 'row')}"
            f" for {shares[plan.limit]:.3g} of all; choose how many with --rows"
        )
    if request.shares and plan.short.any() and not request.nearest:
        raise InputError(
            f"--rows {total:,} at these shares takes {_lack(names, sizes, plan)}; at most {plan.most:,} rows meet them "
            "(leave --rows out), or get as close as possible with --nearest"
        )
    return plan


def _lack(names: Sequence[str], sizes: NDArray[np.int64], plan: Amounts) -> str:
    """Return a message on the cells with too few rows, and by how much."""
    lacking = np.flatnonzero(plan.short)
    worst = lacking[np.argsort(-plan.short[lacking], kind="stable")]
    listed = ", ".join(
        f"{int(plan.quota[cell]):,} rows of {names[cell]!r}, of which there are {int(sizes[cell]):,}"
        for cell in worst[:N_NAMED].tolist()
    )
    more = f", and of {len(worst) - N_NAMED:,} more classes too many" if len(worst) > N_NAMED else ""
    return f"{listed}{more}: {int(plan.short.sum()):,} too few in all"
