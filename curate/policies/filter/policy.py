"""A filter applied to a table: two passes over the file, then subset, decisions and receipt appear together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from curate.columns import KEY, describe
from curate.policies.decided import Decided, second_look
from curate.policies.filter.request import rules_in_order
from curate.policies.filter.rules import (
    RULES,
    DropBottom,
    KeepTop,
    Rule,
    Verdict,
    decide,
    needs_of,
    rule_to_json,
    typed,
)
from curate.policies.filter.words import MEANINGS, DecisionWords
from curate.policies.outcomes import DECISION_SCHEMA, DROP, KEEP, UNDECIDED
from curate.policies.outputs import outputs_for, write_outputs
from curate.policies.receipts import state_of
from curate.tables.rows import read_rows
from curate.tables.table import open_table
from scoring.errors import InputError


@dataclass(frozen=True)
class FilterResult:
    """What a policy did; what ``curate filter`` prints.

    Attributes:
        n_rows: rows that came in; kept + dropped + undecided + failed.
        dropped_by: rule as typed -> rows that it dropped, in the order applied.
        undecided_by: rule as typed -> rows that it could not judge.
        failed_by: status -> rows.
        notes: what a person should know: direction of every score, amounts larger than the table.
        examples: a few decisions of rows that go (``key`` and ``reason``).
        subset: path written; None in a dry run, as are ``decisions`` and ``receipt``.
    """

    n_rows: int
    kept: int
    dropped: int
    undecided: int
    failed: int
    dropped_by: dict[str, int]
    undecided_by: dict[str, int]
    failed_by: dict[str, int]
    notes: list[str]
    examples: list[dict[str, str]]
    subset: Path | None = None
    decisions: Path | None = None
    receipt: Path | None = None
    input_digest: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        paths = {name: str(value) if value else None for name, value in self.paths().items()}
        plain_values = {name: value for name, value in self.__dict__.items() if name not in paths}
        return {**plain_values, **paths}

    def paths(self) -> dict[str, Path | None]:
        """Return the files written, by name."""
        return {"subset": self.subset, "decisions": self.decisions, "receipt": self.receipt}


def filter(
    table: str | Path,
    out: str | Path | None = None,
    rules: Sequence[Rule] | None = None,
    *,
    keep_top: str | float | None = None,
    drop_bottom: str | float | None = None,
    min: float | None = None,
    max: float | None = None,
    where: str | None = None,
    column: str | None = None,
    per: str | None = None,
    dry_run: bool = False,
    overwrite: bool = False,
) -> FilterResult:
    """Keep the rows that satisfy every rule; write subset, decisions and receipt.

    Memory stays bounded: some 60 bytes a row at the peak and 64 MB a batch, whatever the table holds.

    Args:
        table: Parquet file or folder of ``part-*.parquet`` with a unique ``key``; it is never changed.
        out: subset to write, a name ending in ``.parquet``; may be None in a dry run.
        rules: applied in this order, each to the rows that the earlier ones left. Instead of rules, name
            single ones by the keywords below, as the options of ``curate filter``; they apply in the order where,
            min, max, drop_bottom, keep_top.
        keep_top: 0.8, "80%" or 5000 (rows).
        drop_bottom: as ``keep_top``.
        min: lowest value that stays, in the column's unit.
        max: highest value that stays.
        where: condition such as ``'label == "cat" and width >= 200'``.
        column: score column for the keywords; default the score of the model's own method.
        per: judge ``keep_top`` and ``drop_bottom`` within each value of this column.
        dry_run: count only; write nothing.
        overwrite: replace outputs that exist.

    Returns:
        counts, notes and paths.

    Raises:
        InputError: for a table, column, rule or output that cannot be used; nothing is written then.
    """
    opened = open_table(table, require=[KEY])
    if rules is None:
        named = {"column": column, "per": per, "where": where, "min": min, "max": max}
        named |= {"drop_bottom": drop_bottom, "keep_top": keep_top}
        rules = rules_in_order([(name, value) for name, value in named.items() if value is not None], opened)
    if not rules:
        raise InputError(f"expected at least one rule, got none; add one of {', '.join(f'--{name}' for name in RULES)}")
    outputs = None if dry_run else outputs_for([opened], out, overwrite=overwrite)
    before = state_of(opened)
    table_rows = read_rows(opened, needs_of(rules))
    verdict = decide(rules, table_rows)
    decided = Decided(
        table=opened,
        policy=[rule_to_json(rule) for rule in rules],
        outcome=verdict.outcome,
        words=DecisionWords(rules, table_rows, verdict).rows,
        schema=DECISION_SCHEMA,
        meanings=MEANINGS,
        digest=table_rows.digest,
        state=before,
    )
    result = _summary(rules, verdict, decided)
    if outputs is None:
        return result
    decided.facts.update({name: getattr(result, name) for name in ("dropped_by", "undecided_by", "failed_by")})
    write_outputs(decided, outputs, overwrite=overwrite)
    return replace(result, subset=outputs.subset, decisions=outputs.tables["decisions"], receipt=outputs.receipt)


def _summary(rules: Sequence[Rule], verdict: Verdict, decided: Decided) -> FilterResult:
    dropped, undecided = (
        np.bincount(verdict.rule[verdict.outcome == code].astype(np.int64), minlength=len(rules)).tolist()
        for code in (DROP, UNDECIDED)
    )
    examples, failed_by = second_look(decided)
    counts = decided.counts()
    return FilterResult(
        n_rows=counts["n_rows"],
        kept=counts["kept"],
        dropped=counts["dropped"],
        undecided=counts["undecided"],
        failed=counts["failed"],
        dropped_by=_by_rule(rules, dropped),
        undecided_by={name: n for name, n in _by_rule(rules, undecided).items() if n},
        failed_by=failed_by,
        notes=_notes(rules, verdict),
        examples=examples,
        input_digest=decided.digest,
    )


def _by_rule(rules: Sequence[Rule], counts: list[int]) -> dict[str, int]:
    """Rows by rule as typed; a rule typed twice is counted once."""
    total: dict[str, int] = {}
    for rule, n in zip(rules, counts, strict=True):
        total[typed(rule)] = total.get(typed(rule), 0) + n
    return total


def _notes(rules: Sequence[Rule], verdict: Verdict) -> list[str]:
    notes = []
    for rule, n in zip(rules, verdict.left, strict=True):
        if rule.column is not None:
            column = describe(rule.column)
            higher = column.higher or "taken as better"
            notes.append(f"{typed(rule)} works on {rule.column} ({column.meaning}; higher: {higher})")
        count = rule.amount if isinstance(rule, KeepTop | DropBottom) and rule.per is None else ""
        if str(count).isdigit() and int(count) > n:
            notes.append(f"{typed(rule)} asks for {int(count):,} rows, {n:,} were left")
    if not np.any(verdict.outcome == KEEP):
        notes.append("no row is left: the subset is empty")
    return list(dict.fromkeys(notes))
