"""An audit goes out as a file and comes back with answers."""

import csv
import io

import pytest
from drawn_pairs import LIMITS, answered, drawn_lines, save

from curate.manifest.text import unguarded
from curate.policies.dedup.quality.answers import DIFFERENT, SAME, UNSURE, read_answers
from curate.policies.dedup.quality.audit import COLUMNS, Drawn, audit_text, draw_pairs
from curate.policies.sampled import refuse_judged
from scoring.errors import InputError


def test_no_key_of_an_audit_is_a_formula_and_answers_come_back():
    keys = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "\t=1", "'=1", "plain"]
    drawn = [Drawn(key, keys[at - 1], 0.97, "similar 1", 1.0) for at, key in enumerate(keys)]
    lines = list(csv.DictReader(io.StringIO(audit_text(drawn).decode(), newline="")))
    for at, line in enumerate(lines):
        assert not line["key_a"].startswith(("=", "+", "-", "@", "\t", "\r"))
        assert (unguarded(line["key_a"]), unguarded(line["key_b"])) == (keys[at], keys[at - 1])


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
    with pytest.raises(InputError, match=r"audit\.verdicts\.jsonl .*--audit"):
        refuse_judged([path], "--audit")


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("pair", "2/20", "got '2/20'"),
        ("pair", "1 of 20", "pair 1 occurs twice"),
        ("pair", "21 of 20", "expected a place"),
        ("stratum", "far away", "got 'far away'"),
        ("weight", "0.5", "or more, got 0.5"),
        ("weight", "nan", "got 'nan'"),
        ("similarity", "high", "got 'high'"),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(many, tmp_path, column, value, text):
    path = tmp_path / "x.csv"
    rows = drawn_lines(draw_pairs(many, LIMITS, 20), path)
    rows[1][column] = value
    save(rows, path)
    with pytest.raises(InputError) as error:
        read_answers(path)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_lines_are_counted(many, tmp_path):
    path = tmp_path / "x.csv"
    rows = [{**row, "weight": "hm"} for row in drawn_lines(draw_pairs(many, LIMITS, 20), path)]
    save(rows, path)
    with pytest.raises(InputError, match=r"line 2: .*\(20 bad"):
        read_answers(path)


def test_lines_that_were_taken_out_are_missed(many, tmp_path):
    path = tmp_path / "x.csv"
    save(drawn_lines(draw_pairs(many, LIMITS, 20), path)[:17], path)
    with pytest.raises(InputError, match="got 17 of 20"):
        read_answers(path)


def test_two_audits_in_one_file_are_refused(many, tmp_path):
    path = tmp_path / "x.csv"
    rows = drawn_lines(draw_pairs(many, LIMITS, 2), path)
    rows[1]["pair"] = "2 of 3"
    save(rows, path)
    with pytest.raises(InputError, match="2 of 2 and 3"):
        read_answers(path)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "no column 'pair'"),
        (b"pair,key_a\n1,2\n", "no column 'key_b'"),
        (b"\xff\xfe\x00", "UTF-8"),
        (",".join(COLUMNS).encode() + b"\n", "got 0 of none"),
        (",".join(COLUMNS).encode() + b'\n"1 of 1,a\n', "as CSV"),
    ],
)
def test_a_file_that_is_no_audit_is_refused(tmp_path, data, text):
    (tmp_path / "x.csv").write_bytes(data)
    with pytest.raises(InputError, match=text):
        read_answers(tmp_path / "x.csv")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"x\.csv"):
        read_answers(tmp_path / "x.csv")
