"""Reasons of many rows at once, against one row after another in Python."""

import numpy as np
import pyarrow as pa
import pytest

from curate.policies.decided import DROP, FAILED, KEEP, UNDECIDED
from curate.policies.filter.rules import DecisionWords, decide
from curate.policies.filter.table import RULES
from curate.tables.digests import tie_breaks
from curate.tables.rows import Codes, Numbers, Rows

N = 600
GROUPS = ["a", "b"]
SIDES = {"keep-top": ("is in", "is above"), "max": ("is at most", "is above"), "min": ("is at least", "is below")}


@pytest.fixture
def rows():
    generator = np.random.default_rng(5)
    values = np.round(generator.gamma(2, 10, N), 1).astype(np.float32)  # many are equal
    valid = generator.random(N) > 0.05
    keys = [f"k{i}".encode() for i in range(N)]
    exact = {"unc_a": Numbers(values, valid), "kappa_b": Numbers(values[::-1].copy(), valid[::-1].copy())}
    codes = generator.integers(0, len(GROUPS), N).astype(np.int32)
    return Rows(generator.random(N) > 0.02, tie_breaks(keys), exact=exact, groups={"label": Codes(codes, GROUPS)})


def cut_text(rule, verdict, index, group):
    """What follows the score of a rule, but for the side."""
    if hasattr(rule, "amount"):
        of = f" of {rule.per} {GROUPS[group]}" if rule.per else ""
        return f" the lowest {rule.amount}{of} (cut {verdict.cuts[index][group]:.6g})"
    return f" the {'minimum' if rule.name == 'min' else 'maximum'} {rule.bound}"


def slow_reason(rules, table_rows, verdict, row):
    outcome, index = verdict.outcome[row], verdict.rule[row]
    if outcome == FAILED:
        return "not scored: io_error (gone)"
    rule = rules[-1 if outcome == KEEP else index]
    column = table_rows.exact[rule.column]
    if outcome == UNDECIDED:
        return f"{rule.column} has no value (null or NaN)"
    score = float(column.values[row])
    group = table_rows.groups["label"].codes[row] if getattr(rule, "per", None) else 0
    rest = cut_text(rule, verdict, rules.index(rule), group)
    side = SIDES[rule.name][int(outcome == DROP)]
    cut = verdict.cuts[rules.index(rule)]
    if outcome == DROP and score == cut[group]:
        side = f"equals the cut and loses the tie by the hash of its key: {side.removeprefix('is ')}"
    return f"{rule.column} {score:.6g} {side}{rest}"


@pytest.mark.parametrize(
    "rules",
    [
        [RULES["keep-top"]("80%", column="unc_a")],
        [RULES["keep-top"]("40%", column="unc_a", per="label")],
        [
            RULES["max"]("40", column="unc_a"),
            RULES["min"]("3", column="kappa_b"),
            RULES["keep-top"]("50%", column="unc_a"),
        ],
    ],
    ids=["amount", "groups", "several"],
)
@pytest.mark.parametrize(("start", "stop"), [(0, N), (100, 250)])
def test_every_reason_belongs_to_its_row(rows, rules, start, stop):
    verdict = decide(rules, rows)
    words = DecisionWords(rules, rows, verdict)
    ok = rows.ok[start:stop].tolist()
    keys = pa.array([f"k{i}" for i in range(start, stop)])
    status = pa.array(["ok" if is_ok else "io_error" for is_ok in ok])
    decisions = words.rows(start, keys, status, pa.array([None if is_ok else "gone" for is_ok in ok]))
    expected = [slow_reason(rules, rows, verdict, row) for row in range(start, stop)]
    assert decisions.column("reason").to_pylist() == expected
    assert {"keep", "drop", "undecided"} <= set(decisions.column("decision").to_pylist())


def test_words_of_each_group_are_made_once_and_not_again_for_each_batch(rows, monkeypatch):
    rule, made = RULES["keep-top"]("40%", column="unc_a", per="label"), []
    endings = type(rule).endings
    monkeypatch.setattr(type(rule), "endings", lambda self, result: made.append(1) or endings(self, result))
    words = DecisionWords([rule], rows, decide([rule], rows))
    for start in range(0, N, 100):
        words.rows(start, pa.array([f"k{i}" for i in range(start, start + 100)]), None, None)
    assert made == [1]
