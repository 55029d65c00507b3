"""Audits: what is drawn, what comes back, and what the answers prove."""

import csv
import io
import json
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from sample_verdicts import judge

from curate.commands.review_verdicts import precision_lines, suggestion_line
from curate.manifest.text import unguarded
from curate.policies.dedup.quality.answers import DIFFERENT, SAME, UNSURE, read_answers, shown
from curate.policies.dedup.quality.audit import (
    COLUMNS,
    DROPPED,
    NEAR,
    Drawn,
    Limit,
    allocate,
    audit_text,
    draw_pairs,
    pair_of_each_row,
)
from curate.policies.dedup.quality.counts import count_answers
from curate.policies.dedup.quality.precision import precision, suggest_threshold
from curate.policies.sampled import blocks, refuse_judged
from scoring.errors import InputError
from scoring.metrics.proportions import Stratum, lower_bound, stratified_interval

LIMITS = {"signature": Limit(0.9), "hash": Limit(2, higher=False)}


def pairs_of(similarity, finder="signature"):
    n = len(similarity)
    return pa.table(
        {
            "key_a": [f"{finder}/a{i}.jpg" for i in range(n)],
            "key_b": [f"{finder}/b{i}, or so.jpg" for i in range(n)],
            "similarity": pa.array(np.asarray(similarity)),
            "finder": [finder] * n,
        }
    )


@pytest.fixture(scope="module")
def many():
    generator = np.random.default_rng(0)
    cosine = np.concatenate([1 - 0.1 * generator.random(3000) ** 2, 0.9 - 0.05 * generator.random(500)])
    bits = generator.choice([0, 1, 2, 3, 4], 400)
    return pa.concat_tables([pairs_of(cosine.astype(np.float32)), pairs_of(bits.astype(np.float32), "hash")])


VERDICTS = {"y": "drop", "n": "keep", "?": "unsure", "": ""}


def answered(drawn, path, say, **reviewer):
    """Write an audit and judge it: ``say`` gives the answer to a pair."""
    path.write_bytes(audit_text(drawn))
    judge(path, [(VERDICTS[say(pair)], pair.key_b, pair.key_a, "") for pair in drawn], question="copy", **reviewer)
    return read_answers(path)


def test_no_key_of_an_audit_is_a_formula_and_answers_come_back():
    keys = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "\t=1", "'=1", "plain"]
    drawn = [Drawn(key, keys[at - 1], 0.97, "similar 1", 1.0) for at, key in enumerate(keys)]
    lines = list(csv.DictReader(io.StringIO(audit_text(drawn).decode(), newline="")))
    for at, line in enumerate(lines):
        assert not line["key_a"].startswith(("=", "+", "-", "@", "\t", "\r"))
        assert (unguarded(line["key_a"]), unguarded(line["key_b"])) == (keys[at], keys[at - 1])


def save(rows, path, delimiter=",", encoding="utf-8", columns=COLUMNS):
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, delimiter=delimiter, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding=encoding)


def lines_of(path):
    return list(csv.DictReader(io.StringIO(path.read_text())))


# -- drawing


def test_weights_add_up_to_the_pairs_of_each_stratum_and_side(many):
    drawn = draw_pairs(many, LIMITS, 200)
    assert len(drawn) == 200
    similarity, finder = many.column("similarity").to_numpy(), np.array(many.column("finder").to_pylist())
    total = Counter()
    for pair in drawn:
        total[pair.stratum.finder, pair.stratum.side] += pair.weight
    assert total["signature", DROPPED] == pytest.approx(
        ((finder == "signature") & (similarity >= np.float32(0.9))).sum()
    )
    assert total["signature", NEAR] == pytest.approx(((finder == "signature") & (similarity < np.float32(0.9))).sum())
    assert total["hash", DROPPED] == pytest.approx(((finder == "hash") & (similarity <= 2)).sum())
    assert total["hash", NEAR] == pytest.approx(((finder == "hash") & (similarity > 2)).sum())


