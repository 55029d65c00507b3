"""Thresholds that policies applied to columns, from their receipts and decisions."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from curate.policies.contract import FILTER
from curate.policies.filter.rules import rule_from_json
from curate.policies.issues.kinds import KINDS
from curate.reporting.decided import Decisions
from curate.reporting.results import Applied
from scoring.errors import InputError

ISSUES = "issues"


def cuts_of(results: Sequence[Applied], decided: Sequence[Decisions]) -> dict[str, list[dict[str, Any]]]:
    """Return, by column of the table, the thresholds and which policy applied them.

    A rule that judges every group apart has a cut in each, and none is shown.

    Args:
        results: in the order applied.
        decided: the decisions of those that have any.
    """
    thresholds = {id(policy.applied): policy.thresholds for policy in decided}
    cuts: dict[str, list[dict[str, Any]]] = {}
    for applied in results:
        of_policy = thresholds.get(id(applied), {})
        each = _of_filter(applied, of_policy) if applied.name == FILTER else _of_issues(applied)
        for column, value, words in each:
            if isfinite(value):
                cuts.setdefault(column, []).append({"value": value, "words": words})
    return cuts


def _of_filter(applied: Applied, thresholds: Mapping[str, tuple[float, float]]) -> list[tuple[str, float, str]]:
    cuts = []
    for value in applied.rules:
        try:
            rule = rule_from_json(value)
        except InputError:
            continue  # of another version: its rows are in the funnel all the same
        low, high = thresholds.get(rule.typed(), (1.0, 0.0))
        if rule.column is not None and rule.per is None and low == high:
            cuts.append((rule.column, low, f"{rule.typed()} of {applied.name}"))
    return cuts


def _of_issues(applied: Applied) -> list[tuple[str, float, str]]:
    if applied.name != ISSUES or not isinstance(applied.receipt.get("kinds"), dict):
        return []
    cuts = []
    for name, facts in applied.receipt["kinds"].items():
        kind = KINDS.get(name)
        begins = facts.get("begins") if isinstance(facts, dict) else None
        if kind is not None and len(kind.columns) == 1 and isinstance(begins, int | float):
            cuts.append((kind.columns[0], float(begins), f"{name} of {applied.name}"))
    return cuts
