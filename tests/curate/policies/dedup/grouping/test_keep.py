"""Which image is kept of several that are the same."""

import numpy as np
import pyarrow as pa
import pytest
from made import write_table

from curate.policies.decided import KEEP
from curate.policies.dedup.decide import decide_duplicates
from curate.policies.dedup.grouping.keep import DEFAULT, keep_order, parse_keep, preferred_rows
from curate.policies.dedup.request import DedupRequest
from curate.tables.keys import key_ranks
from curate.tables.needs import Needs
from curate.tables.rows import read_rows
from curate.tables.table import open_table
from scoring.errors import InputError

COLUMNS = {
    "label": pa.array(["cat", None, "dog", None, "cat", None]),
    "width": pa.array([10, 20, 20, None, 5, 10], pa.int32()),
    "height": pa.array([10, 10, 10, 10, 5, 10], pa.int32()),
    "n_bytes": pa.array([300, 800, 100, 400, 900, 300], pa.int64()),
    "kappa_a": pa.array([5.0, 7.0, float("nan"), 9.0, None, 5.0], pa.float32()),
    "unc_b": pa.array([0.5, 0.1, 0.9, None, 0.2, 0.5], pa.float32()),
    "year": pa.array([2001, 2003, 2002, 2003, None, 2001], pa.int16()),
}


@pytest.fixture
def table(tmp_path):
    return open_table(write_table(tmp_path / "scores.parquet", COLUMNS))


def order_of(table, text, *, label="label", protect=None):
    criteria = parse_keep(text, table, label=label)
    numbers = tuple(dict.fromkeys(name for each in criteria for name in each.numbers))
    present = tuple(dict.fromkeys(name for each in criteria for name in each.present))
    conditions = (("--protect", protect),) if protect else ()
    rows = read_rows(table, Needs(numbers=numbers, present=present, conditions=conditions))
    return keep_order(rows, criteria, key_ranks(table), rows.holds(protect)).tolist()


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("labelled", [(0, 2, 4), (1, 3, 5)]),
        ("largest", [(1, 2), (0, 5), (4,), (3,)]),
        ("least-compressed", [(4,), (1,), (0, 5), (2,), (3,)]),  # 36, 4, 3, 0.5 bytes a pixel, none
        ("certain", [(3,), (1,), (0, 5), (2, 4)]),  # NaN and null are last
        ("max:year", [(1, 3), (2,), (0, 5), (4,)]),
        ("min:year", [(0, 5), (2,), (1, 3), (4,)]),
        ("max:unc_b", [(2,), (0, 5), (4,), (1,), (3,)]),
        ("min:unc_b", [(1,), (4,), (0, 5), (2,), (3,)]),
        ("labelled,largest", [(2,), (0,), (4,), (1,), (5,), (3,)]),
        ("largest,labelled", [(2,), (1,), (0,), (5,), (4,), (3,)]),
        ("max:year, least-compressed", [(1,), (3,), (2,), (0, 5), (4,)]),
    ],
)
def test_each_criterion_puts_the_best_first_rows_without_a_value_last_and_ties_by_the_key(table, text, groups):
    assert order_of(table, text) == [row for group in groups for row in group]


@pytest.mark.parametrize("reverse", [False, True])
def test_of_equal_rows_the_shorter_key_comes_first_then_the_smaller_whatever_the_order_of_the_rows(tmp_path, reverse):
    ordered = ["b.jpg", "é.jpg", "a (1).jpg", "b (1).jpg", "Copy of b.jpg"]  # é is two bytes
    keys = ordered[::-1] if reverse else ordered
    table = open_table(write_table(tmp_path / "keys.parquet", {"key": keys, "width": [3] * 5, "height": [3] * 5}))
    assert [keys[row] for row in order_of(table, "largest")] == ordered


def test_a_file_is_kept_before_links_to_it_whatever_their_names(tmp_path):
    keys = ["a.jpg", "long name.jpg", "b/long name.jpg", "c.jpg", "other.jpg", "d.jpg"]
    files = ["long name.jpg", "long name.jpg", "b/long name.jpg", "b/long name.jpg", "other.jpg", "elsewhere.jpg"]
    keys += ["x.jpg", "cats/x.jpg", "e.jpg", "./b%FF.jpg"]
    files += ["cats/x.jpg", "cats/x.jpg", "b%FF.jpg", "b%FF.jpg"]
    columns = {"key": keys, "uri": [f"/p/{file}" for file in files], "sha256": list("xxxxyyzzvv")}
    table = open_table(write_table(tmp_path / "links.parquet", columns))
    decided = decide_duplicates(table, DedupRequest({"bytes": None}), [])
    assert [keys[row] for row in np.flatnonzero(decided.outcome == KEEP)] == ["long name.jpg", "d.jpg", *keys[-3::2]]


def test_the_original_is_kept(tmp_path):
    keys = [f"{name}{number}.jpg" for number in range(20) for name in ("Copy of ", "")]
    table = open_table(
        write_table(tmp_path / "keys.parquet", {"key": keys, "sha256": [f"{n // 2}" for n in range(40)]})
    )
    request = DedupRequest({"bytes": 1.0})
    assert [keys[row] for row in np.flatnonzero(decide_duplicates(table, request, []).outcome == KEEP)] == keys[1::2]
    rule = request.to_json()
    assert DedupRequest.from_json(rule) == request
    del rule["ties"]  # as in a receipt of a version that kept the lower hash
    with pytest.raises(InputError, match=r"run .*receipt again"):
        DedupRequest.from_json(rule)


