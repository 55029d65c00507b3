"""The verdicts of ``curate review`` on the rows of a table: drop, keep, or a new label."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.counted import counted
from curate.policies.arranged import Expected, Ranked, compare_arranged
from curate.policies.decided import KEEP
from curate.policies.verdicts import N_NAMED, SHORT, Verdicts, read_verdicts
from curate.tables.digests import text_hashes, value_type
from curate.tables.keys import places
from curate.tables.needs import SHA256, Needs
from curate.tables.rows import Rows
from curate.tables.table import Table
from scoring.errors import InputError

OPTION = "--verdicts"
LINES = "verdict_lines"
RULE = "verdicts"  # what decided, in decisions and counts
RELABELLED = "the label, or the reviewer's correction"


@dataclass(frozen=True)
class Reviewed:
    """The verdicts of reviewers on N rows.

    Attributes:
        drop: mask of rows dropped by a reviewer, shape (N,).
        keep: mask of rows kept by a reviewer and dropped by none, shape (N,).
        labels: column -> row -> new label.
        by: row -> the reviewers, and the group.
        answers: question -> verdict -> rows.
        gone: keys without a row.
        changed: keys whose image has changed.
        apart: mask of rows that were compared with an image, found to be different, and not dropped, shape (N,).
    """

    drop: NDArray[np.bool_]
    keep: NDArray[np.bool_]
    labels: Mapping[str, Mapping[int, str]]
    by: Mapping[int, str]
    answers: Mapping[str, Mapping[str, list[int]]]
    gone: list[str]
    changed: list[str]
    apart: NDArray[np.bool_]

    @classmethod
    def of_none(cls, n: int) -> Self:
        """Return N rows without verdicts."""
        none = np.zeros(n, bool)
        return cls(none, none, {}, {}, {}, [], [], none)

    @property
    def stays(self) -> NDArray[np.int64]:
        """Return the rows that a reviewer judged and kept."""
        rows = np.array([*self.by], np.int64)
        return rows[~self.drop[rows]]

    def answered(self, question: str, verdict: str) -> NDArray[np.bool_]:
        """Return a mask of the rows with a given verdict on a question, shape (N,)."""
        is_answered = np.zeros(len(self.drop), bool)
        is_answered[self.answers.get(question, {}).get(verdict, [])] = True
        return is_answered

    def lines(self, path: str) -> list[str]:
        """Return notes for the reader, one sentence a line."""
        n_labels = sum(map(len, self.labels.values()))
        relabelled = f", relabels {n_labels:,}" if n_labels else ""
        notes = [f"{OPTION} {path}: drops {int(self.drop.sum()):,}, keeps {int(self.keep.sum()):,}{relabelled}"]
        for keys, what in ((self.gone, "that the table does not have"), (self.changed, "that changed since")):
            if keys:
                named = ", ".join(map(repr, keys[:N_NAMED]))
                notes.append(f"{OPTION} {path}: {counted(len(keys), 'verdict')} on images {what}: {named}")
        return notes


@dataclass(frozen=True)
class VerdictLines:
    """A file of verdicts, up to a given line.

    Attributes:
        file: its path.
        lines: number of lines to use, since the file may grow; None for all.
        note: a remark for the reader.
        refuses: whether to refuse a table without any of the images; in a subset they may already be dropped.
    """

    file: str
    lines: int | None = None
    note: str = ""
    refuses: bool = False

    @cached_property
    def read(self) -> Verdicts:
        """The lines of the file."""
        return read_verdicts(self.file, lines=self.lines)

    def reviewed(self, table_rows: Rows) -> Reviewed:
        """Return the verdicts on the rows of a table; InputError if the verdicts belong to another table."""
        return reviewed_rows(self.read, table_rows, refuses=self.refuses)

    def notes(self, reviewed: Reviewed) -> list[str]:
        """Return notes for the reader, one sentence a line."""
        return [*reviewed.lines(self.file), *([self.note] if self.note else [])]

    def to_json(self) -> dict[str, Any]:
        """Return the file for a receipt, with the digest of the lines that were read."""
        read = self.read
        return {"file": {"path": str(read.path.resolve()), "digest": read.digest}, "lines": read.lines}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the file from the record of ``to_json``, with its present path."""
        file, lines = value.get("file"), value.get("lines")
        path = file.get("path") if isinstance(file, Mapping) else file
        if not isinstance(path, str) or type(lines) is not int or lines < 0:
            raise InputError("expected the file of verdicts and its lines in the receipt; restore it from a backup")
        return cls(path, lines)

    def for_rule(self) -> dict[str, Any]:
        """Return the file as part of another policy's rule."""
        noted = VerdictLines.to_json(self)
        return {RULE: noted["file"], LINES: noted["lines"]}

    @classmethod
    def in_rule(cls, rule: Mapping[str, Any]) -> Self | None:
        """Return the file that ``for_rule`` recorded in a rule; None without one."""
        return cls.from_json({"file": rule[RULE], "lines": rule.get(LINES)}) if RULE in rule else None

    @classmethod
    def of(cls, path: str | Path, table: Table) -> Self:
        """Return a file in its present state, checked against the columns of a table.

        Raises InputError if it is unreadable, reviewers disagree, or it relabels a column that the table lacks.
        """
        read = read_verdicts(path)
        decisions = read.decisions()
        if not decisions:
            raise InputError(f"{OPTION} {path} holds no verdict yet; decide some groups with curate review")
        table.require(sorted({column for said_of_key in decisions.values() for column in said_of_key.labels}))
        torn = f"{OPTION} {path}: its last line was cut off and is left out" if read.torn else ""
        return cls(str(path), read.lines, torn, table.metadata.get("kind") != "subset")


