"""Comparison of a repeated policy decision with the files and numbers it wrote."""

import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.columns import ERROR, KEY, STATUS
from curate.policies import findings
from curate.policies.decided import KEEP, OUTCOMES, Decided, Result, counted_result, plain_words
from curate.policies.findings import Difference, Finding, VerificationResult
from curate.tables.arrays import unequal
from curate.tables.digests import plain, shown_keys
from curate.tables.keys import key_hashes, named, places
from curate.tables.table import Table
from scoring.errors import InputError

MISSING = "missing"
NOT_DERIVED = frozenset({"planted"})  # what takes the images to be edited again
FIXED = frozenset({"kind", "format", "curate", "input", "read", "hash", "outputs", "environment", "digest"})


def facts_of(decided: Decided[Result]) -> dict[str, Any]:
    """Return the facts of a decided policy for its receipt, as plain JSON: rules, counts, reasons and others."""
    model, facts = decided.table.metadata.get("model"), counted_result(decided).facts()
    return dict(plain_json({"model": model, "policy": decided.policy, "counts": decided.counts(), **facts}))


def plain_json(value: Any) -> Any:
    """Return a value as after writing and reading JSON."""
    return json.loads(json.dumps(value, ensure_ascii=False, default=str))


def without_files(rules: Any) -> Any:
    """Return rules without their files, which are compared by digest."""
    if not isinstance(rules, list) or not all(isinstance(rule, Mapping) for rule in rules):
        return rules
    return [{name: value for name, value in rule.items() if not is_file(value)} for rule in rules]


def is_file(value: object) -> bool:
    """Return whether a parameter of a rule is a file with a digest."""
    return isinstance(value, Mapping) and set(value) == {"path", "digest"}


def unequal_json(
    now: Any, then: Any, name: str = "", *, texts: bool = True, missing: object = MISSING
) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, new value and old value of all differences between two JSON values.

    Args:
        now: the new value.
        then: the recorded value.
        name: prefix of the names inside, such as ``counts`` in ``counts.kept``.
        texts: whether to compare texts.
        missing: value of a name that either lacks; None to treat it as null.
    """
    if isinstance(now, dict) and isinstance(then, dict):
        for key in {**now, **then}:
            new, other = now.get(key, missing), then.get(key, missing)
            yield from unequal_json(new, other, f"{name}.{key}" if name else key, texts=texts, missing=missing)
    elif isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        for number, (new, other) in enumerate(zip(now, then, strict=True), 1):
            yield from unequal_json(new, other, f"{name} {number}", texts=texts, missing=missing)
    elif isinstance(now, str) and isinstance(then, str):
        if texts and now != then:
            yield name, now, then
    elif not _same(now, then):
        yield name, now, then


def _same(now: Any, then: Any) -> bool:
    if isinstance(now, bool) or isinstance(then, bool) or not isinstance(then, int | float):
        return type(now) is type(then) and bool(now == then)
    if isinstance(now, float):
        return math.isclose(now, then, rel_tol=CLOSE, abs_tol=CLOSE) or (math.isnan(now) and math.isnan(then))
    return bool(now == then)


def unlike_tables(now: pa.Table, then: pa.Table, name: str, *, texts: bool) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, new value and old value of the differences between two tables with the same row order.

    Args:
        now: the new table.
        then: the written table.
        name: of the file.
        texts: whether to compare texts.
    """
    if now.schema.names != then.schema.names:
        yield f"{name}: columns", ", ".join(now.schema.names), ", ".join(then.schema.names)
    elif now.num_rows != then.num_rows:
        yield f"{name}: rows", now.num_rows, then.num_rows
    else:
        for column in now.schema.names:
            new_values, other = plain_json(now[column].to_pylist()), plain_json(then[column].to_pylist())
            for row, (new, was) in enumerate(zip(new_values, other, strict=True), 1):
                yield from unequal_json(new, was, f"{name}: {column} of row {row}", texts=texts)


Again = Decided[Result]
N_NAMED = 10
CLOSE = 1e-5  # numbers of another machine may differ by their last bits
TEXTS = ("reason", "rule")
UNREADABLE, ABSENT = -1, -2  # outcomes of a written decision
_NUMBER = r"[-+]?\d[\d.,]*(e[-+]?\d+)?"


