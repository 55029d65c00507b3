"""Rules against a slow restatement of what they mean."""

import math
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curate.policies.decided import DROP, FAILED, KEEP, UNDECIDED
from curate.policies.filter.amounts import DropBottom, KeepTop
from curate.policies.filter.named import Maximum, Minimum, Where
from curate.policies.filter.rules import decide, rule_from_json
from curate.tables.amount import Amount
from curate.tables.digests import tie_breaks
from curate.tables.needs import Needs
from curate.tables.rows import Codes, Numbers, Rows, collect
from scoring.errors import InputError

NAN = float("nan")
NAMES = {KEEP: "keep", DROP: "drop", UNDECIDED: "undecided", FAILED: "failed"}


def scores_of(values, *, column="kappa_a", keys=None, ok=None, labels=None, dtype=np.float32):
    n = len(values)
    keys = keys or [f"k{i}" for i in range(n)]
    valid = np.array([v is not None and not math.isnan(v) for v in values], bool)
    names = list(dict.fromkeys(labels or []))
    numbers = np.array([v if good else 0 for v, good in zip(values, valid, strict=True)], dtype)
    codes = np.array([names.index(label) for label in labels or []], np.int32)
    return Rows(
        ok=np.ones(n, bool) if ok is None else np.array(ok),
        hashes=tie_breaks([key.encode() for key in keys]),
        exact={column: Numbers(numbers, valid)},
        groups={"label": Codes(codes, [str(name) for name in names])} if labels else {},
    )


def outcome(rules, scores):
    return [NAMES[int(code)] for code in decide(rules, scores).outcome]


def slow_keep_top(values, keys, k, *, low_is_best=False):
    """The definition: sort by value, then by the hash of the key, and take k."""

    def rank(i):
        tie = xxhash.xxh64_intdigest(keys[i].encode())
        return (-values[i] if low_is_best else values[i], tie)

    best = sorted(range(len(values)), key=rank, reverse=True)[:k]
    return {keys[i] for i in best}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("column", ["kappa_a", "unc_a"])
def test_keep_top_is_a_sort_with_ties_by_hash(seed, column):
    generator = np.random.default_rng(seed)
    values = generator.integers(0, 5, 40).tolist()  # many ties
    keys = [f"key-{seed}-{i}" for i in range(40)]
    k = int(generator.integers(1, 40))
    verdict = decide([KeepTop(k, column)], scores_of(values, column=column, keys=keys))
    kept = {keys[i] for i in np.flatnonzero(verdict.outcome == KEEP)}
    assert kept == slow_keep_top(values, keys, k, low_is_best=column == "unc_a")


def test_the_same_rows_are_kept_in_whatever_order_they_come():
    generator = np.random.default_rng(0)
    values = generator.integers(0, 3, 50)
    keys = np.array([f"k{i}" for i in range(50)])
    kept = []
    for _ in range(5):
        order = generator.permutation(50)
        verdict = decide([KeepTop(17, "kappa_a")], scores_of(values[order].tolist(), keys=keys[order].tolist()))
        kept.append(set(keys[order][verdict.outcome == KEEP]))
    assert all(len(each) == 17 and each == kept[0] for each in kept)


@pytest.mark.parametrize("k", [1, 2, 29, 30])
def test_a_count_keeps_exactly_that_many_rows(k):
    assert outcome([KeepTop(k, "kappa_a")], scores_of([1.0] * 30)).count("keep") == k


def test_a_smaller_count_keeps_part_of_what_a_larger_one_keeps():
    scores = scores_of(np.random.default_rng(0).integers(0, 4, 60).tolist())
    kept = [set(np.flatnonzero(decide([KeepTop(k, "kappa_a")], scores).outcome == KEEP)) for k in range(1, 61)]
    assert all(small < large for small, large in pairwise(kept))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 99, 100, 101, 1000])
@pytest.mark.parametrize("percent", ["0.1", "7", "12.5", "20", "33.3", "50", "99.9", "100"])
def test_a_share_is_exact_and_top_and_bottom_are_mirrors(n, percent):
    share = Fraction(percent) / 100
    expected = math.ceil(share * n)
    assert Amount.parse(f"{percent}%", "--keep-top").of(n, up=True) == expected
    rest = float(1 - share)
    if rest > 0:
        dropped = Amount.parse(f"{float((1 - share) * 100):.6g}%", "--drop-bottom").of(n, up=False)
        assert n - dropped == expected


def test_a_share_has_no_float_surprise():
    assert 0.07 * 100 > 7  # what binary numbers would say
    assert Amount.parse("0.07", "--keep-top").of(100, up=True) == 7
    assert Amount.parse(0.07, "--keep-top").of(100, up=True) == 7
    assert Amount.parse("7%", "--keep-top").of(100, up=True) == 7


