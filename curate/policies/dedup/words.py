"""The decisions of a deduplication with reasons, one row for every input row; and the list of leaks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.manifest.text import csv_lines
from curate.policies.decided import DECISION_SCHEMA, DROP, FAILED, KEEP, decision_rows
from curate.policies.dedup.decide import Duplicates
from curate.policies.dedup.finders.looks import in_words, seen
from curate.policies.dedup.finders.table import FINDERS
from curate.policies.dedup.grouping.stars import Stars
from curate.policies.dedup.request import TURNED, DedupRequest, change_words
from curate.policies.reviewed import RULE
from curate.policies.verdicts import COPY
from curate.policies.verdicts import KEEP as KEPT
from curate.tables.keys import keys_at
from curate.tables.table import Table
from scoring.arrays import Ints

MEANINGS: dict[str, str] = {
    "decision": "keep, drop (the same as kept_key) or failed (not scored)",
    "reason": "the decision in words",
    "rule": "the finder that decided, and its threshold; verdicts if reviewers decided; review if they have to",
    "score": "similarity to kept_key, in the unit of the finder",
    "threshold": "what the similarity had to reach",
    "margin": "by how much it exceeded that",
    "group": "rows that are the same have one number; null where a row is like no other",
    "kept_key": "the row kept instead, or the row it leaks from",
}
REVIEW = "review"  # rule of rows kept until reviewed
LEAKS = "leaks"  # the file that names them
LEAK_COLUMNS = ("table", "key", "other_table", "other_key", "finder", "similarity", "how")
SCHEMA = pa.schema([*DECISION_SCHEMA, pa.field("group", pa.int64()), pa.field("kept_key", pa.string())])


@dataclass(frozen=True)
class DecisionWords:
    """Writes the reasons of the decisions on N rows, a slice of rows at a time.

    Attributes:
        duplicates: the decisions.
        request: with the finders.
        group: of each row, shape (N,) int64, -1 for none.
        kept_key: key of the kept row, text or null, N.
        other: name of the other table, or an empty text.
    """

    duplicates: Duplicates
    request: DedupRequest
    group: Ints
    kept_key: pa.Array
    other: str

    def rows(self, start: int, keys: pa.Array, status: pa.Array | None, error: pa.Array | None) -> pa.RecordBatch:
        """Return the decisions of rows from ``start``; see ``curate.policies.decided.Words``."""
        part = slice(start, start + len(keys))
        outcome, finder = self.duplicates.outcome[part], self.duplicates.stars.finder[part]
        linked = finder >= 0
        names = self.duplicates.stars.names
        typed = [rule_text(name, self.request.bounds[name]) for name in names]
        similarity = self.duplicates.stars.similarity[part]
        bounds = np.array([*(self.request.bounds[name] for name in names), np.nan])
        signs = np.array([*(1.0 if FINDERS[name].higher else -1.0 for name in names), np.nan])
        threshold = np.where(linked, bounds[finder], np.nan)
        margin = (similarity - threshold) * signs[finder]
        kept_key = self.kept_key.slice(start, len(keys))
        group = self.group[part]
        rule = np.where((outcome == DROP) & ~linked, len(typed), finder).astype(np.int64)
        rule[self.duplicates.to_review[part]] = len(typed) + 1
        return decision_rows(
            SCHEMA,
            (keys, status, error),
            outcome,
            self._reasons(part, kept_key),
            rule=pa.array([*typed, RULE, REVIEW], pa.string()).take(pa.array(rule, mask=rule < 0)),
            score=pa.array(similarity, from_pandas=True),
            threshold=pa.array(threshold, from_pandas=True),
            margin=pa.array(margin, from_pandas=True),
            group=pa.array(group, mask=group < 0),
            kept_key=kept_key,
        )

    def _reasons(self, part: slice, kept_key: pa.Array) -> NDArray[np.object_]:
        outcome, finder, group = self.duplicates.outcome[part], self.duplicates.stars.finder[part], self.group[part]
        leaks, start, unconfirmed = self.duplicates.leaks[part], part.start, self.duplicates.unconfirmed[part]
        listed = self.duplicates.listed[part]
        views = [view.name for view in self.request.views()]
        reason = np.full(len(outcome), "like no other", object)
        reason[self.duplicates.different[part]] = "like no other but by signature: another image in a part"
        reason[group >= 0] = "the row kept of its group"
        protected = self.duplicates.rows.holds(self.request.protect)
        if protected is not None:
            reason[protected[part] & (outcome != FAILED)] = "protected"
        reviewed = self.duplicates.reviewed
        decided = (outcome == DROP) & (finder < 0)  # by reviewers alone
        kept_copies = reviewed.answered(COPY, KEPT)[part] & (outcome == KEEP)
        for at in np.flatnonzero(decided | kept_copies).tolist():
            reason[at] = f"{'dropped' if decided[at] else 'kept'} by {reviewed.by[start + at]}"
        linked = np.flatnonzero(finder >= 0)
        keys = kept_key.take(pa.array(linked)).to_pylist()
        for at, key in zip(linked.tolist(), keys, strict=True):
            place = f" of {self.other}" if self.duplicates.outside[part][at] else ""
            how = how_matched(self.duplicates, self.duplicates.stars, start + at, views)
            kept = "" if outcome[at] == DROP else ", but stays"
            if self.duplicates.to_review[start + at]:
                cause = "not confirmed by the thumbnails" if unconfirmed[at] else "one of many just above the threshold"
                cause = "only --cropped drops it" if listed[at] else cause
                kept = f"; {cause}, kept until reviewed"
            owner = int(self.duplicates.stars.owner[start + at])
            if not place and reviewed.drop[owner]:
                kept += f", which was dropped by {reviewed.by[owner]}"
            too = f"; {self.other} has it too" if leaks[at] and not place else ""
            reason[at] = f"the same as {key}{place} by {how}{kept}{too}"
        return reason


def rule_text(name: str, threshold: float) -> str:
    """Return a finder with its threshold as text.

    >>> rule_text("hash", 4), rule_text("signature", 0.95), rule_text("bytes", 1)
    ('hash <= 4', 'signature >= 0.95', 'bytes')
    """
    finder = FINDERS[name]
    if finder.threshold is None:
        return name
    return f"{name} {'>=' if finder.higher else '<='} {threshold:g}"


def how_matched(duplicates: Duplicates, stars: Stars, row: int, views: Sequence[str]) -> str:
    """Return a text on the finder that linked a row to its owner, and how the image was changed.

    Args:
        duplicates: the decisions.
        stars: groups within the table, or with another table.
        row: a row with an owner.
        views: names of the compared views.
    """
    name, code = stars.names[stars.finder[row]], int(stars.view[row])
    words = how_alike(name, float(stars.similarity[row]), code, views)
    if name == "bytes":
        return words
    is_outside = stars is duplicates.foreign or bool(duplicates.outside[row])
    look = duplicates.other_look if is_outside else duplicates.look
    if look is None:
        raise ValueError("an owner in another table was compared with that table")
    view, is_part = seen(code, views)
    changes = change_words(duplicates.look, row, look, int(stars.owner[row]), turned=view in TURNED, part=is_part)
    return f"{words}: {', '.join(changes)}" if changes else words


def how_alike(name: str, similarity: float, view: int, views: Sequence[str]) -> str:
    """Return a text on the finder that linked two rows.

    Args:
        name: of the finder.
        similarity: in its unit.
        view: matching view of the kept row, as ``Links.view``.
        views: names of the compared views.
    """
    unit, looks = FINDERS[name].unit, in_words(view, views)
    seen = f", {looks}" if looks else ""
    if not unit:
        return f"{name}{seen}"
    return (
        f"{name} ({similarity:.0f} bits differ{seen})" if unit == "bits" else f"{name} ({unit} {similarity:.4f}{seen})"
    )


def leaks_csv(table: Table, against: Table, duplicates: Duplicates, request: DedupRequest) -> bytes:
    """Return the leaks as CSV, in the order of the table; text that a spreadsheet would run is escaped."""
    foreign = duplicates.foreign
    rows = np.flatnonzero(duplicates.leaks)
    views = [view.name for view in request.views()]
    lines: list[tuple[object, ...]] = [LEAK_COLUMNS]
    table_path, against_path = str(table.path.resolve()), str(against.path.resolve())  # the same wherever one is
    named = zip(rows.tolist(), keys_at(table, rows), keys_at(against, foreign.owner[rows]), strict=True)
    for row, key, other_key in named:
        name, similarity = foreign.names[foreign.finder[row]], float(foreign.similarity[row])
        how = how_matched(duplicates, foreign, row, views)
        lines.append((table_path, key, against_path, other_key, name, f"{similarity:.6g}", how))
    text = csv_lines(lines)
    return text.encode("utf-8" if text.isascii() else "utf-8-sig")
