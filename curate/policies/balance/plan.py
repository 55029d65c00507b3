"""What each cell gives, as requested; or why that cannot be."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from curate.counted import counted
from curate.policies.balance.amounts import Amounts, amounts
from curate.policies.balance.request import BalanceRequest
from curate.policies.balance.target import shares_in
from curate.tables.amount import Amount
from scoring.errors import InputError

N_NAMED = 3


def planned(request: BalanceRequest, names: Sequence[str], sizes: NDArray[np.int64]) -> Amounts:
    """Return how many rows each cell gives.

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
            raise InputError(f"--rows must be between 1 and the {counted(n, 'row')} {of}, got {total:,}; ask for fewer")
    plan = amounts(sizes, shares, total)
    if total is None and not plan.taken.sum():
        raise InputError(
            f"no row can be kept with every share met: {names[plan.limit]} has {counted(int(sizes[plan.limit]), 'row')}"
            f" for {shares[plan.limit]:.3g} of all; name how many with --rows"
        )
    if request.shares and plan.short.any() and not request.nearest:
        raise InputError(
            f"--rows {total:,} at these shares takes {_lack(names, sizes, plan)}; at most {plan.most:,} rows meet them "
            "(leave --rows out), or come as near as can be with --nearest"
        )
    return plan


def _lack(names: Sequence[str], sizes: NDArray[np.int64], plan: Amounts) -> str:
    """Say of which cells there are too few rows, and by how much."""
    lacking = np.flatnonzero(plan.short)
    worst = lacking[np.argsort(-plan.short[lacking], kind="stable")]
    listed = ", ".join(
        f"{int(plan.quota[cell]):,} rows of {names[cell]!r}, of which there are {int(sizes[cell]):,}"
        for cell in worst[:N_NAMED].tolist()
    )
    more = f", and of {len(worst) - N_NAMED:,} more classes too many" if len(worst) > N_NAMED else ""
    return f"{listed}{more}: {int(plan.short.sum()):,} too few in all"