def test_one_is_a_row_and_one_point_zero_is_everything():
    assert Amount.parse("1", "--keep-top").of(50, up=True) == 1
    assert Amount.parse(1, "--keep-top").of(50, up=True) == 1
    assert Amount.parse("1.0", "--keep-top").of(50, up=True) == 50
    assert Amount.parse("1.", "--keep-top").of(50, up=True) == 50
    assert Amount.parse("100%", "--keep-top").of(50, up=True) == 50


@pytest.mark.parametrize(
    "text", ["1.5", "0", "0.0", "0%", "101%", "-1", "-0.5", "many", "", "5,000", "1e3", "nan", "٣", "9" * 40]
)
def test_an_amount_that_makes_no_sense_is_refused(text):
    with pytest.raises(InputError, match=r"--keep-top .*fraction"):
        KeepTop(text, "kappa_a")


def test_drop_bottom_drops_the_worst():
    assert outcome([DropBottom(2, "kappa_a")], scores_of([5, 1, 4, 2, 3])) == ["keep", "drop", "keep", "drop", "keep"]
    unc = scores_of([5, 1, 4, 2, 3], column="unc_a")
    assert outcome([DropBottom(2, "unc_a")], unc) == ["drop", "keep", "drop", "keep", "keep"]


def test_more_than_there_are_keeps_all_or_drops_all():
    assert outcome([KeepTop(99, "kappa_a")], scores_of([1, 2])) == ["keep", "keep"]
    assert outcome([DropBottom(99, "kappa_a")], scores_of([1, 2])) == ["drop", "drop"]


def test_per_judges_every_group_apart():
    values = [1, 2, 3, 10, 20, 30, 40]
    labels = ["cat", "cat", "cat", "dog", "dog", "dog", None]
    scores = scores_of(values, labels=labels)
    kept = decide([KeepTop("50%", "kappa_a", "label")], scores).outcome == KEEP
    assert np.array(values)[kept].tolist() == [2, 3, 20, 30, 40]  # ceil(1.5) each; null is its own group
    kept = decide([KeepTop(1, "kappa_a", "label")], scores).outcome == KEEP
    assert np.array(values)[kept].tolist() == [3, 30, 40]
    kept = decide([DropBottom("50%", "kappa_a", "label")], scores).outcome == KEEP
    assert np.array(values)[kept].tolist() == [2, 3, 20, 30, 40]


@pytest.mark.parametrize("seed", range(4))
def test_per_equals_filtering_each_group_alone(seed):
    generator = np.random.default_rng(seed)
    values, labels = generator.integers(0, 4, 60).tolist(), generator.choice(["a", "b", "c"], 60).tolist()
    keys = [f"k{i}" for i in range(60)]
    verdict = decide([KeepTop("30%", "unc_a", "label")], scores_of(values, column="unc_a", labels=labels))
    expected = set()
    for label in "abc":
        rows = [i for i in range(60) if labels[i] == label]
        k = math.ceil(Fraction(3, 10) * len(rows))
        expected |= slow_keep_top([values[i] for i in rows], [keys[i] for i in rows], k, low_is_best=True)
    assert {keys[i] for i in np.flatnonzero(verdict.outcome == KEEP)} == expected


def test_rules_apply_in_order_each_to_what_is_left():
    scores = scores_of([1, 2, 3, 4, 5, 6, 7, 8])
    first_max = decide([Maximum(6, "kappa_a"), KeepTop("50%", "kappa_a")], scores)
    first_top = decide([KeepTop("50%", "kappa_a"), Maximum(6, "kappa_a")], scores)
    assert np.flatnonzero(first_max.outcome == KEEP).tolist() == [3, 4, 5]
    assert np.flatnonzero(first_top.outcome == KEEP).tolist() == [4, 5]
    assert first_max.rule.tolist() == [1, 1, 1, -1, -1, -1, 0, 0]
    assert first_top.left == [8, 4]


def test_bounds_are_inclusive_and_in_the_precision_of_the_column():
    assert outcome([Minimum("0.1", "kappa_a")], scores_of([0.1, 0.0999])) == ["keep", "drop"]
    assert outcome([Maximum("0.1", "kappa_a")], scores_of([0.1, 0.1001])) == ["keep", "drop"]
    whole_numbers = scores_of([1, 2, 3], dtype=np.int64)
    assert outcome([Minimum("1.5", "kappa_a")], whole_numbers) == ["drop", "keep", "keep"]
    assert outcome([Maximum("2.5", "kappa_a")], whole_numbers) == ["keep", "keep", "drop"]
    assert outcome([Minimum("-1e30", "kappa_a")], whole_numbers) == ["keep"] * 3
    big = scores_of([2**63, 2**63 + 1], dtype=np.uint64)
    assert outcome([Minimum(2**63 + 1, "kappa_a")], big) == ["drop", "keep"]
    assert outcome([Minimum("-3", "kappa_a")], big) == ["keep", "keep"]


