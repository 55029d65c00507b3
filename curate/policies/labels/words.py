"""The decisions about labels: one row for every input row, and why, in words."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.policies.labels.examine import REASONS, Examined
from curate.policies.labels.request import MEANINGS as COLUMN_MEANINGS
from curate.policies.labels.request import RULE, SUGGESTED, WHY
from curate.policies.outcomes import DECISION_SCHEMA, DROP, FAILED, KEEP, UNDECIDED, decision_rows
from curate.policies.reviewed import RULE as VERDICTS

CURRENT = "given_label"
MEANINGS: dict[str, str] = {
    "decision": "keep, drop (a suspected label), undecided (a label that cannot be judged) or failed (not scored)",
    "reason": "the decision in words",
    "rule": "what decided: labels, or the verdicts of reviewers",
    "score": "label_quality",
    "threshold": "below which a label is suspected",
    "margin": "label_quality less the threshold",
    CURRENT: "the label; of several annotators that with most votes",
    SUGGESTED: COLUMN_MEANINGS[SUGGESTED],
    WHY: COLUMN_MEANINGS[WHY],
}


def schema_of(examined: Examined) -> pa.Schema:
    """Return the schema of the decisions."""
    kind = examined.typed_classes.type
    return pa.schema([*DECISION_SCHEMA, pa.field(CURRENT, kind), pa.field(SUGGESTED, kind), pa.field(WHY, pa.string())])


def outcomes(examined: Examined) -> NDArray[np.uint8]:
    """Return what becomes of each row, shape (N,).

    Rows are dropped only where that was requested, and then rows whose label cannot be judged are undecided, or where a
    reviewer dropped them; else every scored row is kept.
    """
    kept = np.full(len(examined.ok), KEEP, np.uint8)
    if examined.request.drop:
        kept[examined.reason >= 0] = UNDECIDED
        kept[examined.suspected] = DROP
    if examined.reviewed is not None:
        kept[examined.reviewed.drop] = DROP
    kept[~examined.ok] = FAILED
    return kept


@dataclass(frozen=True)
class LabelWords:
    """What became of N rows, in words.

    Attributes:
        examined: what is thought of their labels.
        outcome: shape (N,).
    """

    examined: Examined
    outcome: NDArray[np.uint8]

    def rows(self, start: int, keys: pa.Array, status: pa.Array | None, error: pa.Array | None) -> pa.RecordBatch:
        """Return the decisions of the rows from ``start`` on; see ``curate.policies.decided.Words``."""
        examined, below = self.examined, self.examined.request.below
        part = slice(start, start + len(keys))
        quality = examined.quality[part].astype(np.float64)
        unknown = np.isnan(quality)
        why = examined.why().slice(start, len(keys))
        return decision_rows(
            schema_of(examined),
            (keys, status, error),
            self.outcome[part],
            self._texts(part, why),
            rule=pa.array([None, RULE, VERDICTS], pa.string()).take(pa.array(self._rules(part))),
            score=pa.array(quality, mask=unknown),
            threshold=pa.array(np.full(len(keys), below), mask=unknown),
            margin=pa.array(quality - below, mask=unknown),
            **{CURRENT: examined.of_codes(examined.labels[part]), WHY: why},
            **{SUGGESTED: examined.of_codes(examined.suggested[part])},
        )

    def _rules(self, part: slice) -> NDArray[np.int64]:
        """Which decided: nothing, the evidence, or a reviewer, shape (M,)."""
        examined = self.examined
        rules = np.where(np.isnan(examined.quality[part]), 0, 1)
        if examined.reviewed is not None:
            rules[(examined.settled | examined.reviewed.drop)[part]] = 2
        return rules

    def _texts(self, part: slice, why: pa.Array) -> NDArray:
        examined, below = self.examined, self.examined.request.below
        quality, reason = examined.quality[part], examined.reason[part]
        texts = np.array(["the label stands", *REASONS], object)[np.where(np.isnan(quality), reason + 1, 0)]
        names = np.array([*examined.classes, "none"], object)
        labels, suggested = names[examined.labels[part]], names[examined.suggested[part]]
        for row in np.flatnonzero(quality < below).tolist():
            instead = f"{suggested[row]!r} is likelier" if suggested[row] != labels[row] else "it is doubtful"
            by = f"; {why[row].as_py()}" if why[row].is_valid else ""
            texts[row] = f"labelled {labels[row]!r}, {instead} (quality {quality[row]:.3g}{by})"
        for row in np.flatnonzero((reason == 0) & (examined.suggested[part] >= 0)).tolist():
            texts[row] = f"{REASONS[0]}; {suggested[row]!r} is likeliest"
        reviewed = examined.reviewed
        if reviewed is not None:
            for row in np.flatnonzero((examined.settled | reviewed.drop)[part]).tolist():
                by = reviewed.by[part.start + row]
                texts[row] = (
                    f"dropped by {by}" if reviewed.drop[part.start + row] else f"labelled {labels[row]!r} by {by}"
                )
        return texts
