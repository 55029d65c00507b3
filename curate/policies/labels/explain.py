"""The result of checking labels, and the decisions with reasons."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.counted import Grid, counted
from curate.manifest.store_path import AnyPath
from curate.policies.decided import DECISION_SCHEMA, DROP, FAILED, KEEP, UNDECIDED, Result, decision_rows
from curate.policies.labels.examine import MEANINGS as COLUMN_MEANINGS
from curate.policies.labels.examine import REASONS, RULE, SUGGESTED, WHY, WITNESSES, Examined
from curate.policies.reviewed import RULE as VERDICTS
from curate.policies.sampled import estimate
from curate.tables.keys import keys_at
from scoring.arrays import Array

CURRENT = "given_label"
MEANINGS: dict[str, str] = {
    "decision": "keep, drop (a suspected label), undecided (a label that cannot be judged) or failed (not scored)",
    "reason": "the decision in words",
    "rule": "what decided: labels, or the verdicts of reviewers",
    "score": "label_quality",
    "threshold": "a label is suspected below this",
    "margin": "label_quality less the threshold",
    CURRENT: "the label; of several annotators that with most votes",
    SUGGESTED: COLUMN_MEANINGS[SUGGESTED],
    WHY: COLUMN_MEANINGS[WHY],
}
REVIEW = "review"
N_WORST = 50
MOST_PAIRS = 1000


def schema_of(examined: Examined) -> pa.Schema:
    """Return the schema of the decisions."""
    kind = examined.typed_classes.type
    return pa.schema([*DECISION_SCHEMA, pa.field(CURRENT, kind), pa.field(SUGGESTED, kind), pa.field(WHY, pa.string())])


def outcomes(examined: Examined) -> NDArray[np.uint8]:
    """Return the outcome of each row, shape (N,).

    Rows are only dropped if requested, or by a reviewer. If rows are dropped, those whose quality is unknown are
    undecided; otherwise all scored rows are kept.
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
    """Writes the reasons of the decisions, a slice of rows at a time.

    Attributes:
        examined: quality of the labels.
        outcome: shape (N,).
    """

    examined: Examined
    outcome: NDArray[np.uint8]

    def rows(self, start: int, keys: pa.Array, status: pa.Array | None, error: pa.Array | None) -> pa.RecordBatch:
        """Return the decisions of rows from ``start``; see ``curate.policies.decided.Words``."""
        examined, below = self.examined, self.examined.request.below
        part = slice(start, start + len(keys))
        quality = examined.quality[part].astype(np.float64)
        unknown = np.isnan(quality)
        why = examined.why().slice(start, len(keys))
        rules = np.where(unknown, 0, 1)  # none, the evidence, or a reviewer
        if examined.reviewed is not None:
            rules[(examined.settled | examined.reviewed.drop)[part]] = 2
        return decision_rows(
            schema_of(examined),
            (keys, status, error),
            self.outcome[part],
            self._texts(part, why),
            rule=pa.array([None, RULE, VERDICTS], pa.string()).take(pa.array(rules)),
            score=pa.array(quality, mask=unknown),
            threshold=pa.array(np.full(len(keys), below), mask=unknown),
            margin=pa.array(quality - below, mask=unknown),
            **{CURRENT: examined.of_codes(examined.labels[part]), WHY: why},
            **{SUGGESTED: examined.of_codes(examined.suggested[part])},
        )

    def _texts(self, part: slice, why: pa.Array) -> Array:
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
            texts[row] = f"{REASONS[0]}; {suggested[row]!r} is the most likely"
        reviewed = examined.reviewed
        if reviewed is not None:
            for row in np.flatnonzero((examined.settled | reviewed.drop)[part]).tolist():
                by = reviewed.by[part.start + row]
                texts[row] = (
                    f"dropped by {by}" if reviewed.drop[part.start + row] else f"labelled {labels[row]!r} by {by}"
                )
        return texts