def decimals(values, kind):
    batch = pa.record_batch({"key": [f"k{i}" for i in range(len(values))], "unc_a": pa.array(values, kind)})
    return collect([batch], batch.schema, len(values), Needs(exact=("unc_a",)), ["key", "unc_a"], path="t.parquet")


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([pa.decimal128(10, 2), pa.decimal128(15, 8), pa.decimal128(38, 20), pa.decimal256(60, 30)]),
    st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=20),
    st.sampled_from(["0", "1e-30", "-1e-30", "1e-17", "-1e-17"]),
)
@example(pa.decimal128(38, 20), [1], "-1e-30")  # more digits than a float64 can tell apart
def test_decimals_compare_as_decimals(kind, hundredths, apart):
    values = [Decimal(number) / 100 for number in hundredths]
    scores, bound = decimals(values, kind), values[0] + Decimal(apart)
    assert outcome([Minimum(str(bound), "unc_a")], scores) == ["keep" if v >= bound else "drop" for v in values]
    assert outcome([Maximum(str(bound), "unc_a")], scores) == ["keep" if v <= bound else "drop" for v in values]


def test_decimals_of_more_digits_than_a_double_holds_are_refused():
    with pytest.raises(InputError, match=r"15 digits.*unc_a.*double"):
        decimals([Decimal("0.1234567890123456"), Decimal("0.1234567890123457")], pa.decimal128(20, 18))


@pytest.mark.parametrize("bound", ["nan", "inf", "-inf", "high", "", "1/0", "1e999999999", "1e-999999999"])
def test_a_bound_is_a_finite_number(bound):
    for rule, sign in ((Minimum, ">="), (Maximum, "<=")):
        with pytest.raises(InputError, match=rf"finite number.* {sign} 0\.5"):
            rule(bound, "kappa_a")


def test_nothing_that_is_missing_ever_wins():
    scores = scores_of([NAN, 1, None, math.inf, -math.inf])
    assert outcome([KeepTop(2, "kappa_a")], scores) == ["undecided", "keep", "undecided", "keep", "drop"]
    assert outcome([Minimum(0, "kappa_a")], scores) == ["undecided", "keep", "undecided", "keep", "drop"]
    unc = scores_of([NAN, 1, None, 3], column="unc_a")
    assert outcome([KeepTop("50%", "unc_a")], unc) == ["undecided", "keep", "undecided", "drop"]


def test_a_row_dropped_before_is_not_undecided_later():
    scores = scores_of([NAN, 1, 2])
    scores.truths["x"] = np.array([0, 1, -1], np.int8)
    assert outcome([Where("x"), KeepTop(5, "kappa_a")], scores) == ["drop", "keep", "undecided"]


def test_failed_rows_remain_failed_and_do_not_count_in_a_share():
    scores = scores_of([9, 1, 2, 3, 4], ok=[False, True, True, True, True])
    assert outcome([KeepTop("50%", "kappa_a")], scores) == ["failed", "drop", "drop", "keep", "keep"]


def test_the_four_outcomes_add_up_for_random_tables_and_rules():
    generator = np.random.default_rng(0)
    for _ in range(100):
        n = int(generator.integers(0, 30))
        values = [NAN if generator.random() < 0.2 else float(generator.integers(0, 5)) for _ in range(n)]
        scores = scores_of(
            values, ok=(generator.random(n) < 0.8).tolist(), labels=generator.choice(["a", "b"], n).tolist() or None
        )
        per = "label" if n else None
        choices = [
            KeepTop("70%", "kappa_a", per),
            DropBottom(2, "kappa_a"),
            Minimum(1, "kappa_a"),
            Maximum(3, "kappa_a"),
        ]
        rules = [choices[int(i)] for i in generator.integers(0, 4, 3)]
        verdict = decide(rules, scores)
        assert len(verdict.outcome) == n
        assert ((verdict.rule >= 0) == np.isin(verdict.outcome, [DROP, UNDECIDED])).all()


def test_no_rows_at_all_are_fine():
    assert outcome([KeepTop("80%", "kappa_a"), Minimum(1, "kappa_a")], scores_of([])) == []


@pytest.mark.parametrize(
    "rule", [KeepTop("80%", "a", "b"), DropBottom(0.2, "a"), Minimum(3, "a"), Maximum("3.5", "a"), Where("a > 1")]
)
def test_a_rule_survives_a_receipt(rule):
    assert rule_from_json(rule.to_json()) == rule


@pytest.mark.parametrize(
    "value", [3, {}, {"rule": "keep-tpo"}, {"rule": "keep-top"}, {"rule": "keep-top", "amount": "9%", "column": ["x"]}]
)
def test_a_rule_that_was_edited_is_refused(value):
    with pytest.raises(InputError):
        rule_from_json(value)
