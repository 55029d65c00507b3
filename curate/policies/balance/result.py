"""What a balance did, and what has to be reported of it."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from curate.counted import counted
from curate.policies.balance.amounts import Amounts
from curate.policies.balance.request import BalanceRequest
from curate.policies.balance.words import BalanceWords
from curate.policies.outcomes import DROP, UNDECIDED
from curate.policies.result import Result

OVER, NO_SHARE = "beyond the share of its cell", "in a cell without a share"


@dataclass(frozen=True)
class BalanceResult(Result):
    """What a balance did; what ``curate balance`` prints.

    Attributes:
        cells: name -> rows in, rows kept, rows that its share asks for; in the order of their names.
        limit: the cell with the fewest rows for its share.
        most: rows in all that every share can be met with.
        short: rows that cells lack for their shares, in all.
        apart: half the sum of the differences of shares kept and requested, from 0 to 1.
    """

    cells: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    limit: str = ""
    most: int = 0
    short: int = 0
    apart: float = 0.0

    IN_RECEIPT: ClassVar[tuple[str, ...]] = ("cells", "limit", "most", "short", "apart", "notes")


def result_of(request: BalanceRequest, words: BalanceWords, plan: Amounts) -> BalanceResult:
    """Return the counts, and what has to be reported.

    Args:
        request: what was requested.
        words: what became of every row.
        plan: what the cells give.
    """
    dropped = words.cell[words.outcome == DROP]
    without = int((plan.quota[dropped] + plan.taken[dropped] == 0).sum())
    dropped_by = {OVER: len(dropped) - without, NO_SHARE: without}
    lacking = np.bincount(words.lacks[words.outcome == UNDECIDED], minlength=len(words.reasons)).tolist()
    names = words.names
    columns = (words.sizes.tolist(), plan.taken.tolist(), plan.quota.tolist())
    return BalanceResult(
        dropped_by={why: n for why, n in dropped_by.items() if n or why == OVER},
        undecided_by={reason: n for reason, n in zip(words.reasons, lacking, strict=True) if n},
        cells=dict(zip(names, zip(*columns, strict=True), strict=True)),
        limit=names[plan.limit],
        most=plan.most,
        short=int(plan.short.sum()),
        apart=plan.apart,
        notes=_notes(request, words, plan),
    )


def _notes(request: BalanceRequest, words: BalanceWords, plan: Amounts) -> list[str]:
    limit = f"{words.what} {words.names[plan.limit]}, with {counted(int(words.sizes[plan.limit]), 'row')}"
    if request.rows is None:
        notes = [f"as many rows as meet every share: {plan.most:,}; the limit is {limit}"]
    elif plan.short.any():
        n_short = counted(int((plan.short > 0).sum()), "cell has", "cells have")
        notes = [
            f"{n_short} {int(plan.short.sum()):,} rows too few for their shares and give all; the others give more: "
            f"{plan.apart:.2%} of the rows lie elsewhere than requested. Up to {plan.most:,} rows every share is met; "
            f"the limit is {limit}"
        ]
    else:
        notes = []
    idle = int(((plan.taken == 0) & (plan.quota == 0)).sum())
    if idle and not request.shares:
        notes.append(
            f"{counted(idle, 'cell')} of {len(words.names):,} get no row: fewer rows are kept than there are cells"
        )
    return notes
