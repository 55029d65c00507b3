"""Filter policies: rules that keep and drop rows by their scores, from columns alone.

Rules apply in order, each to the rows kept by the earlier ones. A row without a value (null or NaN) in a rule's column
becomes undecided and is not in the subset.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from curate.policies.decided import DECISION_SCHEMA, DROP, FAILED, KEEP, N_EXAMPLES, OUTCOMES, UNDECIDED, failures
from curate.policies.filter.rule import Reasons, Rule, RuleResult, Ruling, Verdict, require_type
from curate.policies.filter.table import RULES
from curate.tables.needs import Needs
from curate.tables.rows import Rows
from curate.tables.table import Table
from scoring.arrays import Floats, Ints, Mask
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
    needs = [require_type(rule.name, rule.needs(table), Needs) for rule in rules]
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
            ruling = require_type(rule.name, rule.judge(table_rows, rows, counted), Ruling)
            _check_masks(rule, ruling, len(inside))
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


def _check_masks(rule: Rule, ruling: Ruling, n: int) -> None:
    """Raise InputError for a ruling that is not two bool arrays, since other types or shapes would drop other rows."""
    for name in ("keep", "judged"):
        value = getattr(ruling, name)
        if getattr(value, "dtype", None) != np.bool_ or value.shape != (n,):
            got = f"shape {value.shape} of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
            raise InputError(
                f"--{rule.name} has to return {name} as an array of shape ({n},) of bool, got {got}; repair its package"
            )


def notes_of(rule: Rule, result: RuleResult) -> list[str]:
    """Return the notes of a rule; InputError if they are not a list of texts."""
    notes = rule.notes(result)
    if not isinstance(notes, list | tuple) or not all(isinstance(note, str) for note in notes):
        raise InputError(f"--{rule.name} has to return notes as a list of texts, got {notes!r:.80}; repair its package")
    return list(notes)


N_NEAREST = 3  # example rows on either side of a threshold
EXAMPLE_BLOCK = 1 << 16  # rows per block when searching examples
MEANINGS: dict[str, str] = {
    "decision": "keep, drop, undecided (a value that a rule needs is missing) or failed (not scored)",
    "reason": "the decision in words",
    "rule": "the rule that decided, as typed; for a kept row the last one with a score",
    "score": "the row's value in that rule's column",
    "threshold": "the value to reach: the bound, or the last value kept",
    "margin": "score against threshold, in the direction of keeping: negative was dropped",
}
FEW = {"decision": pa.dictionary(pa.int8(), pa.string()), "rule": pa.dictionary(pa.int32(), pa.string())}
ENCODED_SCHEMA = pa.schema([each.with_type(FEW.get(each.name, each.type)) for each in DECISION_SCHEMA])


class DecisionWords:
    """Writes the reasons of the decisions, a slice of rows at a time.

    Args:
        rules: in the order applied.
        table_rows: all N of them.
        verdict: of all N rows.
    """

    def __init__(self, rules: Sequence[Rule], table_rows: Rows, verdict: Verdict) -> None:
        self.rules = rules
        self.results = [RuleResult(verdict, index, table_rows) for index in range(len(rules))]
        self.verdict = verdict
        texts = [each.typed() for each in rules]
        self.names = pa.array(list(dict.fromkeys(texts)), pa.string())
        self.typed = np.array([list(dict.fromkeys(texts)).index(text) for text in texts], np.int32)
        with_score = [index for index, rule in enumerate(rules) if rule.column]
        self.last = with_score[-1] if with_score else len(rules) - 1

    def rows(self, start: int, keys: pa.Array, status: pa.Array | None, error: pa.Array | None) -> pa.RecordBatch:
        """Return the decisions of rows from ``start``.

        Args:
            start: index of the first row among all N.
            keys: shape (M,), text without nulls.
            status: shape (M,) text, or None for a table without statuses.
            error: shape (M,) text or nulls, or None.

        Returns:
            M rows of ``ENCODED_SCHEMA``.
        """
        stop = start + len(keys)
        outcome = self.verdict.outcome[start:stop]
        rule = np.where(outcome == KEEP, self.last, self.verdict.rule[start:stop])
        numbers = [np.full(len(keys), np.nan) for column in DECISION_SCHEMA if pa.types.is_floating(column.type)]
        reason = _Reasons(len(keys))
        for index in range(len(self.rules)):
            places = np.flatnonzero(rule == index)
            if not len(places):
                continue
            unjudged = outcome[places] == UNDECIDED
            judged, dropped = places[~unjudged], outcome[places[~unjudged]] == DROP
            reason.put(places[unjudged], self.rules[index].missing())
            returns = self.rules[index].reasons(self.results[index], start + judged, dropped)
            why = require_type(self.rules[index].name, returns, Reasons)
            texts = why.texts if isinstance(why.texts, pa.Array) else pa.array(why.texts, pa.string())
            if len(texts) != len(judged) or texts.null_count:
                raise InputError(
                    f"--{self.rules[index].name} has to return a reason for each of {len(judged)} rows, got "
                    f"{len(texts)} with {texts.null_count} nulls; repair its package"
                )
            reason.put(judged, texts)
            for column, values in zip(numbers, why.numbers or (), strict=False):
                column[judged] = values
        failed = np.flatnonzero(outcome == FAILED)
        if len(failed) and status is not None:
            reason.put(failed, pa.array(failures(status, error, failed), pa.string()))
        columns = [
            keys,
            pa.DictionaryArray.from_arrays(pa.array(outcome.view(np.int8)), pa.array(OUTCOMES)),
            reason.texts(),
            pa.DictionaryArray.from_arrays(pa.array(self.typed[rule], mask=rule < 0), self.names),
            *(pa.array(values, from_pandas=bool(np.isnan(values).any())) for values in numbers),  # NaN becomes null
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ENCODED_SCHEMA)

    def examples(self) -> dict[str, np.ndarray]:
        """Return rows as examples: the worst, and those nearest to the threshold of the last rule with a score.

        Empty if that rule drops nothing; ties go to the earlier row.
        """
        rule, result = self.rules[self.last], self.results[self.last]
        if rule.column is None:
            return {}
        dropped = kept = np.zeros(0, np.int64), np.zeros(0)
        for start in range(0, len(self.verdict.outcome), EXAMPLE_BLOCK):
            outcome = self.verdict.outcome[start : start + EXAMPLE_BLOCK]
            goes = (outcome == DROP) & (self.verdict.rule[start : start + EXAMPLE_BLOCK] == self.last)
            places = np.flatnonzero(goes | (outcome == KEEP))
            rows, goes = start + places, goes[places]
            margins = rule.margins(result, rows)
            dropped, kept = _ends(*dropped, rows, margins, goes), _ends(*kept, rows, margins, ~goes)
        lost, stays = dropped[0], kept[0]
        if not len(lost):
            return {}
        return {
            "worst": lost[:N_EXAMPLES],
            "just dropped": lost[N_EXAMPLES:][::-1][:N_NEAREST],
            "just kept": stays[:N_NEAREST],
        }


def _ends(rows: Ints, margins: Floats, more: Ints, more_margins: Floats, inside: Mask) -> tuple[Ints, Floats]:
    """Return the rows at both ends by margin, lowest first; ties go to the earlier row.

    Args:
        rows: ends of the earlier rows, in this order.
        margins: of these rows.
        more: later rows, M ascending indices.
        more_margins: of the later rows, shape (M,).
        inside: mask of the later rows to use, shape (M,).
    """
    n = N_EXAMPLES + N_NEAREST
    if len(rows) == 2 * n:  # NaN counts as highest, and is never between
        inside = inside & ~((more_margins > margins[n - 1]) & (more_margins < margins[n]))
    rows, margins = np.concatenate([rows, more[inside]]), np.concatenate([margins, more_margins[inside]])
    if len(rows) > 2 * n:
        ordered = np.partition(margins, (n - 1, len(rows) - n))
        few = ~((margins > ordered[n - 1]) & (margins < ordered[-n]))
        rows, margins = rows[few], margins[few]
    order = np.lexsort((rows, margins))
    order = order if len(rows) <= 2 * n else np.concatenate([order[:n], order[-n:]])
    return rows[order], margins[order]


class _Reasons:
    """Texts of N rows, set in parts; empty if not set."""

    def __init__(self, n: int) -> None:
        self._places = np.zeros(n, np.int64)
        self._pieces: list[pa.Array] = [pa.array([""])]
        self._n = 1

    def put(self, rows: np.ndarray, texts: str | pa.Array) -> None:
        """Set the texts of M ascending rows to one text, or M texts."""
        if not len(rows):
            return
        piece = pa.array([texts]) if isinstance(texts, str) else texts.cast(pa.string())
        self._places[rows] = self._n + (0 if isinstance(texts, str) else np.arange(len(rows)))
        self._pieces.append(piece)
        self._n += len(piece)

    def texts(self) -> pa.StringArray:
        """Return the texts in the order of the rows."""
        if len(self._pieces) == 2 and len(self._pieces[1]) == len(self._places):
            return self._pieces[1]
        return pa.concat_arrays(self._pieces).take(pa.array(self._places))
