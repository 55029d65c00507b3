"""What answers to an audit say of precision, and which threshold they suggest."""

import json
from collections import Counter

import numpy as np
import pytest
from drawn_pairs import LIMITS, answered, drawn_lines, pairs_of, save

from curate.commands.review import precision_lines, suggestion_line
from curate.policies.dedup.quality.answers import read_answers, shown
from curate.policies.dedup.quality.audit import DROPPED, draw_pairs
from curate.policies.dedup.quality.precision import count_answers, precision, suggest_threshold
from curate.policies.sampled import blocks
from scoring.errors import InputError
from scoring.metrics.proportions import Stratum, lower_bound, stratified_interval


def test_precision_weighs_each_answer_by_what_it_represents(many, tmp_path):
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


def test_the_interval_follows_the_strata(many, tmp_path):
    drawn = draw_pairs(many, LIMITS, 150)
    measured = precision(answered(drawn, tmp_path / "x.csv", lambda pair: "y"))
    n = Counter(pair.stratum for pair in drawn if pair.stratum.side == DROPPED)
    weight = {pair.stratum: pair.weight for pair in drawn}
    strata = [Stratum(round(weight[name] * count), count, count) for name, count in n.items()]
    assert measured.dropped.strict == pytest.approx(stratified_interval(strata))
    assert measured.dropped.strict.high == 1.0


def test_unsure_and_blank_answers_are_reported_and_both_readings_given(many, tmp_path):
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
        "if unsure counts as different" in line and "if it counts as the same" in line
        for line in precision_lines(measured)
    )
    assert any("just below the threshold" in line for line in precision_lines(measured))
    assert sum(pair.drawn for pair in measured.strata) == 200
    assert json.loads(json.dumps(measured.to_json()))["strata"][0]["blank"] >= 0


def test_no_answer_at_all_is_refused(many, tmp_path):
    with pytest.raises(InputError, match="the 10 pairs"):
        precision(answered(draw_pairs(many, LIMITS, 10), tmp_path / "x.csv", lambda pair: ""))


def test_a_weight_that_was_changed_is_refused(many, tmp_path):
    path = tmp_path / "x.csv"
    rows = drawn_lines(draw_pairs(many, LIMITS, 60), path)
    rows[0]["weight"] = "77.7"
    save(rows, path)
    with pytest.raises(InputError, match=r"\d+ equal weights"):
        count_answers(read_answers(path))


def test_only_near_pairs_give_no_precision(tmp_path):
    drawn = draw_pairs(pairs_of(np.linspace(0.8, 0.89, 30)), LIMITS, 30)
    measured = precision(answered(drawn, tmp_path / "x.csv", lambda pair: "n"))
    assert measured.dropped is None
    assert measured.near.strict == pytest.approx((0.0, 0.0, 0.0))


def test_all_answers_yes_suggest_the_loosest_sampled_threshold(tmp_path):
    drawn = draw_pairs(pairs_of(np.linspace(0.85, 1, 400)), LIMITS, 400)
    (suggestion,) = suggest_threshold(answered(drawn, tmp_path / "x.csv", lambda pair: "y"), 0.99)
    assert suggestion.threshold == 0.85
    assert all(test.passed for test in suggestion.tested)
    assert "0.85 reaches precision 0.99" in suggestion_line(suggestion)


def test_the_threshold_is_where_answers_turn_and_its_bound_is_the_one_stated(tmp_path):
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


def test_the_bound_of_a_tested_threshold_counts_the_pairs_it_drops(tmp_path):
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
    assert "reaches precision 0.9" in suggestion_line(suggestion)


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
def test_a_suggested_threshold_keeps_its_precision_as_often_as_stated(tmp_path, steep, wanted):
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
