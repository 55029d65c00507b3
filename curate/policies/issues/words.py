"""The decisions of an issues run: all kinds of each row, with reasons."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curate.policies.decided import DECISION_SCHEMA, UNDECIDED, decision_rows
from curate.policies.issues.kinds import GROUPS, Kind, Values

SCHEMA = DECISION_SCHEMA.append(pa.field("kinds", pa.string()))
MEANINGS: dict[str, str] = {
    "decision": "keep, drop, undecided (the row has no measures) or failed (not scored)",
    "reason": "the decision in words: the kind that decided, then others",
    "rule": "the kind of issue that decided; of a kept row, the first that it has",
    "score": "the row's value in that kind's measure",
    "threshold": "the threshold of the kind in this dataset",
    "margin": "distance of the score from the threshold; negative where it is an issue",
    "kinds": "every kind of issue of the row, also kinds that drop nothing; null for none",
}


@dataclass(frozen=True)
class Looked:
    """The findings on N rows, by kind.

    Attributes:
        measures: kind -> values, shape (N,).
        cuts: kind -> threshold.
        has: kind -> mask of issues, shape (N,); all False for a kind in ``off``.
        off: kinds that are the style of the dataset -> their number of rows.
    """

    measures: dict[str, Values]
    cuts: dict[str, float]
    has: dict[str, np.ndarray]
    off: dict[str, int]


@dataclass(frozen=True)
class IssueWords:
    """Writes the reasons of the decisions, a slice of rows at a time.

    Attributes:
        kinds: the checked kinds.
        looked: the findings on N rows.
        outcome: shape (N,).
        first: index of the deciding kind, shape (N,), or -1.
    """

    kinds: Mapping[str, Kind]
    looked: Looked
    outcome: np.ndarray
    first: np.ndarray

    def rows(self, start: int, keys: pa.Array, status: pa.Array | None, error: pa.Array | None) -> pa.RecordBatch:
        """Return the decisions of M rows from ``start``, in ``SCHEMA``; see ``DecisionWords.rows``."""
        stop = start + len(keys)
        outcome, first, looked = self.outcome[start:stop], self.first[start:stop], self.looked
        score, threshold, margin = (np.full(len(keys), np.nan) for _ in range(3))
        reason = np.full(len(keys), "no issue was found", object)
        reason[outcome == UNDECIDED] = "no measure of quality has a value"
        every = np.full(len(keys), None, object)
        texts_of: dict[int, list[str]] = {}
        for number, (name, kind) in enumerate(self.kinds.items()):
            places = np.flatnonzero(looked.has[name][start:stop])
            values = looked.measures[name][start:stop]
            for row in places.tolist():
                text = f"{name}: {kind.name} {values[row]:.4g} is {kind.side} {looked.cuts[name]:.4g}"
                if name == GROUPS:
                    text = f"{name}: in group {values[row]:.0f}"
                texts = texts_of.setdefault(row, [])
                texts.insert(0 if first[row] == number else len(texts), text)  # the deciding reason comes first
                every[row] = name if every[row] is None else f"{every[row]}, {name}"
            decided = np.flatnonzero(first == number)
            score[decided], threshold[decided] = values[decided], looked.cuts[name]
            distance = score[decided] - threshold[decided]
            margin[decided] = distance if kind.low else -distance
        for row, texts in texts_of.items():
            reason[row] = "; ".join(texts)
        return decision_rows(
            SCHEMA,
            (keys, status, error),
            outcome,
            reason,
            rule=pa.array([*self.kinds], pa.string()).take(pa.array(first, mask=first < 0)),
            score=pa.array(score, from_pandas=True),
            threshold=pa.array(threshold, from_pandas=True),
            margin=pa.array(margin, from_pandas=True),
            kinds=pa.array(every, pa.string()),
        )
