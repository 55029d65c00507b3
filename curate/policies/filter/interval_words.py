"""Why a rule by an end of intervals decided a row as it did, in words and numbers."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.policies.filter.cuts import Flags, columns_read, compared
from curate.policies.filter.ends import BOUND, LOWER, UPPER
from curate.policies.outcomes import DROP, KEEP, UNDECIDED
from curate.tables.rows import Rows

FIELDS = (pa.field("lower", pa.float64()), pa.field("upper", pa.float64()))  # of decisions by intervals
MEANINGS: dict[str, str] = {
    "decision": "keep, drop, undecided (the interval crosses the cut, or a value is missing) or failed (not scored)",
    "margin": "the end that the rule uses against threshold, in the direction of keeping",
    LOWER: "lower end of the row's interval in the column of a rule by intervals",
    UPPER: "upper end of it",
}
CROSSES, MISSING = "interval crosses the cut", "interval (null or NaN)"
SIDES = {(True, KEEP): "at least", (True, DROP): "below", (False, KEEP): "at most", (False, DROP): "above"}


@dataclass(frozen=True)
class Against:
    """M rows against the cut of a rule by intervals, each of shape (M,); NaN where there is no interval.

    Attributes:
        there: whether a row has a score and both ends.
        group: which of the rule's groups it is in.
        score: its score.
        lower: the lower end.
        upper: the upper end.
        threshold: the cut.
        margin: the end that the rule uses against the cut, in the direction of keeping.
    """

    there: Flags
    group: NDArray[Any]
    score: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    threshold: NDArray[np.float64]
    margin: NDArray[np.float64]


class _Row(NamedTuple):
    outcome: int
    group: str
    score: float
    lower: float
    upper: float
    cut: float
    named: float
    margin: float


def has_interval(rule: Any, table_rows: Rows, rows: NDArray[np.int64]) -> Flags:
    """Return which of some rows have a score and both ends, shape (M,)."""
    return np.logical_and.reduce([table_rows.exact[name].valid[rows] for name in columns_read(rule)])


def against(rule: Any, table_rows: Rows, rows: NDArray[np.int64], cuts: NDArray[np.float64], *, high: bool) -> Against:
    """Hold some rows against the cut of a rule.

    Args:
        rule: by an end of intervals.
        table_rows: with its columns.
        rows: M indices.
        cuts: of the rule, by group.
        high: whether it keeps high values.
    """
    there = has_interval(rule, table_rows, rows)
    score, lower, upper = (
        np.where(there, table_rows.exact[name].values[rows].astype(np.float64), np.nan) for name in columns_read(rule)
    )
    group = table_rows.groups[rule.per].codes[rows] if rule.per else np.zeros(len(rows), np.int8)
    threshold = np.where(there, cuts[group], np.nan)
    with np.errstate(invalid="ignore"):
        margin = ((lower if rule.by == LOWER else upper) - threshold) * (1 if high else -1)
    return Against(there, group, score, lower, upper, threshold, margin)


def reasons_of(rule: Any, table_rows: Rows, found: Against, outcome: NDArray[np.uint8], *, high: bool) -> list[str]:
    """Return in words why M rows, held against the cut, became what they are."""
    groups = [f" of {rule.per} {name}" for name in table_rows.groups[rule.per].names] if rule.per else [""]
    say = _alone if rule.crossing == BOUND else _whole
    named = found.lower if rule.by == LOWER else found.upper
    columns = (found.score, found.lower, found.upper, found.threshold, named, found.margin)
    numbers = zip(*(values.tolist() for values in columns), strict=True)
    return [
        say(rule, _Row(became, groups[code], *row), high=high) if has else f"{rule.column} has no {MISSING}"
        for has, became, code, row in zip(
            found.there.tolist(), outcome.tolist(), found.group.tolist(), numbers, strict=True
        )
    ]


def _whole(rule: Any, row: _Row, *, high: bool) -> str:
    """Say where a row's interval lies."""
    score, interval = f"{rule.column} {row.score:.6g}", f"interval {row.lower:.6g} to {row.upper:.6g}"
    if np.isnan(row.cut):
        return f"{score}: nothing stays{row.group}"
    cut = f"the cut {row.cut:.6g}{row.group}"
    if row.outcome == UNDECIDED:
        return f"{score} is {_side(row.score, row.cut)} {cut}, but its {interval} crosses it"
    if row.outcome == DROP and row.margin >= 0:
        return f"{score}: its {interval} ends at {cut} and loses the tie by the hash of its key"
    return f"{score}: all of its {interval} is {SIDES[high, row.outcome]} {cut}"


def _alone(rule: Any, row: _Row, *, high: bool) -> str:
    """Say where the end lies that the rule uses."""
    end = f"{compared(rule)} {row.named:.6g}"
    if np.isnan(row.cut):
        return f"{end}: nothing stays{row.group}"
    if row.outcome == DROP and row.margin >= 0:
        return f"{end} equals the cut{row.group} and loses the tie by the hash of its key"
    return f"{end} is {SIDES[high, row.outcome]} the cut {row.cut:.6g}{row.group}"


def _side(value: float, cut: float) -> str:
    return "at" if value == cut else "above" if value > cut else "below"
