"""The decisions of a selection with reasons, one row for every input row."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.policies.decided import DECISION_SCHEMA, DROP, FAILED, KEEP, UNDECIDED, decision_rows

MEANINGS: dict[str, str] = {
    "decision": "keep (picked), drop, undecided (a value that the strategy needs is missing) or failed (not scored)",
    "reason": "the decision in words",
    "rule": "what decided",
    "score": "what the pick added, in the strategy's own unit",
    "threshold": "not used: a selection has no threshold",
    "margin": "not used: a selection has no threshold",
    "rank": "place among the picks, from 1",
    "gain": "what the pick added, in the strategy's own unit",
}
SCHEMA = pa.schema([*DECISION_SCHEMA, pa.field("rank", pa.int64()), pa.field("gain", pa.float64())])
# Reasons of outcomes; codes of ``ChoiceVerdict.why`` other than missing values.
NOT_PICKED, PICKED, LABELLED, EXCLUDED, GATED, NOT_SCORED, MISSING = range(7)


@dataclass(frozen=True)
class ChoiceVerdict:
    """The outcomes of N rows of a table, in its order.

    Attributes:
        why: shape (N,) int8: one of the codes of this module, or ``MISSING`` + n for the n-th of ``reasons``.
        rank: shape (N,) int64, from 1; 0 if not picked.
        gain: shape (N,) float64; NaN if not picked.
        reasons: texts on missing values.
        strategy: name of the strategy.
        rules: the deciding rule by code, as typed.
    """

    why: NDArray[np.int8]
    rank: NDArray[np.int64]
    gain: NDArray[np.float64]
    reasons: tuple[str, ...]
    strategy: str
    rules: dict[int, str]

    @property
    def outcome(self) -> NDArray[np.uint8]:
        """Codes of ``curate.policies.decided``, shape (N,)."""
        by_code = np.full(MISSING + len(self.reasons) + 1, DROP, np.uint8)
        by_code[PICKED], by_code[NOT_SCORED], by_code[MISSING:] = KEEP, FAILED, UNDECIDED
        return by_code[self.why]

    def dropped_by(self) -> dict[str, int]:
        """Return the number of unpicked rows by reason, without reasons that no row has."""
        names = {
            LABELLED: "labelled already",
            EXCLUDED: "excluded",
            GATED: "left out by the gate",
            NOT_PICKED: "not picked",
        }
        counts = np.bincount(self.why, minlength=MISSING).tolist()
        return {name: counts[code] for code, name in names.items() if counts[code]}

    def undecided_by(self) -> dict[str, int]:
        """Return the number of rows that lack each required value, by its name."""
        counts = np.bincount(self.why, minlength=MISSING + len(self.reasons)).tolist()[MISSING:]
        return {reason: n for reason, n in zip(self.reasons, counts, strict=True) if n}

    def rows(self, start: int, keys: pa.Array, status: pa.Array | None, error: pa.Array | None) -> pa.RecordBatch:
        """Return the decisions of rows from ``start``; see ``curate.policies.decided.Words``."""
        part = slice(start, start + len(keys))
        why, rank, gain = self.why[part], self.rank[part], self.gain[part]
        texts = [
            f"not among the {int((self.rank > 0).sum()):,} that {self.strategy} picked",
            "",
            "labelled already",
            "excluded",
            "quality in the lowest share, which the gate excludes",
            "",
            *self.reasons,
        ]
        reason = np.array(texts, object)[why]
        picked = np.flatnonzero(why == PICKED)
        reason[picked] = [
            f"picked as number {place:,} by {self.strategy} (gain {value:.6g})"
            for place, value in zip(rank[picked].tolist(), gain[picked].tolist(), strict=True)
        ]
        rules = [self.rules.get(code) for code in range(MISSING + len(self.reasons))]
        gains = pa.array(gain, mask=rank == 0)
        return decision_rows(
            SCHEMA,
            (keys, status, error),
            self.outcome[part],
            reason,
            rule=pa.array(rules, pa.string()).take(pa.array(why)),
            score=gains,
            rank=pa.array(rank, mask=rank == 0),
            gain=gains,
        )
