"""The result of a balance with notes, and its decisions: one row for every input row, with cell and reason."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.counted import counted
from curate.policies.balance.amounts import Amounts
from curate.policies.balance.cells import WITHIN
from curate.policies.balance.request import BalanceRequest
from curate.policies.outcomes import DECISION_SCHEMA, DROP, FAILED, KEEP, UNDECIDED, decision_rows
from curate.policies.result import Result

MEANINGS: dict[str, str] = {
    "decision": "keep, drop, undecided (a value or an embedding is missing) or failed (not scored)",
    "reason": "the decision in words",
    "rule": "what decided",
    "score": "the value that ranks the row in its cell; null if that is the hash of its key",
    "threshold": "the last value that stayed in its cell",
    "margin": "not used: the place in the cell decides",
    "cell": "value of the column, or number of the cluster",
}
SCHEMA = pa.schema([*DECISION_SCHEMA, pa.field("cell", pa.string())])
OVER, NO_SHARE = "beyond the share of its cell", "in a cell without a share"


@dataclass(frozen=True)
class BalanceWords:
    """Turns places in cells into rows of the decisions table, a slice at a time.

    Attributes:
        outcome: codes of ``curate.policies.outcomes``, shape (N,).
        cell: of each row, shape (N,), a place in ``names``; -1 where it has none.
        place: rows of its cell before each, shape (N,).
        score: as the column has it, shape (N,); NaN if absent.
        lacks: number of what is missing, shape (N,), a place in ``reasons``; -1 for nothing.
        names: of the cells.
        sizes: rows of each.
        taken: rows of each that stay.
        cuts: last score that stays in each cell; NaN if absent.
        reasons: what is missing, in words.
        what: the cells are: the column, or ``cluster``.
        within: the order of rows in a cell.
    """

    outcome: NDArray[np.uint8]
    cell: NDArray[np.int32]
    place: NDArray[np.int64]
    score: NDArray[np.float64]
    lacks: NDArray[np.int8]
    names: list[str]
    sizes: NDArray[np.int64]
    taken: NDArray[np.int64]
    cuts: NDArray[np.float64]
    reasons: tuple[str, ...]
    what: str
    within: str

    def rows(self, start: int, keys: pa.Array, status: pa.Array | None, error: pa.Array | None) -> pa.RecordBatch:
        """Return the decisions of the rows from ``start`` on; see ``curate.policies.decided.Words``."""
        part = slice(start, start + len(keys))
        outcome, cell, score = self.outcome[part], self.cell[part], self.score[part]
        judged = (outcome == KEEP) | (outcome == DROP)
        reason = np.full(len(keys), "", object)
        at = np.flatnonzero(judged)
        codes = cell[at]
        columns = (self.taken[codes], self.sizes[codes], self.place[part][at] + 1)
        who = WITHIN[self.within]
        reason[at] = [
            f"number {place:,} of {self.what} {self.names[code]}, which gives {quota:,} of {size:,} rows, {who}"
            for code, quota, size, place in zip(codes.tolist(), *(each.tolist() for each in columns), strict=True)
        ]
        lacking = np.flatnonzero(outcome == UNDECIDED)
        reason[lacking] = np.array([*self.reasons, ""], object)[self.lacks[part][lacking]]
        cuts = np.full(len(keys), np.nan)
        cuts[at] = self.cuts[codes]
        rule = pa.array([f"--per {self.what}"], pa.string()).take(
            pa.array(np.zeros(len(keys), np.int64), mask=outcome == FAILED)
        )
        return decision_rows(
            SCHEMA,
            (keys, status, error),
            outcome,
            reason,
            rule=rule,
            score=pa.array(np.where(judged, score, np.nan), from_pandas=True),
            threshold=pa.array(cuts, from_pandas=True),
            cell=pa.array(self.names, pa.string()).take(pa.array(cell, mask=cell < 0)),
        )


@dataclass(frozen=True)
class BalanceResult(Result):
    """The result of a balance, as ``curate balance`` prints it.

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
    """Return the counts and notes.

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
        option = "--rows AMOUNT --nearest" if request.shares else "--rows AMOUNT"
        more = f"; {option} keeps more, and all rows of cells with too few" if 2 * plan.most < words.sizes.sum() else ""
        notes = [f"as many rows as meet every share: {plan.most:,}; the limit is {limit}{more}"]
    elif plan.short.any():
        n_short = counted(int((plan.short > 0).sum()), "cell has", "cells have")
        notes = [
            f"{n_short} {int(plan.short.sum()):,} rows too few for their shares and keep all; the others keep "
            f"more: {plan.apart:.2%} of the rows differ from the request. Up to {plan.most:,} rows every share is met; "
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