@dataclass(frozen=True)
class LabelsResult(Result):
    """The result of examining labels, as ``curate labels`` prints it.

    Attributes:
        judged: rows whose label quality is known.
        suspected: number of suspected labels.
        wrong: estimated share of wrong labels, with its interval: ``value``, ``low`` and ``high``.
        of_class: one entry per class: ``label``, judged ``rows``, ``suspected``, and ``wrong`` as above.
        pairs: pairs of a label and the likely true class: ``given``, ``true``, ``rows``, and ``share`` of the rows with
            that label; most rows first, at most 1,000.
        contradicted_by: kind of evidence -> number of suspected rows.
        worst: the rows with the lowest quality: ``key``, ``given``, ``suggested``, ``quality`` and ``why``.
        suggestions: unlabelled rows with a suggestion.
        annotators: one entry per column or annotator: ``column``, and ``accuracy`` as above; empty for one.
        alike: share of pairs of annotators' labels that agree; None for a single column.
        review: CSV of rows for reviewers; None if not requested.
    """

    judged: int = 0
    suspected: int = 0
    wrong: dict[str, float | None] = field(default_factory=dict)
    of_class: list[dict[str, Any]] = field(default_factory=list)
    pairs: list[dict[str, Any]] = field(default_factory=list)
    contradicted_by: dict[str, int] = field(default_factory=dict)
    worst: list[dict[str, Any]] = field(default_factory=list)
    suggestions: int = 0
    annotators: list[dict[str, Any]] = field(default_factory=list)
    alike: float | None = None
    review: AnyPath | None = None

    FILES: ClassVar[tuple[str, ...]] = (*Result.FILES, REVIEW)
    IN_RECEIPT: ClassVar[tuple[str, ...]] = ("judged", "suspected", "wrong")

    def summary(self, below: float | None = None) -> list[str]:
        """Return lines on the wrong labels, and on suspected ones with a quality below a bound."""
        of = "" if below is None else f" of a quality below {below:g}"
        by = ", ".join(f"{word} {n:,}" for word, n in self.contradicted_by.items())
        return [
            f"wrong labels: {bounds_text(self.wrong)} of {counted(self.judged, 'judged label')}, estimated",
            f"suspected: {counted(self.suspected, 'label')}{of} (contradicted by {by})",
        ]

    def lines(self) -> list[str | Grid]:
        """Return the estimated share of wrong labels, the account of all rows, and the written files, as lines."""
        return [*self.summary(), *super().lines()]


def bounds_text(share: Mapping[str, Any]) -> str:
    """Return the interval of a share.

    >>> bounds_text({"value": 0.1, "low": 0.05, "high": 0.2})
    '5.0 to 20.0 %'
    """
    return "unknown" if share["value"] is None else f"{100 * share['low']:.1f} to {100 * share['high']:.1f} %"


def share_text(share: Mapping[str, Any]) -> str:
    """Return a share with its interval as text.

    >>> share_text({"value": 0.1, "low": 0.05, "high": 0.2})
    '10.0 % (5.0 to 20.0 %)'
    """
    return "unknown" if share["value"] is None else f"{100 * share['value']:.1f} % ({bounds_text(share)})"


def worst_rows(examined: Examined, n: int) -> NDArray[np.int64]:
    """Return up to n suspected rows, lowest quality first; ties are broken by hash."""
    rows = np.flatnonzero(examined.suspected)
    return rows[np.lexsort((examined.hashes[rows], examined.quality[rows]))[:n]]


def label_facts(examined: Examined) -> dict[str, Any]:
    """Return the facts of ``LabelsResult`` other than counts and files."""
    suspected, judged = examined.suspected, ~np.isnan(examined.quality)
    n_classes, shares = len(examined.classes), examined.shares
    rows = np.bincount(examined.labels[judged], minlength=n_classes).tolist()
    gone = np.bincount(examined.labels[suspected], minlength=n_classes).tolist()
    order = np.argsort(-np.array(gone), kind="stable").tolist()
    return {
        "judged": int(judged.sum()),
        "suspected": int(suspected.sum()),
        "wrong": estimate(shares.overall),
        "of_class": [
            {
                "label": examined.classes[at],
                "rows": rows[at],
                "suspected": gone[at],
                "wrong": estimate(shares.of_class[at]),
            }
            for at in order
        ],
        "pairs": [
            {
                "given": examined.classes[pair.label],
                "true": examined.classes[pair.true],
                "rows": pair.rows,
                "share": estimate(pair.share),
            }
            for pair in shares.pairs[:MOST_PAIRS]
        ],
        "contradicted_by": {
            word: int((suspected & ((examined.against & bit) > 0)).sum()) for bit, word in WITNESSES.items()
        },
        "worst": _worst(examined),
        "suggestions": int(((examined.reason == 0) & (examined.suggested >= 0)).sum()),
        "annotators": [
            {"column": name, "accuracy": estimate(accuracy)}
            for name, accuracy in zip(examined.named, examined.annotators, strict=False)
        ],
        "alike": None if isnan(examined.alike) else examined.alike,
    }


def _worst(examined: Examined) -> list[dict[str, Any]]:
    rows = worst_rows(examined, N_WORST)
    why = examined.why().take(rows).to_pylist() if len(rows) else []
    return [
        {
            "key": str(key),
            "given": examined.classes[examined.labels[row]],
            "suggested": examined.classes[examined.suggested[row]],
            "quality": round(float(examined.quality[row]), 4),
            "why": text or "",
        }
        for key, row, text in zip(keys_at(examined.table, rows), rows.tolist(), why, strict=True)
    ]
