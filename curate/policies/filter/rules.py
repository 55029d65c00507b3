"""Filter policies: rules that keep and drop rows by their scores, from columns alone.

Rules apply in order, each to the rows kept by the earlier ones. A row without a value (null or NaN) in a rule's column
becomes undecided and is not in the subset.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from curate.policies.filter.rule import Rule, RuleResult, Ruling, Verdict
from curate.policies.filter.table import RULES
from curate.policies.outcomes import DROP, FAILED, KEEP, UNDECIDED
from curate.tables.needs import Needs
from curate.tables.rows import Rows
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.lookup import closest

BLOCK = 1 << 22  # rows per block of rules that decide rows independently


def rule_from_json(value: Mapping[str, Any]) -> Rule:
    """Return the rule in a receipt; InputError if invalid."""
    if not isinstance(value, Mapping):
        raise InputError(
            f"expected a rule of a filter as a JSON object, got {str(value)[:40]}; restore it from a backup"
        )
    name = str(value.get("rule"))
    if name not in RULES:
        near = closest(name, RULES)
        raise InputError(f"unknown rule {name!r} in the receipt{near}; or install the package that adds it")
    return RULES[name].from_json(value)


def needs_of(rules: Sequence[Rule], table: Table) -> Needs:
    """Return the columns and facts of a table that the rules need."""
    needs = [_checked_needs(rule, rule.needs(table)) for rule in rules]
    return Needs(
        exact=tuple(name for each in needs for name in each.exact),
        groups=tuple(dict.fromkeys(name for each in needs for name in each.groups)),
        texts=tuple(dict.fromkeys(name for each in needs for name in each.texts)),
        representations=frozenset(name for each in needs for name in each.representations),
        conditions=tuple(pair for each in needs for pair in each.conditions),
        advice="use --where for other columns, --column for another score",
    )


def decide(rules: Sequence[Rule], table_rows: Rows) -> Verdict:
    """Apply rules in order to N rows, each to the rows kept by the earlier ones.

    Args:
        rules: at least one.
        table_rows: with the columns that the rules need; rows that are not ok are failed.

    Raises:
        InputError: for malformed results of a rule of another package.
    """
    n = len(table_rows)
    outcome = np.where(table_rows.ok, np.uint8(KEEP), np.uint8(FAILED))
    decided_by = np.full(n, -1, np.int8 if len(rules) <= np.iinfo(np.int8).max else np.int16)
    cuts: list[np.ndarray | None] = []
    outcomes: list[Any] = []
    left: list[int] = []
    for index, rule in enumerate(rules):
        n_inside = 0
        step = max(n, 1) if rule.ranks else BLOCK
        by_name = [number for number, earlier in enumerate(rules[:index]) if earlier.by_name]
        for start in range(0, max(n, 1), step):
            rows = slice(start, min(start + step, n))
            inside = outcome[rows] == KEEP
            counted = rule.counted(table_rows, inside, np.isin(decided_by[rows], by_name)) if by_name else inside
            ruling = rule.judge(table_rows, rows, counted)
            _check_ruling(rule, ruling, len(inside))
            n_inside += int(inside.sum())
            for first in range(0, len(inside), BLOCK):
                some = slice(first, first + BLOCK)
                lost = inside[some] & ~ruling.keep[some]
                outcome[rows][some][lost] = DROP
                decided_by[rows][some][lost] = index
                outcome[rows][some][inside[some] & ~ruling.judged[some]] = UNDECIDED
        cuts.append(ruling.cuts)
        outcomes.append(ruling.outcome)
        left.append(n_inside)
    return Verdict(outcome, decided_by, cuts, outcomes, left)


def _check_ruling(rule: Rule, ruling: Any, n: int) -> None:
    """Raise InputError for a ruling that is not two bool arrays, since other types or shapes would drop other rows."""
    if not isinstance(ruling, Ruling):
        raise InputError(f"--{rule.name} has to return a Ruling for {n} rows, got {ruling!r}; repair its package")
    for name in ("keep", "judged"):
        value = getattr(ruling, name)
        if getattr(value, "dtype", None) != np.bool_ or value.shape != (n,):
            got = f"shape {value.shape} of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
            raise InputError(
                f"--{rule.name} has to return {name} as an array of shape ({n},) of bool, got {got}; repair its package"
            )


def _checked_needs(rule: Rule, needs: object) -> Needs:
    """Return the needs of a rule; InputError for another type, possible with rules of other packages."""
    if not isinstance(needs, Needs):
        raise InputError(f"--{rule.name} has to return Needs, got {type(needs).__name__}; repair its package")
    return needs


def notes_of(rule: Rule, result: RuleResult) -> list[str]:
    """Return the notes of a rule; InputError if they are not a list of texts."""
    notes = rule.notes(result)
    if not isinstance(notes, list | tuple) or not all(isinstance(note, str) for note in notes):
        raise InputError(f"--{rule.name} has to return notes as a list of texts, got {notes!r:.80}; repair its package")
    return list(notes)
