"""The decisions of a balance: one row for every input row, its cell, and why, in words."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.policies.balance.cells import WITHIN
from curate.policies.outcomes import DECISION_SCHEMA, DROP, FAILED, KEEP, UNDECIDED, decision_rows

MEANINGS: dict[str, str] = {
    "decision": "keep, drop, undecided (a value or an embedding is missing) or failed (not scored)",
    "reason": "the decision in words",
    "rule": "what decided",
    "score": "what the row's place in its cell uses; null where that is the hash of its key",
    "threshold": "the last value that stayed in its cell",
    "margin": "not used: the place in the cell decides",
    "cell": "value of the column, or number of the cluster",
}
SCHEMA = pa.schema([*DECISION_SCHEMA, pa.field("cell", pa.string())])


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
