"""The decisions of a split: one row for every input row, its side, and why, in words."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.policies.outcomes import DECISION_SCHEMA, FAILED, decision_rows

SPLIT = "split"
MEANINGS: dict[str, str] = {
    "decision": "keep (on a side), or failed (not scored)",
    "reason": "the side and what decided, in words",
    "rule": "what decided",
    "score": "where the row, or its group, is on [0, 1), of which each side has its share",
    "threshold": "not used: where the sides meet is in the receipt",
    "margin": "not used",
    SPLIT: "the side",
    "group": "number of the rows that are kept together; null for a row that stands alone",
}
SCHEMA = pa.schema([*DECISION_SCHEMA, pa.field(SPLIT, pa.string()), pa.field("group", pa.int64())])


@dataclass(frozen=True)
class SplitWords:
    """Turns sides into rows of the decisions table, a slice at a time.

    Attributes:
        outcome: codes of ``curate.policies.outcomes``, shape (N,).
        side: of each row, shape (N,), a place in ``names``; -1 where it failed.
        group: of each row, shape (N,); -1 where it failed.
        sizes: rows of each group, shape (G,).
        place: of each group on [0, 1), shape (G,).
        names: of the sides.
        basis: what holds rows together, in words, such as ``patient or copies``.
    """

    outcome: NDArray[np.uint8]
    side: NDArray[np.int64]
    group: NDArray[np.int64]
    sizes: NDArray[np.int64]
    place: NDArray[np.float64]
    names: tuple[str, ...]
    basis: str

    def rows(self, start: int, keys: pa.Array, status: pa.Array | None, error: pa.Array | None) -> pa.RecordBatch:
        """Return the decisions of the rows from ``start`` on; see ``curate.policies.decided.Words``."""
        part = slice(start, start + len(keys))
        outcome, side, group = self.outcome[part], self.side[part], self.group[part]
        failed = outcome == FAILED
        sizes = np.where(failed, 0, self.sizes[np.maximum(group, 0)]) if len(self.sizes) else np.zeros(len(keys), int)
        place = np.where(failed, np.nan, self.place[np.maximum(group, 0)]) if len(self.place) else np.zeros(len(keys))
        reason = np.full(len(keys), "", object)
        assigned = np.flatnonzero(~failed)
        reason[assigned] = [
            f"{self.names[at]}: by the hash of its key"
            if size == 1
            else f"{self.names[at]}: with {size - 1:,} more of the same {self.basis}"
            for at, size in zip(side[assigned].tolist(), sizes[assigned].tolist(), strict=True)
        ]
        names = pa.array(self.names, pa.string()).take(pa.array(side, mask=failed))
        return decision_rows(
            SCHEMA,
            (keys, status, error),
            outcome,
            reason,
            rule=pa.array([SPLIT], pa.string()).take(pa.array(np.zeros(len(keys), np.int64), mask=failed)),
            score=pa.array(place, mask=failed),
            split=names,
            group=pa.array(group, mask=failed | (sizes < 2)),
        )