def test_strata_divide_the_pairs_by_similarity_and_ties_stay_together(many):
    drawn = draw_pairs(many, LIMITS, 300)
    ranges = defaultdict(set)
    for pair in drawn:
        name = pair.stratum
        low, high = sorted((name.least, name.most))
        assert low <= pair.similarity <= high
        ranges[name.finder].add((low, high))
    for parts in ranges.values():
        ordered = sorted(parts)
        assert all(before[1] < after[0] for before, after in pairwise(ordered))
    assert len(ranges["signature"]) == 7


def test_pairs_next_to_the_threshold_stand_for_fewer_others(many):
    weight = {pair.stratum: pair.weight for pair in draw_pairs(many, LIMITS, 300) if pair.stratum.finder == "signature"}
    for side in (DROPPED, NEAR):
        outward = [w for name, w in sorted(weight.items(), key=lambda item: item[0].number) if name.side == side]
        assert outward[0] < outward[-1]


def test_the_same_pairs_are_drawn_whatever_the_order_of_rows_and_of_keys(many):
    generator = np.random.default_rng(1)
    turned = many.take(pa.array(generator.permutation(many.num_rows)))
    turned = turned.rename_columns(["key_b", "key_a", "similarity", "finder"])

    def drawn(table, seed):
        return [frozenset((pair.key_a, pair.key_b)) for pair in draw_pairs(table, LIMITS, 50, seed=seed)]

    assert drawn(many, 0) == drawn(turned, 0)
    assert len(set(drawn(many, 0)) & set(drawn(many, 1))) < 25


def test_every_pair_of_a_stratum_is_as_likely_as_any_other():
    table = pairs_of(np.linspace(0.91, 1, 60))
    times = Counter()
    for seed in range(400):
        times.update(pair.key_a for pair in draw_pairs(table, LIMITS, 15, seed=seed) if pair.stratum.number == 2)
    n = np.array(list(times.values()))
    assert len(n) == 30
    assert n.std() < 3 * np.sqrt(n.mean())


def test_the_first_answers_are_a_sample_of_all_strata(many):
    drawn = draw_pairs(many, LIMITS, 300)
    strata = [str(pair.stratum) for pair in drawn]
    share = [Counter(strata[half])[strata[0]] for half in (slice(0, 150), slice(150, 300))]
    assert min(share) > 0.3 * max(share)


def test_fewer_pairs_than_wanted_are_all_drawn_once():
    drawn = draw_pairs(pairs_of([0.95, 0.91, 0.85]), LIMITS, 200)
    assert sorted(pair.key_a for pair in drawn) == [f"signature/a{i}.jpg" for i in range(3)]
    assert {pair.weight for pair in drawn} == {1.0}


@pytest.mark.parametrize("n", [1, 2, 7, 40, 79, 80, 500])
@pytest.mark.parametrize("sizes", [[10, 10, 20, 40], [80], [1, 1, 78], [3, 77]])
def test_an_allocation_draws_as_many_as_asked_and_no_more_than_there_are(sizes, n):
    counts = allocate(sizes, n)
    assert sum(counts) == min(n, 80)
    assert all(0 <= count <= size for count, size in zip(counts, sizes, strict=True))
    assert n < len(sizes) or min(counts) >= 1


def test_a_threshold_belongs_to_what_was_dropped_in_the_precision_of_the_pairs():
    drawn = draw_pairs(pairs_of(np.array([0.9, 0.95], np.float32)), LIMITS, 2)
    assert {pair.stratum.side for pair in drawn} == {DROPPED}
    assert min(pair.similarity for pair in drawn) == 0.9


@pytest.mark.parametrize("n", [0, -1, 100_001])
def test_a_number_of_pairs_out_of_range_is_refused(n):
    with pytest.raises(InputError, match="--audit draws 1 to 100,000 pairs, got"):
        draw_pairs(pairs_of([0.95]), LIMITS, n)


def test_no_pairs_at_all_are_refused():
    with pytest.raises(InputError, match="expected pairs to judge, got none"):
        draw_pairs(pairs_of([0.95]).slice(0, 0), LIMITS, 5)


