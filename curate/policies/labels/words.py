"""The decisions about labels: one row for every input row, and why, in words."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.policies.labels.columns import LabelColumns
from curate.policies.labels.examine import REASONS
from curate.policies.labels.request import MEANINGS as COLUMN_MEANINGS
from curate.policies.labels.request import RULE, SUGGESTED, WHY
from curate.policies.outcomes import DECISION_SCHEMA, DROP, FAILED, KEEP, OUTCOMES, UNDECIDED, failures
from curate.policies.reviewed import RULE as VERDICTS

GIVEN = "given_label"
MEANINGS: dict[str, str] = {
    "decision": "keep, drop (a suspected label), undecided (a label that cannot be judged) or failed (not scored)",
    "reason": "the decision in words",
    "rule": "what decided: labels, or the verdicts of reviewers",
    "score": "label_quality",
    "threshold": "below which a label is suspected",
    "margin": "label_quality less the threshold",
    GIVEN: "the label; of several annotators that with most votes",
    SUGGESTED: COLUMN_MEANINGS[SUGGESTED],
    WHY: COLUMN_MEANINGS[WHY],
}


def schema_of(columns: LabelColumns) -> pa.Schema:
    """Return the schema of the decisions."""
    kind = columns.names.type
    return pa.schema([*DECISION_SCHEMA, pa.field(GIVEN, kind), pa.field(SUGGESTED, kind), pa.field(WHY, pa.string())])


def outcomes(columns: LabelColumns) -> NDArray[np.uint8]:
    """Return what becomes of each row, shape (N,).

    Rows go only where that was requested, and then those whose label cannot be judged are undecided, or where a
    reviewer dropped them; else every row that was scored stays.
    """
    found, request = columns.examined, columns.request
    kept = np.full(len(found.ok), KEEP, np.uint8)
    if request.drop:
        kept[found.reason >= 0] = UNDECIDED
        kept[found.suspected(request.below)] = DROP
    if found.reviewed is not None:
        kept[found.reviewed.drop] = DROP
    kept[~found.ok] = FAILED
    return kept


@dataclass(frozen=True)
class LabelWords:
    """What became of N rows, in words.

    Attributes:
        columns: what is thought of their labels.
        outcome: shape (N,).
    """

    columns: LabelColumns
    outcome: NDArray[np.uint8]

    def rows(self, start: int, keys: pa.Array, status: pa.Array | None, error: pa.Array | None) -> pa.RecordBatch:
        """Return the decisions of the rows from ``start`` on; see ``curate.policies.decided.Words``."""
        columns = self.columns
        found, below = columns.examined, columns.request.below
        here = slice(start, start + len(keys))
        quality = found.quality[here].astype(np.float64)
        unknown = np.isnan(quality)
        why = found.why().slice(start, len(keys))
        given, suggested = columns.classes(found.given[here]), columns.classes(found.suggested[here])
        texts = self._texts(here, why, status, error)
        return pa.RecordBatch.from_arrays(
            [
                keys,
                pa.array(OUTCOMES).take(pa.array(self.outcome[here])),
                pa.array(texts, pa.string()),
                pa.array([None, RULE, VERDICTS], pa.string()).take(pa.array(self._rules(here))),
                pa.array(quality, mask=unknown),
                pa.array(np.full(len(keys), below), mask=unknown),
                pa.array(quality - below, mask=unknown),
                given,
                suggested,
                why,
            ],
            schema=schema_of(columns),
        )

    def _rules(self, here: slice) -> NDArray[np.int64]:
        """Which decided: nothing, the evidence, or a reviewer, shape (M,)."""
        found = self.columns.examined
        rules = np.where(np.isnan(found.quality[here]), 0, 1)
        if found.reviewed is not None:
            rules[(found.settled | found.reviewed.drop)[here]] = 2
        return rules

    def _texts(self, here: slice, why: pa.Array, status: pa.Array | None, error: pa.Array | None) -> NDArray:
        found, below = self.columns.examined, self.columns.request.below
        quality, reason = found.quality[here], found.reason[here]
        texts = np.array(["the label stands", *REASONS], object)[np.where(np.isnan(quality), reason + 1, 0)]
        names = np.array([*found.classes, "none"], object)
        given, suggested = names[found.given[here]], names[found.suggested[here]]
        for row in np.flatnonzero(quality < below).tolist():
            instead = f"{suggested[row]!r} is likelier" if suggested[row] != given[row] else "it is doubtful"
            by = f"; {why[row].as_py()}" if why[row].is_valid else ""
            texts[row] = f"labelled {given[row]!r}, {instead} (quality {quality[row]:.3g}{by})"
        for row in np.flatnonzero((reason == 0) & (found.suggested[here] >= 0)).tolist():
            texts[row] = f"{REASONS[0]}; {suggested[row]!r} is likeliest"
        reviewed = found.reviewed
        if reviewed is not None:
            for row in np.flatnonzero((found.settled | reviewed.drop)[here]).tolist():
                by = reviewed.by[here.start + row]
                texts[row] = (
                    f"dropped by {by}" if reviewed.drop[here.start + row] else f"labelled {given[row]!r} by {by}"
                )
        failed = np.flatnonzero(~found.ok[here])
        texts[failed] = failures(status, error, failed) or "not scored"
        return texts