@dataclass
class Verification(VerificationResult):
    """The result of repeating a decision.

    Attributes:
        n_rows: rows of the present table.
        n_different: rows whose decision, or content in the subset, differs.
        different: the first ten of them.
        notes: all other findings (digests, missing rows, changed files).
        problems: number of the notes that are differences.
        same_order: whether the input has the row order of the decisions.
        input: present path of the table.
        model: name and digest of the weights that scored it; empty if unknown.
    """

    n_rows: int = 0
    n_different: int = 0
    different: list[Difference] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    problems: int = 0
    same_order: bool = True
    input: str = ""
    model: str = ""

    @property
    def identical(self) -> bool:
        """Whether nothing differs."""
        return not self.n_different and not self.problems

    def differ(self, row: Difference) -> None:
        """Count a different row, and record it if it is among the first."""
        self.n_different += 1
        if len(self.different) < N_NAMED:
            self.different.append(row)

    def problem(self, finding: Finding) -> None:
        """Record a difference that does not concern a row."""
        self.problems += 1
        self.notes.append(finding)

    def check_digest(self, what: str, digest: str, expected: str) -> None:
        """Record an input whose digest differs from the recorded one."""
        if digest != expected:
            self.problem(Finding(findings.OTHER_DIGEST, what, digest, expected))


def compare_outputs(again: Again, decisions: Table, subset: Table, result: Verification, *, texts: bool = True) -> None:
    """Compare decisions and subset with the repeated decision, for any row order of the input.

    Args:
        again: the repeated decision.
        decisions: as written.
        subset: as written.
        result: records the differences.
        texts: whether to compare reasons and rules too; False if they contain paths of moved files.
    """
    result.same_order = _compare_decisions(again, decisions, result)
    if result.same_order:
        _compare_words(again, decisions, result, () if texts else TEXTS)
    _compare_subset_keys(again, subset, result)
    if again.compare is not None:
        again.compare(subset, result.differ, result.problem)
    elif not result.same_order:
        result.notes.append(Finding(findings.REORDERED))
    elif result.identical:
        compare_rows(again, subset, result)


def _compare_decisions(again: Again, decisions: Table, result: Verification) -> bool:
    """Compare decisions by key; return whether both have the same row order."""
    decisions.require(["decision"])
    codes = pa.array(OUTCOMES)
    was_hashes, noted = key_hashes(decisions), [np.empty(0, np.int16)]
    for batch in decisions.batches(["decision"]):
        places_of = pc.index_in(plain(batch.column(0)).cast(pa.string()), codes).fill_null(UNREADABLE)
        noted.append(places_of.to_numpy(zero_copy_only=False).astype(np.int16))
    was = np.concatenate(noted)
    at = places(again.hashes, was_hashes)
    then = np.append(was, np.int16(ABSENT))[at]
    _name_rows(np.flatnonzero(then != again.outcome), again, then, result)
    _name_extra(decisions, places(was_hashes, again.hashes) < 0, findings.GONE, result)
    return np.array_equal(again.hashes, was_hashes)


def _compare_words(again: Again, decisions: Table, result: Verification, leave_out: Collection[str]) -> None:
    """Record rows with the same decision but another number or text."""
    shared = set(decisions.schema.names) - set(leave_out)
    names = [field.name for field in again.schema if field.name in shared and field.name not in (KEY, "decision")]
    waiting = _Aligned(decisions, [KEY, "decision", *names])
    table = again.table
    columns = [name for name in (KEY, STATUS, ERROR) if name in table.schema.names]
    for start, batch in table.numbered(columns):
        now = again.words(start, *plain_words(batch)).cast(again.schema)
        for old in waiting.take(now.num_rows):
            part, now = now.slice(0, old.num_rows), now.slice(old.num_rows)
            for row, name in sorted(_unlike_words(names, part, old).items()):
                kind = findings.SCORE if pa.types.is_floating(part.schema.field(name).type) else findings.REASON
                new, was = (table.column(name)[row].as_py() for table in (part, old))
                difference_kind = kind if new is not None and was is not None else findings.REASON
                key = shown_keys(part.column(KEY).slice(row, 1))[0]
                result.differ(Difference(difference_kind, key, new, was, name, "decisions"))