def test_what_only_a_bug_can_pass_is_refused():
    with pytest.raises(ValueError, match="a limit for every finder, got none for 'other'"):
        draw_pairs(pairs_of([0.95], "other"), LIMITS, 5)
    with pytest.raises(ValueError, match="got NaN"):
        draw_pairs(pairs_of([np.nan]), LIMITS, 5)
    twice = pairs_of([0.95])
    with pytest.raises(ValueError, match="got one twice"):
        draw_pairs(pa.concat_tables([twice, twice]), LIMITS, 5)
    with pytest.raises(ValueError, match=r"looked_for must be in \(0, 1\], got 0"):
        draw_pairs(twice, LIMITS, 5, looked_for=0.0)


@pytest.mark.parametrize("higher", [True, False])
def test_one_pair_a_row_is_that_with_the_most_alike_row_before_it(higher):
    generator = np.random.default_rng(0)
    place = generator.permutation(12)
    query, row = (part.ravel() for part in np.meshgrid(np.arange(12), np.arange(12)))
    query, row = query[query != row], row[query != row]
    alike = generator.integers(0, 5, (12, 12))
    similarity = (alike + alike.T)[query, row].astype(np.float32)
    kept = pair_of_each_row(query, row, similarity, place, higher=higher)
    sign = 1 if higher else -1
    expected = {}
    for i in range(12):
        before = [j for j in range(12) if place[j] < place[i]]
        if before:
            expected[i] = max(before, key=lambda j: (sign * (alike + alike.T)[i, j], -place[j]))
    assert dict(zip(query[kept].tolist(), row[kept].tolist(), strict=True)) == expected
    assert len({frozenset(pair) for pair in expected.items()}) == len(kept)


def test_no_pairs_near_a_threshold_leave_none():
    none = np.zeros(0, np.int64)
    assert pair_of_each_row(none, none, np.zeros(0, np.float32), np.arange(3)).tolist() == []


def test_pairs_short_of_a_threshold_stand_for_those_that_were_not_looked_for(many, tmp_path):
    part, everything = (draw_pairs(many, LIMITS, 200, looked_for=share) for share in (0.25, 1.0))
    for side, times in ((DROPPED, 1), (NEAR, 4)):
        sums = [sum(pair.weight for pair in drawn if pair.stratum.side == side) for drawn in (part, everything)]
        assert sums[0] == pytest.approx(times * sums[1], rel=0.01)
    counted = count_answers(answered(part, tmp_path / "x.csv", lambda pair: "y"))
    assert sum(pair.size for pair in counted if pair.name.side == DROPPED) == 3000 + sum(
        many.column("similarity").to_numpy()[3500:] <= 2
    )


# -- answers


def test_an_audit_comes_back_as_it_was_drawn(many, tmp_path):
    drawn = draw_pairs(many, LIMITS, 60)
    words = {pair.key_a: "yn?"[at % 3] for at, pair in enumerate(drawn)}
    answers = answered(drawn, tmp_path / "x.audit.csv", lambda pair: words[pair.key_a])
    assert [judged.pair for judged in answers.judged] == drawn
    expected = {"y": SAME, "n": DIFFERENT, "?": UNSURE}
    assert [judged.answer for judged in answers.judged] == [expected[words[pair.key_a]] for pair in drawn]


def test_where_reviewers_differ_a_pair_is_unsure_and_a_key_in_two_pairs_has_two_verdicts(many, tmp_path):
    drawn = draw_pairs(many, LIMITS, 20)
    drawn[1] = Drawn(drawn[1].key_a, drawn[0].key_b, *list(vars(drawn[1]).values())[2:])
    path = tmp_path / "x.audit.csv"
    answered(drawn, path, lambda pair: "n" if pair == drawn[1] else "y")
    answers = answered(drawn, path, lambda pair: "n" if pair in drawn[1:3] else "", reviewer="bob")
    assert [pair.answer for pair in answers.judged][:4] == [SAME, DIFFERENT, UNSURE, SAME]


