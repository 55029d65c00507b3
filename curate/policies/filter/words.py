"""The decisions of a policy: one row for every input row, and why, in words."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from curate.policies.decided import N_EXAMPLES
from curate.policies.filter.rule import Rule
from curate.policies.filter.ruling import RuleResult, Verdict
from curate.policies.outcomes import DECISION_SCHEMA, DROP, FAILED, KEEP, OUTCOMES, UNDECIDED, failures
from curate.tables.rows import Rows

N_NEAREST = 3  # rows shown on either side of a cut
BLOCK = 1 << 20  # rows among which examples are looked for at once
MEANINGS: dict[str, str] = {
    "decision": "keep, drop, undecided (a value that a rule needs is missing) or failed (not scored)",
    "reason": "the decision in words",
    "rule": "the rule that decided, as typed; for a kept row the last one with a score",
    "score": "the row's value in that rule's column",
    "threshold": "the value that had to be reached: the bound, or the last value that stayed",
    "margin": "score against threshold, in the direction of keeping: negative was dropped",
}
FEW = {"decision": pa.dictionary(pa.int8(), pa.string()), "rule": pa.dictionary(pa.int32(), pa.string())}
ENCODED_SCHEMA = pa.schema([each.with_type(FEW.get(each.name, each.type)) for each in DECISION_SCHEMA])


class DecisionWords:
    """Turns verdicts into rows of the decisions table, a slice at a time.

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
        """Return the decisions of the rows from ``start`` on.

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
        rule = self.verdict.rule[start:stop].copy()
        rule[outcome == KEEP] = self.last
        numbers = [np.full(len(keys), np.nan) for _ in DECISION_SCHEMA if pa.types.is_floating(_.type)]
        reason = _Reasons(len(keys))
        for index in range(len(self.rules)):
            places = np.flatnonzero(rule == index)
            if len(places):
                self._explain(index, start, places, outcome, numbers, reason)
        failed = np.flatnonzero(outcome == FAILED)
        if len(failed) and status is not None:
            reason.put(failed, failures(status, error, failed))
        columns = [
            keys,
            pa.DictionaryArray.from_arrays(pa.array(outcome.view(np.int8)), pa.array(OUTCOMES)),
            reason.texts(),
            pa.DictionaryArray.from_arrays(pa.array(self.typed[rule], mask=rule < 0), self.names),
            *(pa.array(values, from_pandas=True) for values in numbers),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ENCODED_SCHEMA)

    def _explain(
        self,
        index: int,
        start: int,
        places: np.ndarray,
        outcome: np.ndarray,
        numbers: list[np.ndarray],
        reason: "_Reasons",
    ) -> None:
        """Fill in the rows ``places`` that one rule decided."""
        unjudged = outcome[places] == UNDECIDED
        judged, dropped = places[~unjudged], outcome[places[~unjudged]] == DROP
        reason.put(places[unjudged], self.rules[index].missing())
        why = self.rules[index].reasons(self.results[index], start + judged, dropped)
        reason.put(judged, why.texts, why.codes)
        for column, values in zip(numbers, why.numbers or (), strict=False):
            column[judged] = values

    def examples(self) -> dict[str, np.ndarray]:
        """Return rows to show: the worst, and those nearest to the cut on either side, by the last rule with a score.

        Empty where that rule drops nothing; ties go to the earlier row.
        """
        rule, result = self.rules[self.last], self.results[self.last]
        if rule.column is None:
            return {}
        dropped, kept = _Ends(N_EXAMPLES + N_NEAREST), _Ends(N_NEAREST)
        for start in range(0, len(self.verdict.outcome), BLOCK):
            outcome = self.verdict.outcome[start : start + BLOCK]
            goes = (outcome == DROP) & (self.verdict.rule[start : start + BLOCK] == self.last)
            for ends, is_on_side in ((dropped, goes), (kept, outcome == KEEP)):
                rows = start + np.flatnonzero(is_on_side)
                ends.add(rows, rule.margins(result, rows))
        if not len(dropped.rows):
            return {}
        return {
            "worst": dropped.rows[:N_EXAMPLES],
            "just dropped": dropped.rows[N_EXAMPLES:][::-1][:N_NEAREST],
            "just kept": kept.rows[:N_NEAREST],
        }


class _Reasons:
    """Texts of N rows that are put in by pieces; empty where none was."""

    def __init__(self, n: int) -> None:
        self._places = np.zeros(n, np.int64)
        self._pieces: list[pa.Array] = [pa.array([""])]
        self._n = 1

    def put(self, rows: np.ndarray, texts: str | Sequence[str] | pa.Array, codes: np.ndarray | None = None) -> None:
        """Give some rows (M indices, ascending) one text, M texts, or some of K by places ``codes``, shape (M,)."""
        if not len(rows):
            return
        if isinstance(texts, str):
            texts, codes = [texts], np.zeros(len(rows), np.int64)
        piece = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
        if codes is not None and len(piece) == len(rows):
            piece, codes = piece.take(pa.array(codes)), None
        self._places[rows] = self._n + (np.arange(len(rows)) if codes is None else codes)
        self._pieces.append(piece)
        self._n += len(piece)

    def texts(self) -> pa.StringArray:
        """Return the texts in the order of the rows."""
        if len(self._pieces) == 2 and len(self._pieces[1]) == len(self._places):
            return self._pieces[1]
        return pa.concat_arrays(self._pieces).take(pa.array(self._places))


class _Ends:
    """Of rows that come in blocks, those at both ends by a value, at least n of each; equal ones in their order.

    Attributes:
        rows: the lowest first.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.rows, self._values = np.zeros(0, np.int64), np.zeros(0)

    def add(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Take the next rows, which stand below those that came before."""
        if len(self.rows) == 2 * self.n:  # most lie between those that are there already
            near = ~((values >= self._values[self.n - 1]) & (values < self._values[-self.n]))
            rows, values = rows[near], values[near]
        rows, values = np.concatenate([self.rows, rows]), np.concatenate([self._values, values])
        if len(values) > 2 * self.n:  # most lie between, and need not be sorted
            low, high = np.partition(values, (self.n - 1, len(values) - self.n))[[self.n - 1, len(values) - self.n]]
            near = ~((values > low) & (values < high))
            rows, values = rows[near], values[near]
        order = np.argsort(values, kind="stable")
        if len(order) > 2 * self.n:
            order = np.concatenate([order[: self.n], order[-self.n :]])
        self.rows, self._values = rows[order], values[order]
