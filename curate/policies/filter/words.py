"""The decisions of a policy: one row for every input row, and why, in words."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.columns import is_less_certain
from curate.policies.decided import N_EXAMPLES
from curate.policies.filter.alike import Like, Unlike, reasons
from curate.policies.filter.by_verdicts import ByVerdicts
from curate.policies.filter.guaranteed import MaxBadRate
from curate.policies.filter.named import Keys, WithoutKeys
from curate.policies.filter.rules import DropBottom, KeepTop, Minimum, Rule, Verdict, amount_of, typed
from curate.policies.outcomes import DECISION_SCHEMA, DROP, FAILED, KEEP, OUTCOMES, UNDECIDED, failures
from curate.tables.number_texts import six_digits
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


class DecisionWords:
    """Turns verdicts into rows of the decisions table, a slice at a time.

    Args:
        rules: in the order applied.
        table_rows: all N of them.
        verdict: of all N rows.
    """

    def __init__(self, rules: Sequence[Rule], table_rows: Rows, verdict: Verdict) -> None:
        self.rules = rules
        self.table_rows = table_rows
        self.verdict = verdict
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
            M rows of ``DECISION_SCHEMA``.
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
        rules = pa.array([typed(each) for each in self.rules], pa.string())
        columns = [
            keys,
            pa.array(OUTCOMES).take(pa.array(outcome)),
            reason.texts(),
            rules.take(pa.array(rule, mask=rule < 0)),
            *(pa.array(values, from_pandas=True) for values in numbers),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=DECISION_SCHEMA)

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
        rule = self.rules[index]
        unjudged = outcome[places] == UNDECIDED
        judged, dropped = places[~unjudged], outcome[places[~unjudged]] == DROP
        if isinstance(rule, Like | Unlike):
            reason.put(places[unjudged], "there is no embedding to compare with the examples")
            said, compared = reasons(rule, self.table_rows, start + judged)
            reason.put(judged, said)
            for column, of_examples in zip(numbers, compared, strict=True):
                column[judged] = of_examples
            return
        if isinstance(rule, Keys | WithoutKeys):
            is_named = dropped == isinstance(rule, WithoutKeys)
            reason.put(judged[is_named], f"is named in {rule.file}")
            reason.put(judged[~is_named], f"is not named in {rule.file}")
            return
        if isinstance(rule, ByVerdicts):
            review = self.verdict.outcomes[index]
            texts = [
                f"dropped by {review.by[row]}" if review.drop[row] else "not dropped in review"
                for row in start + judged
            ]
            reason.put(judged, texts)
            return
        if rule.column is None:
            lacks = f"a column of the condition has no value (null or NaN): {_condition(rule)}"
            reason.put(places[unjudged], lacks)
            reason.put(judged[dropped], f"does not meet {_condition(rule)}")
            reason.put(judged[~dropped], f"meets {_condition(rule)}")
            return
        reason.put(places[unjudged], f"{rule.column} has no value (null or NaN)")
        score, threshold, margin = numbers
        codes, *review = self._numbers(index, start + judged)
        score[judged], threshold[judged], margin[judged] = review
        tied = dropped & (margin[judged] == 0)
        protected = ~dropped & (margin[judged] < 0)
        kinds = np.where(tied, 2, np.where(dropped, 1, np.where(protected, 3, 0)))
        endings = self._endings(index)
        after = pa.array([text for kind in endings for text in kind]).take(pa.array(kinds * len(endings[0]) + codes))
        reason.put(judged, pc.binary_join_element_wise(f"{rule.column} ", six_digits(score[judged]), after, ""))

    def _numbers(self, index: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return group, score, threshold and margin of some rows (M indices) by one rule with a column."""
        rule, cuts = self.rules[index], self.verdict.cuts[index]
        score = self.table_rows.exact[str(rule.column)].values[rows]
        codes = self.table_rows.groups[rule.per].codes[rows] if rule.per else np.zeros(len(rows), np.int32)
        threshold = cuts[codes] if cuts is not None else np.full(len(rows), np.nan)
        with np.errstate(invalid="ignore"):
            distance = score - threshold
        return codes, score, threshold, distance if keeps_high(rule) else -distance

    def examples(self) -> dict[str, np.ndarray]:
        """Return rows to show: the worst, and those nearest to the cut on either side, by the last rule with a score.

        Empty where that rule drops nothing; ties go to the earlier row.
        """
        if self.rules[self.last].column is None:
            return {}
        dropped, kept = _Ends(N_EXAMPLES + N_NEAREST), _Ends(N_NEAREST)
        for start in range(0, len(self.verdict.outcome), BLOCK):
            outcome = self.verdict.outcome[start : start + BLOCK]
            goes = (outcome == DROP) & (self.verdict.rule[start : start + BLOCK] == self.last)
            for ends, is_on_side in ((dropped, goes), (kept, outcome == KEEP)):
                rows = start + np.flatnonzero(is_on_side)
                ends.add(rows, self._numbers(self.last, rows)[-1])
        if not len(dropped.rows):
            return {}
        return {
            "worst": dropped.rows[:N_EXAMPLES],
            "just dropped": dropped.rows[N_EXAMPLES:][::-1][:N_NEAREST],
            "just kept": kept.rows[:N_NEAREST],
        }

    def _endings(self, index: int) -> list[list[str]]:
        """What follows the score, by kind (kept, dropped, lost a tie) and by group."""
        rule, cuts = self.rules[index], self.verdict.cuts[index]
        if isinstance(rule, MaxBadRate):
            cut = f"the cut {self.verdict.outcomes[index].cut:.6g} that verdicts allow"
            inside, outside = ("at least", "below") if keeps_high(rule) else ("at most", "above")
            return [[f" is {inside} {cut}"], [f" is {outside} {cut}"], [""]]
        if not isinstance(rule, KeepTop | DropBottom):
            bound = str(getattr(rule, "bound", ""))
            side = ("at least", "below") if isinstance(rule, Minimum) else ("at most", "above")
            name = "minimum" if isinstance(rule, Minimum) else "maximum"
            return [[f" is {side[0]} the {name} {bound}"], [f" is {side[1]} the {name} {bound}"], [""]]
        groups = [f" of {rule.per} {name}" for name in self.table_rows.groups[rule.per].names] if rule.per else [""]
        values = ["nothing stays" if np.isnan(cut) else f"cut {cut:.6g}" for cut in (cuts if cuts is not None else [])]
        best, worst = ("top", "below") if keeps_high(rule) else ("lowest", "above")
        if isinstance(rule, KeepTop):
            range_text = f"the {best} {amount_of(rule)}"
            kept, dropped = f" is in {range_text}", f" is {worst} {range_text}"
        else:
            range_text = f"the {'bottom' if keeps_high(rule) else 'highest'} {amount_of(rule)}"
            kept, dropped = f" is outside {range_text}", f" is in {range_text}"
        tie = " equals the cut and loses the tie by the hash of its key:" + dropped.removeprefix(" is")
        evened = self.verdict.outcomes[index]
        even = f"{dropped}, and kept: no {evened.column} may lose more than {evened.most:.0%};" if evened else dropped
        pairs = list(zip(groups, values, strict=True))
        return [[f"{words}{group} ({value})" for group, value in pairs] for words in (kept, dropped, tie, even)]