def test_an_audit_with_verdicts_is_not_replaced_and_one_without_is(many, tmp_path):
    path = tmp_path / "x.audit.csv"
    refuse_judged([path], "--audit")
    answered(draw_pairs(many, LIMITS, 20), path, lambda pair: "y")
    with pytest.raises(InputError, match=r"x.audit.verdicts.jsonl holds verdicts .* --audit"):
        refuse_judged([path], "--audit")


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("pair", "2/20", "line 3: expected a pair such as '1 of 200', got '2/20'"),
        ("pair", "1 of 20", "line 3: pair 1 comes twice"),
        ("pair", "21 of 20", "line 3: expected a pair such as"),
        ("stratum", "far away", "line 3: expected a stratum as it was drawn, got 'far away'"),
        ("weight", "0.5", "line 3: expected a weight of 1 or more, got 0.5"),
        ("weight", "nan", "line 3: expected a finite number, got 'nan'"),
        ("similarity", "high", "line 3: expected a number, got 'high'"),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(many, tmp_path, column, value, text):
    path = tmp_path / "x.csv"
    path.write_bytes(audit_text(draw_pairs(many, LIMITS, 20)))
    rows = lines_of(path)
    rows[1][column] = value
    save(rows, path)
    with pytest.raises(InputError) as error:
        read_answers(path)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_lines_are_counted(many, tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(audit_text(draw_pairs(many, LIMITS, 20)))
    rows = [{**row, "weight": "hm"} for row in lines_of(path)]
    save(rows, path)
    with pytest.raises(InputError, match=r"line 2: .*\(20 bad lines in all\)"):
        read_answers(path)


def test_lines_that_were_taken_out_are_missed(many, tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(audit_text(draw_pairs(many, LIMITS, 20)))
    save(lines_of(path)[:17], path)
    with pytest.raises(InputError, match=r"expected all 20 pairs, 3 are missing \(such as 18\)"):
        read_answers(path)


def test_two_audits_in_one_file_are_refused(many, tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(audit_text(draw_pairs(many, LIMITS, 2)))
    rows = lines_of(path)
    rows[1]["pair"] = "2 of 3"
    save(rows, path)
    with pytest.raises(InputError, match="pairs of one audit, got totals of 2, 3"):
        read_answers(path)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "expected the columns pair, .* got nothing"),
        (b"pair,key_a\n1,2\n", "'key_b' is missing"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (",".join(COLUMNS).encode() + b"\n", "got totals of none"),
        (",".join(COLUMNS).encode() + b'\n"1 of 1,a\n', "is not a CSV file"),
    ],
)
def test_a_file_that_is_no_audit_is_refused(tmp_path, data, text):
    (tmp_path / "x.csv").write_bytes(data)
    with pytest.raises(InputError, match=text):
        read_answers(tmp_path / "x.csv")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"x.csv cannot be read \(No such file"):
        read_answers(tmp_path / "x.csv")


# -- what the answers say


def test_precision_weighs_each_answer_by_what_it_stands_for(many, tmp_path):
    drawn = draw_pairs(many, LIMITS, 200)
    answers = answered(
        drawn, tmp_path / "x.csv", lambda pair: "y" if pair.similarity > 0.93 or pair.similarity < 0.5 else "n"
    )
    measured = precision(answers)
    dropped = [pair for pair in drawn if pair.stratum.side == DROPPED]
    yes = sum(pair.weight for pair in dropped if pair.similarity > 0.93 or pair.similarity < 0.5)
    assert measured.dropped.strict.value == pytest.approx(yes / sum(pair.weight for pair in dropped))
    assert measured.dropped.strict == measured.dropped.lenient
    assert measured.dropped.strict.low < measured.dropped.strict.value < measured.dropped.strict.high
    assert set(measured.by_finder) == {"signature", "hash"}


def test_the_interval_is_that_of_the_strata(many, tmp_path):
    drawn = draw_pairs(many, LIMITS, 150)
    measured = precision(answered(drawn, tmp_path / "x.csv", lambda pair: "y"))
    n = Counter(pair.stratum for pair in drawn if pair.stratum.side == DROPPED)
    weight = {pair.stratum: pair.weight for pair in drawn}
    strata = [Stratum(round(weight[name] * count), count, count) for name, count in n.items()]
    assert measured.dropped.strict == pytest.approx(stratified_interval(strata))
    assert measured.dropped.strict.high == 1.0