def test_last_digits_of_a_score_do_not_decide_between_equal_files(tmp_path):
    columns = {
        "key": ["Copy of a", "a", "b", "long b", "c", "longer c"],
        "sha256": ["a", "a", "b", "b", None, None],
        "kappa_x": [5.0001, 5.0, None, 7.0, 1.0, 2.0],
        "phash": pa.array([1, 1, 2, 2, 3, 3], pa.uint64()),
    }
    table = open_table(write_table(tmp_path / "scores.parquet", columns))
    request = DedupRequest({"bytes": 1.0, "hash": 0.0})
    duplicates = decide_duplicates(table, request, parse_keep("certain", table, label=None))
    kept = [columns["key"][row] for row in np.flatnonzero(duplicates.outcome == KEEP)]
    assert kept == ["a", "b", "longer c"]  # c is no equal file, and less certain


@pytest.mark.parametrize("text", ["", " , ", ","])
def test_an_empty_list_of_criteria_is_refused(table, text):
    with pytest.raises(InputError, match=r"--keep .*leave it out"):
        order_of(table, text)


def test_certain_by_an_uncertainty_puts_the_lowest_first(tmp_path):
    columns = {name: COLUMNS[name] for name in ("unc_b",)}
    table = open_table(write_table(tmp_path / "unc.parquet", columns))
    assert order_of(table, "certain") == [1, 4, 0, 5, 2, 3]
    assert parse_keep("certain", table, label=None)[0].typed == "certain (unc_b)"


def test_the_default_is_labels_then_what_was_lost_then_certainty(table):
    criteria = parse_keep(DEFAULT, table, label="label")
    assert [each.typed.split()[0] for each in criteria] == ["labelled", "least-lost", "least-compressed", "certain"]
    assert order_of(table, DEFAULT) == [2, 0, 4, 1, 5, 3]


def test_the_default_takes_only_what_the_table_has_columns_for(tmp_path):
    for names, expected in (
        ((), []),
        (("label",), ["labelled"]),
        (("width", "height"), ["least-lost"]),
        (("width", "n_bytes"), []),
        (("unc_b",), ["certain (unc_b)"]),
        (("height", "n_bytes", "width"), ["least-lost", "least-compressed"]),
    ):
        columns = {"other": pa.array(range(6))} | {name: COLUMNS[name] for name in names}
        table = open_table(write_table(tmp_path / f"{len(names)}{'-'.join(names)}.parquet", columns))
        label = "label" if "label" in names else None
        assert [each.typed for each in parse_keep(DEFAULT, table, label=label)] == expected


def test_junk_comes_last_and_a_row_without_p_junk_is_no_junk(tmp_path):
    columns = {"width": [9, 8, 7, 6], "height": [9, 8, 7, 6], "p_junk": [0.9, 0.5, None, 0.51]}
    table = open_table(write_table(tmp_path / "junk.parquet", columns))
    assert order_of(table, "no-junk,largest") == [1, 2, 0, 3]
    assert parse_keep(DEFAULT, table, label=None)[0].typed == "no-junk"


def test_preferred_rows_come_before_the_criteria_the_first_pattern_first(table):
    rows = read_rows(table, Needs(numbers=("width", "height")))
    criteria = parse_keep("largest", table, label=None)
    preferred, ties = preferred_rows(table, ["k4", "k[03]"]), key_ranks(table)
    assert preferred.tolist() == [1, 2, 2, 1, 0, 2]
    assert keep_order(rows, criteria, ties, None, preferred).tolist() == [4, 0, 3, 1, 2, 5]
    protected = np.array([False, False, True, False, False, False])
    assert keep_order(rows, criteria, ties, protected, preferred).tolist() == [2, 4, 0, 3, 1, 5]
    assert preferred_rows(table, []) is None


def test_a_pattern_that_matches_no_key_is_named_with_a_key(table):
    with pytest.raises(InputError, match=r"'sorted/\*' matches no .*'k0'"):
        preferred_rows(table, ["k*", "sorted/*"])


def test_protected_rows_come_first_in_the_order_of_the_criteria(table):
    order = order_of(table, "largest", protect="year = 2001 or width = 5")
    assert order == [0, 5, 4, 1, 2, 3]


def test_a_row_whose_condition_is_unknown_is_not_protected(table):
    assert order_of(table, "largest", protect="year > 2002")[:2] == [1, 3]
    assert order_of(table, "largest", protect="year > 2002")[-1] == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("larges", "least-lost, least-lossy, certain"),
        ("larges", "did you mean 'largest'"),
        ("max:yaer", "did you mean 'year'"),
        ("min:", "has no column ''"),
        ("largest,,oldest", "got 'oldest'"),
    ],
)
def test_an_unknown_criterion_or_column_is_named(table, text, words):
    with pytest.raises(InputError) as caught:
        parse_keep(text, table, label=None)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_requested_criterion_needs_its_columns(tmp_path):
    table = open_table(write_table(tmp_path / "bare.parquet", {"text": pa.array(["a", "b"])}))
    for text, words in (("largest", "width"), ("labelled", "choose it with --label"), ("certain", "column with max:")):
        with pytest.raises(InputError, match=words):
            parse_keep(text, table, label=None)


def test_several_scores_leave_certain_out_of_the_default_and_are_named_when_it_is_requested(tmp_path):
    columns = {"kappa_a": COLUMNS["kappa_a"], "kappa_b": COLUMNS["kappa_a"]}
    table = open_table(write_table(tmp_path / "two.parquet", columns))
    assert parse_keep(DEFAULT, table, label=None) == []
    with pytest.raises(InputError, match=r"kappa_a, kappa_b; .*max:COLUMN"):
        parse_keep("certain", table, label=None)


def test_a_criterion_on_text_is_refused_with_its_type(table):
    with pytest.raises(InputError, match=r"'label' .*got string"):
        order_of(table, "max:label")