class _Reasons:
    """Texts of N rows that are put in by pieces; empty where none was."""

    def __init__(self, n: int) -> None:
        self._places = np.zeros(n, np.int64)
        self._pieces: list[pa.Array] = [pa.array([""])]
        self._n = 1

    def put(self, rows: np.ndarray, texts: str | Sequence[str] | pa.StringArray) -> None:
        """Give some rows (M indices, ascending) one text, or M texts."""
        if not len(rows):
            return
        if isinstance(texts, str):
            texts = [texts]
        piece = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
        self._places[rows] = self._n + (np.arange(len(piece)) if len(piece) == len(rows) else 0)
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
        rows, values = np.concatenate([self.rows, rows]), np.concatenate([self._values, values])
        if len(values) > 2 * self.n:  # most lie between, and need not be sorted
            low, high = np.partition(values, (self.n - 1, len(values) - self.n))[[self.n - 1, len(values) - self.n]]
            near = ~((values > low) & (values < high))
            rows, values = rows[near], values[near]
        order = np.argsort(values, kind="stable")
        if len(order) > 2 * self.n:
            order = np.concatenate([order[: self.n], order[-self.n :]])
        self.rows, self._values = rows[order], values[order]


def keeps_high(rule: Rule) -> bool:
    """Return whether the rule keeps high values: a minimum does, a maximum does not, a rank asks the column."""
    if isinstance(rule, KeepTop | DropBottom | MaxBadRate):
        return not is_less_certain(rule.column)
    return isinstance(rule, Minimum)


def _condition(rule: Rule) -> str:
    return typed(rule).removeprefix("--where ")