def test_unsure_and_blank_answers_are_told_and_both_readings_given(many, tmp_path):
    drawn = draw_pairs(many, LIMITS, 200)
    (first_block, second, *_) = blocks([shown(pair)[0] for pair in drawn])
    n = len(first_block) + len(second)
    words = ["y", "n", "?", "y", "y"]
    order = {pair.key_a: "" if at > n + 5 else words[at % 5] for at, pair in enumerate(drawn)}
    measured = precision(answered(drawn, tmp_path / "x.csv", lambda pair: order[pair.key_a]))
    assert measured.dropped.strict.value < measured.dropped.lenient.value
    total = Counter([order[pair.key_a] for pair in drawn][:n])
    first = precision_lines(measured)[0]
    assert first == (
        f"200 pairs drawn: {total['y']} same, {total['n']} different, {total['?']} unsure, {200 - n} without an answer"
    )
    assert any(
        "if unsure ones are different" in line and "if they are the same" in line for line in precision_lines(measured)
    )
    assert any("just short of the threshold" in line for line in precision_lines(measured))
    assert sum(pair.drawn for pair in measured.strata) == 200
    assert json.loads(json.dumps(measured.to_json()))["strata"][0]["blank"] >= 0


def test_no_answer_at_all_is_refused(many, tmp_path):
    with pytest.raises(InputError, match="expected verdicts on the 10 pairs"):
        precision(answered(draw_pairs(many, LIMITS, 10), tmp_path / "x.csv", lambda pair: ""))


