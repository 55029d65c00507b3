"""The decisions of a filter with reasons, one row for every input row."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.policies.decided import N_EXAMPLES
from curate.policies.filter.rule import Reasons, Rule, RuleResult, Verdict
from curate.policies.outcomes import DECISION_SCHEMA, DROP, FAILED, KEEP, OUTCOMES, UNDECIDED, failures
from curate.tables.rows import Rows
from scoring.errors import InputError

N_NEAREST = 3  # example rows on either side of a threshold
BLOCK = 1 << 16  # rows per block when searching examples
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
        numbers = [np.full(len(keys), np.nan) for _ in DECISION_SCHEMA if pa.types.is_floating(_.type)]
        reason = _Reasons(len(keys))
        for index in range(len(self.rules)):
            places = np.flatnonzero(rule == index)
            if not len(places):
                continue
            unjudged = outcome[places] == UNDECIDED
            judged, dropped = places[~unjudged], outcome[places[~unjudged]] == DROP
            reason.put(places[unjudged], self.rules[index].missing())
            why = self.rules[index].reasons(self.results[index], start + judged, dropped)
            _check_reasons(self.rules[index], why, len(judged))
            reason.put(judged, why.texts)
            for column, values in zip(numbers, why.numbers or (), strict=False):
                column[judged] = values
        failed = np.flatnonzero(outcome == FAILED)
        if len(failed) and status is not None:
            reason.put(failed, failures(status, error, failed))
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
        for start in range(0, len(self.verdict.outcome), BLOCK):
            outcome = self.verdict.outcome[start : start + BLOCK]
            goes = (outcome == DROP) & (self.verdict.rule[start : start + BLOCK] == self.last)
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


def _check_reasons(rule: Rule, why: object, n: int) -> None:
    """Raise InputError for reasons of another package's rule unless there is one for each of N rows."""
    if not isinstance(why, Reasons):
        raise InputError(f"--{rule.name} has to return Reasons, got {type(why).__name__}; repair its package")
    texts = why.texts if isinstance(why.texts, pa.Array) else list(why.texts)
    nulls = texts.null_count if isinstance(texts, pa.Array) else texts.count(None)
    if len(texts) != n or nulls:
        raise InputError(
            f"--{rule.name} has to return a reason for each of {n} rows, got {len(texts)}"
            f"{f' with {nulls} nulls' if nulls else ''}; repair its package"
        )


def _ends(
    rows: NDArray[np.int64],
    margins: NDArray[np.float64],
    more: NDArray[np.int64],
    more_margins: NDArray[np.float64],
    inside: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
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

    def put(self, rows: np.ndarray, texts: str | Sequence[str] | pa.Array) -> None:
        """Set the texts of M ascending rows to one text, or M texts."""
        if not len(rows):
            return
        piece = pa.array([texts] if isinstance(texts, str) else texts, pa.string())
        self._places[rows] = self._n + (0 if isinstance(texts, str) else np.arange(len(rows)))
        self._pieces.append(piece)
        self._n += len(piece)

    def texts(self) -> pa.StringArray:
        """Return the texts in the order of the rows."""
        if len(self._pieces) == 2 and len(self._pieces[1]) == len(self._places):
            return self._pieces[1]
        return pa.concat_arrays(self._pieces).take(pa.array(self._places))
