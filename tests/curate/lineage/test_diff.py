"""Two subsets are compared by row, by value and by setting."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chained import N, chain, changed, dataset
from commandline import run

import curate
from curate.lineage import diff_rows
from curate.tables.digests import key_bytes
from scoring.errors import InputError


@pytest.fixture
def made(tmp_path):
    dataset(tmp_path)
    first, best = chain(tmp_path)
    other = curate.filter(
        first.subset, tmp_path / "other.parquet", keep_top="30%", column="kappa_a", where="unread > 3"
    )
    return tmp_path, best, other


def keys_of(path):
    return set(pq.read_table(path, columns=["key"]).column(0).to_pylist())


def test_rows_of_only_one_are_named_with_the_reason_of_the_other(made):
    folder, best, other = made
    difference = curate.diff(best.subset, other.subset, out=folder / "rows.parquet")
    first, two = keys_of(best.subset), keys_of(other.subset)
    assert (difference.rows, difference.in_both) == ((len(first), len(two)), len(first & two))
    assert (difference.only_first.rows, difference.only_second.rows) == (len(first - two), len(two - first))
    assert len(first - two) > 0
    decisions = {row["key"]: row for row in pq.read_table(other.decisions).to_pylist()}
    rows = pq.read_table(folder / "rows.parquet").to_pylist()
    assert {row["key"] for row in rows if row["only_in"] == "first"} == first - two
    for row in rows:
        if row["only_in"] == "first":
            noted = decisions[row["key"]]
            assert (row["step"], row["policy"]) == (2, "filter")
            assert (row["decision"], row["reason"], row["rule"]) == tuple(
                noted[name] for name in ("decision", "reason", "rule")
            )
    assert sum(difference.only_first.why.values()) == len(first - two)
    assert all(key in first - two and reason == decisions[key]["reason"] for key, reason in difference.only_first.named)
    assert not difference.identical


def test_a_row_that_an_earlier_step_dropped_is_reported_so(made):
    folder, _, other = made
    everything = curate.filter(folder / "scores.parquet", folder / "all.parquet", where="unread >= 0")
    difference = curate.diff(everything.subset, other.subset)
    dropped = [
        row for row in pq.read_table(folder / "unique.decisions.parquet").to_pylist() if row["decision"] == "drop"
    ]
    reasons = {why: n for why, n in difference.only_first.why.items() if why.startswith("dropped by step 1, dedup")}
    assert sum(reasons.values()) == len(dropped) > 0
    assert [setting for setting in difference.settings if setting.name == "step"]


def test_settings_that_differ_are_named_and_no_others(made):
    _, best, other = made
    difference = curate.diff(best.receipt, other.receipt)
    assert {setting.step for setting in difference.settings} == {"2 filter"}
    shown = run("diff", best.receipt, other.receipt).stdout
    assert "50%" in shown
    assert "30%" in shown
    assert "unread > 3" in shown
    again = curate.diff(best.receipt, best.subset)
    assert again.identical
    assert again.settings == []


def test_values_are_compared_by_key_in_any_order(made, tmp_path):
    _folder, best, _ = made
    table = pq.read_table(best.subset)
    order = np.random.default_rng(0).permutation(table.num_rows)
    pq.write_table(table.take(pa.array(order)), tmp_path / "shuffled.parquet")
    difference = curate.diff(best.subset, tmp_path / "shuffled.parquet")
    assert (difference.values.rows, difference.same_order, difference.identical) == (0, False, False)
    key = table.column("key")[4].as_py()
    changed(tmp_path / "shuffled.parquet", "kappa_a", int(np.flatnonzero(order == 4)[0]), 0.125)
    difference = curate.diff(best.subset, tmp_path / "shuffled.parquet")
    assert (difference.values.rows, difference.values.columns) == (1, {"kappa_a": 1})
    assert difference.values.named == [(key, "kappa_a", table.column("kappa_a")[4].as_py(), 0.125)]
    assert run("diff", best.subset, tmp_path / "shuffled.parquet").exit_code == 1
    assert json.loads(run("diff", best.subset, best.subset, "--json").stdout)["identical"] is True


def test_a_number_of_a_list_nan_nulls_and_nested_columns_are_compared(tmp_path):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8, dtype=np.float32)), 2)
    other = pa.FixedSizeListArray.from_arrays(pa.array(np.r_[np.arange(7), 9].astype(np.float32)), 2)
    rows = {
        "key": ["a", "b", "c", "d"],
        "x": [1.0, float("nan"), None, 2.0],
        "words": [["u"], [], None, ["v", "w"]],
        "vector": lists,
    }
    pq.write_table(pa.table(rows), tmp_path / "one.parquet")
    pq.write_table(pa.table({**rows, "vector": other}), tmp_path / "two.parquet")
    pq.write_table(
        pa.table({**rows, "words": [["u"], [], None, ["v", "x"]], "x": [1.0, None, None, 2.0]}),
        tmp_path / "three.parquet",
    )
    shutil.copy(tmp_path / "one.parquet", tmp_path / "same.parquet")
    assert curate.diff(tmp_path / "one.parquet", tmp_path / "same.parquet").identical
    assert curate.diff(tmp_path / "one.parquet", tmp_path / "two.parquet").values.columns == {"vector": 1}
    assert curate.diff(tmp_path / "one.parquet", tmp_path / "three.parquet").values.columns == {"x": 1, "words": 1}


def test_columns_and_types_that_only_one_has_are_named(tmp_path):
    pq.write_table(pa.table({"key": ["a"], "x": [1], "y": [1]}), tmp_path / "one.parquet")
    pq.write_table(pa.table({"key": ["a"], "x": [1.0], "z": [1]}), tmp_path / "two.parquet")
    difference = curate.diff(tmp_path / "one.parquet", tmp_path / "two.parquet")
    assert difference.columns == {"x": ("int64", "double"), "y": ("int64", None), "z": (None, "int64")}
    assert "column y: int64 | not there" in run("diff", tmp_path / "one.parquet", tmp_path / "two.parquet").stdout


def test_why_is_found_whatever_the_order_against_a_slow_restatement(made):
    _folder, _best, other = made
    steps = list(reversed(list(diff_rows_links(other.receipt))))
    keys = [f"{n:03}.png" for n in np.random.default_rng(3).permutation(N)] + ["unknown"]
    hashes = diff_rows.tie_breaks(key_bytes(pa.array(keys)))
    why = diff_rows.why_missing(hashes, steps)
    for at, key in enumerate(keys):
        expected = None
        for number, step in enumerate(steps, 1):
            row = {each["key"]: each for each in pq.read_table(step.output("decisions")).to_pylist()}.get(key)
            if row is not None and row["decision"] != "keep":
                expected = number
                break
        assert why["step"][at] == expected


def diff_rows_links(receipt):
    from curate.policies.chain import Searched, links

    return links(receipt, Searched(receipt.parent))


def test_empty_tables_and_mistakes(made, tmp_path):
    _folder, best, _ = made
    pq.write_table(pq.read_table(best.subset).slice(0, 0), tmp_path / "none.parquet")
    difference = curate.diff(best.subset, tmp_path / "none.parquet")
    assert (difference.in_both, difference.only_first.rows, difference.only_first.why) == (
        0,
        best.kept,
        {"no receipt says why": best.kept},
    )
    assert curate.diff(tmp_path / "none.parquet", tmp_path / "none.parquet").identical
    pq.write_table(pa.table({"key": ["a", "a"]}), tmp_path / "twice.parquet")
    with pytest.raises(InputError, match=r"such as .a."):
        curate.diff(best.subset, tmp_path / "twice.parquet")
    with pytest.raises(InputError, match=r"ends in \.parquet"):
        curate.diff(best.subset, best.subset, out="rows.csv")
    best.subset.unlink()
    with pytest.raises(InputError, match="no longer"):
        curate.diff(best.receipt, tmp_path / "none.parquet")


def test_columns_of_lists_and_decisions_of_yours_are_compared(tmp_path):
    for name, decided in (("old", 1), ("new", 2)):
        columns = {
            "key": ["a", "b"],
            "decision": [["x"], ["x"]],
            "rule": [None, "r"],
            "reason": ["", ""],
            "votes": [[1, None], [decided, None]],
        }
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    difference = curate.diff(tmp_path / "old.parquet", tmp_path / "new.parquet")
    assert (difference.values.columns, difference.decisions.rows) == ({"votes": 1}, 0)


def test_decisions_without_a_reason_are_named(tmp_path):
    for name, decided in (("old", "keep"), ("new", "drop")):
        nulls = pa.array([None], pa.string())
        columns = {"key": ["a"], "decision": [decided], "rule": nulls, "reason": nulls}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    ((key, line),) = curate.diff(tmp_path / "old.parquet", tmp_path / "new.parquet").decisions.named
    assert (key, line.split(":")[0]) == ("a", "keep | drop")