def test_a_weight_that_was_changed_is_refused(many, tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(audit_text(draw_pairs(many, LIMITS, 60)))
    rows = lines_of(path)
    rows[0]["weight"] = "77.7"
    save(rows, path)
    with pytest.raises(InputError, match=r"expected \d+ equal weights in the stratum"):
        count_answers(read_answers(path))


def test_only_near_pairs_give_no_precision(tmp_path):
    drawn = draw_pairs(pairs_of(np.linspace(0.8, 0.89, 30)), LIMITS, 30)
    measured = precision(answered(drawn, tmp_path / "x.csv", lambda pair: "n"))
    assert measured.dropped is None
    assert measured.near.strict == pytest.approx((0.0, 0.0, 0.0))


# -- thresholds


def test_all_answers_yes_suggest_the_loosest_threshold_that_was_looked_at(tmp_path):
    drawn = draw_pairs(pairs_of(np.linspace(0.85, 1, 400)), LIMITS, 400)
    (suggestion,) = suggest_threshold(answered(drawn, tmp_path / "x.csv", lambda pair: "y"), 0.99)
    assert suggestion.threshold == 0.85
    assert all(test.passed for test in suggestion.tested)
    assert "threshold 0.85 keeps precision 0.99 with confidence 0.95" in suggestion_line(suggestion)


def test_the_threshold_lies_where_answers_turn_and_its_bound_is_the_one_stated(tmp_path):
    cosine = np.linspace(0.85, 1, 3000).astype(np.float32)
    drawn = draw_pairs(pairs_of(cosine), LIMITS, 600)
    (suggestion,) = suggest_threshold(
        answered(drawn, tmp_path / "x.csv", lambda pair: "y" if pair.similarity > 0.92 else "n"), 0.9
    )
    least = min(pair.stratum.least for pair in drawn if pair.stratum.number == 3 and pair.stratum.side == DROPPED)
    assert 0.92 <= suggestion.threshold <= least
    assert (cosine[cosine >= np.float32(suggestion.threshold)] > 0.92).mean() >= 0.9
    assert [test.passed for test in suggestion.tested][-1] is False
    assert json.loads(json.dumps(suggestion.to_json()))["more"] is None


def test_the_bound_of_a_tested_threshold_is_that_of_the_pairs_it_drops(tmp_path):
    drawn = draw_pairs(pairs_of(np.linspace(0.905, 1, 1000)), LIMITS, 300)
    (suggestion,) = suggest_threshold(answered(drawn, tmp_path / "x.csv", lambda pair: "y"), 0.9)
    for test in suggestion.tested:
        inside = [pair for pair in drawn if pair.stratum.least >= test.threshold]
        n = Counter(pair.stratum for pair in inside)
        weight = {pair.stratum: pair.weight for pair in inside}
        strata = [Stratum(round(weight[name] * count), count, count) for name, count in n.items()]
        assert test.low == pytest.approx(lower_bound(strata))
        assert test.pairs == sum(stratum.size for stratum in strata)


def test_too_few_answers_say_how_many_more_would_do(tmp_path):
    table = pairs_of(np.linspace(0.9, 1, 5000))
    (few,) = suggest_threshold(answered(draw_pairs(table, LIMITS, 40), tmp_path / "x.csv", lambda pair: "y"), 0.98)
    assert few.threshold is None
    assert 100 < few.more < 400
    assert f"about {few.more:,} more answers would be needed" in suggestion_line(few)
    (enough,) = suggest_threshold(
        answered(draw_pairs(table, LIMITS, 40 + few.more), tmp_path / "x.csv", lambda pair: "y"), 0.98
    )
    assert enough.threshold is not None


def test_answers_that_fall_short_say_that_no_more_of_them_will_do(tmp_path):
    drawn = draw_pairs(pairs_of(np.linspace(0.9, 1, 1000)), LIMITS, 200)
    said = {pair.key_a: "yn"[at % 2] for at, pair in enumerate(drawn)}
    (suggestion,) = suggest_threshold(answered(drawn, tmp_path / "x.csv", lambda pair: said[pair.key_a]), 0.9)
    assert suggestion.threshold is None
    assert suggestion.more is None
    assert "no threshold keeps precision 0.9" in suggestion_line(suggestion)


def test_each_finder_has_its_own_threshold_in_its_own_unit(many, tmp_path):
    drawn = draw_pairs(many, LIMITS, 2000)
    few = suggest_threshold(answered(drawn, tmp_path / "x.csv", lambda pair: "n" if pair.similarity == 4 else "y"), 0.9)
    by_name = {pair.finder: pair for pair in few}
    assert set(by_name) == {"hash", "signature"}
    assert by_name["hash"].threshold == 3


def test_an_unsure_pair_counts_against_a_threshold(tmp_path):
    drawn = draw_pairs(pairs_of(np.linspace(0.9, 1, 300)), LIMITS, 300)
    (suggestion,) = suggest_threshold(answered(drawn, tmp_path / "x.csv", lambda pair: "?"), 0.5)
    assert suggestion.threshold is None


@pytest.mark.parametrize("bad", [(1.0, 0.95), (0.0, 0.95), (0.9, 1.0)])
def test_a_wanted_share_out_of_range_is_refused(many, tmp_path, bad):
    answers = answered(draw_pairs(many, LIMITS, 5), tmp_path / "x.csv", lambda pair: "y")
    with pytest.raises(InputError, match="between 0 and 1"):
        suggest_threshold(answers, *bad)


def simulated(steep, seed):
    """Pairs, and which are the same: the more alike the likelier."""
    generator = np.random.default_rng(seed)
    cosine = (0.85 + 0.15 * generator.random(2000)).astype(np.float32)
    chance = 1 / (1 + np.exp(-steep * (cosine - 0.9) - 1))
    return pairs_of(cosine), dict(
        zip((f"signature/a{i}.jpg" for i in range(2000)), generator.random(2000) < chance, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("steep", "wanted"), [(40, 0.9), (80, 0.95), (5, 0.75)])
def test_a_suggested_threshold_keeps_its_precision_as_often_as_it_says(tmp_path, steep, wanted):
    table, same = simulated(steep, 0)
    cosine, truth = table.column("similarity").to_numpy(), np.array(list(same.values()))
    wrong = chosen = missed = 0
    repeats = 200
    for seed in range(repeats):
        drawn = draw_pairs(table, LIMITS, 300, seed=seed)
        answers = answered(drawn, tmp_path / "x.csv", lambda pair: "y" if same[pair.key_a] else "n")
        (suggestion,) = suggest_threshold(answers, wanted, 0.9)
        interval = precision(answers).dropped.strict
        missed += not interval.low <= truth[cosine >= np.float32(0.9)].mean() <= interval.high
        if suggestion.threshold is not None:
            chosen += 1
            wrong += truth[cosine >= np.float32(suggestion.threshold)].mean() < wanted
    assert chosen > 0
    assert wrong / repeats <= 0.1
    assert missed / repeats <= 0.05