def _unlike_words(names: list[str], now: pa.RecordBatch, old: pa.RecordBatch) -> dict[int, str]:
    """Return row -> the first different column, for rows with the same decision."""
    differing: dict[int, str] = {}
    alike = pc.equal(now.column("decision"), plain(old.column("decision")).cast(pa.string()))
    for name in names:
        left, right = now.column(name), old.column(name)
        if left.type != right.type or left.equals(right):
            continue
        if name in TEXTS:  # texts without their numbers, which are compared separately
            left, right = (pc.replace_substring_regex(column, _NUMBER, "#") for column in (left, right))
        for row in unequal(left, right, close=CLOSE):
            if alike[row].as_py():
                differing.setdefault(row, name)
    return differing


def _name_rows(changed: np.ndarray, again: Again, then: np.ndarray, result: Verification) -> None:
    names = _first_named(again.table, changed)
    for row, name in zip(changed.tolist(), names, strict=True):
        was = {ABSENT: "not there", UNREADABLE: "unreadable"}.get(int(then[row])) or OUTCOMES[then[row]]
        result.differ(Difference(findings.DECISION, name, OUTCOMES[again.outcome[row]], was))


def _name_extra(table: Table, extra: np.ndarray, kind: str, result: Verification) -> None:
    rows = np.flatnonzero(extra)
    for name in _first_named(table, rows):
        result.differ(Difference(kind, name))


def _first_named(table: Table, rows: np.ndarray) -> list[str]:
    """Return the keys of the first rows."""
    return [*named(table, rows[:N_NAMED]), *[""] * max(0, len(rows) - N_NAMED)]


def _compare_subset_keys(again: Again, subset: Table, result: Verification) -> None:
    """Check that the subset contains exactly the kept rows."""
    present = key_hashes(subset)
    kept = np.flatnonzero(again.outcome == KEEP)
    missing = kept[places(again.hashes[kept], present) < 0]
    for name in _first_named(again.table, missing):
        result.differ(Difference(findings.LACKING, name))
    _name_extra(subset, places(present, again.hashes[kept]) < 0, findings.EXTRA, result)
    if len(present) != len(np.unique(present)):
        result.problem(Finding(findings.TWICE))


def compare_rows(again: Again, subset: Table, result: Verification) -> None:
    """Compare every column of every kept row, with both tables in the same order."""
    source = again.table.stored
    if source.schema != subset.schema:
        result.problem(Finding(findings.OTHER_COLUMNS, "subset"))
        return
    waiting = _Aligned(subset)
    for start, batch in source.numbered():
        kept = batch.filter(pa.array(again.outcome[start : start + batch.num_rows] == KEEP))
        for old in waiting.take(kept.num_rows):
            now, kept = kept.slice(0, old.num_rows), kept.slice(old.num_rows)
            for name in (name for name in source.schema.names if not now.column(name).equals(old.column(name))):
                for row in unequal(now.column(name), old.column(name)):
                    key = shown_keys(now.column(KEY).slice(row, 1))[0]
                    result.differ(Difference(findings.VALUE, key, column=name, file="subset"))


class _Aligned:
    """Returns the rows of a table in slices of requested length."""

    def __init__(self, table: Table, columns: list[str] | None = None) -> None:
        self.table, self.batches = table, table.batches(columns)
        self.rest: pa.RecordBatch | None = None

    def take(self, n: int) -> Iterator[pa.RecordBatch]:
        while n > 0:
            batch = self.rest if self.rest is not None and self.rest.num_rows else next(self.batches, None)
            if batch is None:
                raise InputError(
                    f"{self.table.path} holds fewer rows than its footer states: it is damaged; restore it "
                    "from a backup"
                )
            piece = batch.slice(0, n)
            self.rest = batch.slice(piece.num_rows)
            n -= piece.num_rows
            yield piece