def with_images(needs: Needs, table: Table) -> Needs:
    """Return the columns to read, with those that match verdicts to images."""
    return replace(needs, texts=(*needs.texts, SHA256)) if SHA256 in table.schema.names else needs


def reviewed_rows(read: Verdicts, table_rows: Rows, *, refuses: bool = True) -> Reviewed:
    """Return the verdicts on N rows, by key and, if the table has it, by the digest of the image.

    Raises:
        InputError: if reviewers disagree, or with ``refuses``, if no verdict is on an image of the table.
    """
    decisions = read.decisions()
    keys = list(decisions)
    at = places(text_hashes(keys), table_rows.hashes)
    is_known = at >= 0
    same = is_known.copy()
    if SHA256 in table_rows.texts and is_known.any():
        digests = table_rows.texts[SHA256].take(pa.array(at[is_known])).to_pylist()
        for place, digest in zip(np.flatnonzero(is_known).tolist(), digests, strict=True):
            image = decisions[keys[place]].image
            same[place] = not image or not digest or digest[:SHORT] == image
    if keys and refuses and not same.any():
        raise InputError(
            f"{OPTION} {read.path} belongs to another table: none of its {counted(len(keys), 'image')} is in "
            f"this one, such as {keys[0][:80]!r}; pass the table that was reviewed"
        )
    n = len(table_rows)
    drop, keep = np.zeros(n, bool), np.zeros(n, bool)
    labels: dict[str, dict[int, str]] = {}
    answers: dict[str, dict[str, list[int]]] = {}
    by: dict[int, str] = {}
    for place in np.flatnonzero(same).tolist():
        decision, row = decisions[keys[place]], int(at[place])
        drop[row], keep[row] = decision.drop, decision.keep and not decision.drop
        by[row] = decision.by
        for question, verdict in decision.answers.items():
            answers.setdefault(question, {}).setdefault(verdict, []).append(row)
        for column, label in decision.labels.items():
            labels.setdefault(column, {})[row] = label
    gone = [keys[place] for place in np.flatnonzero(~is_known).tolist()]
    changed = [keys[place] for place in np.flatnonzero(is_known & ~same).tolist()]
    apart = np.zeros(n, bool)
    beside = [key for place in np.flatnonzero(same).tolist() for key in decisions[keys[place]].apart]
    apart[[place for place in places(text_hashes(beside), table_rows.hashes).tolist() if place >= 0]] = True
    return Reviewed(drop, keep, labels, by, answers, gone, changed, apart & ~drop)


def relabelled(reviewed: Reviewed, table: Table, rows: NDArray[np.int64]) -> dict[str, pa.Array]:
    """Return the label columns with changes for the given ascending rows (M,), with the new labels.

    Raises:
        InputError: if a new label does not have the type of its column.
    """
    columns: dict[str, pa.Array] = {}
    for name, new in reviewed.labels.items():
        values = table.take(rows, [name]).column(0)
        kind = value_type(values.type)
        labels, inside = values.cast(kind).combine_chunks(), np.isin(rows, list(new))
        try:
            verdict_labels = pa.array([new[row] for row in rows[inside].tolist()], pa.string()).cast(kind)
        except pa.ArrowException:
            raise InputError(
                f"expected labels of type {kind} for column {name!r} in {OPTION}, got others, such as "
                f"{next(iter(new.values()))[:40]!r}; undo them in curate review"
            ) from None
        if not labels.filter(pa.array(inside)).equals(verdict_labels):
            columns[name] = pc.replace_with_mask(labels, pa.array(inside), verdict_labels)
    return columns


def label_changes(
    reviewed: Reviewed | None, table: Table, outcome: NDArray[np.uint8], hashes: NDArray[np.uint64]
) -> dict[str, Any]:
    """Return the reviewers' new labels of kept rows, as fields of ``Decided``; empty if there are none.

    Args:
        reviewed: verdicts, or None.
        table: of the rows.
        outcome: of all rows, shape (N,).
        hashes: of the keys of all rows, shape (N,).
    """
    kept = np.flatnonzero(outcome == KEEP)
    columns = relabelled(reviewed, table, kept) if reviewed is not None else {}
    if not columns:
        return {}
    added = pa.table(columns)
    expected = Expected(added, hashes[kept], kept, ordered=False)
    return {
        "arranged": Ranked(table.stored.schema, kept, added, dict.fromkeys(columns, RELABELLED)),
        "compare": partial(compare_arranged, table, expected),
        "same_classes": {},
    }
