"""Rules that use an end of intervals: the three sides of a cut, against a restatement row by row."""

import json
import math
import subprocess
import sys

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from commandline import run
from hypothesis import given, settings
from hypothesis import strategies as st

import curate
from curate.commands.filter import filter_notes
from curate.policies.filter.rules import (
    DROP,
    FAILED,
    KEEP,
    UNDECIDED,
    DropBottom,
    KeepTop,
    Maximum,
    Minimum,
    decide,
    rule_from_json,
    rule_to_json,
    typed,
)
from curate.policies.verify import verify
from curate.tables.digests import tie_breaks
from curate.tables.rows import Codes, Numbers, Rows
from curate.tables.writer import TableWriter
from scoring.errors import InputError

NAN = float("nan")
NAMES = {KEEP: "keep", DROP: "drop", UNDECIDED: "undecided", FAILED: "failed"}


def rows_of(intervals, column, labels=None):
    """Rows with (lower, score, upper) each; None is no value."""
    keys = [f"k{i}" for i in range(len(intervals))]
    exact = {}
    for at, end in enumerate(("_lower", "", "_upper")):
        values = [each[at] for each in intervals]
        valid = np.array([value is not None and not math.isnan(value) for value in values], bool)
        numbers = np.array([value if good else 0 for value, good in zip(values, valid, strict=True)], np.float32)
        exact[column + end] = Numbers(numbers, valid)
    names = sorted(set(labels or []))
    codes = np.array([names.index(label) for label in labels or []], np.int32)
    groups = {"label": Codes(codes, names)} if labels else {}
    return Rows(
        ok=np.ones(len(keys), bool), hashes=tie_breaks([key.encode() for key in keys]), exact=exact, groups=groups
    )


def outcomes(rule, intervals, column="kappa_a", labels=None):
    return [NAMES[int(code)] for code in decide([rule], rows_of(intervals, column, labels)).outcome]


def hash_of(row):
    return xxhash.xxh64_intdigest(f"k{row}".encode())


def three_sides(surely, perhaps):
    return "keep" if surely else "undecided" if perhaps else "drop"


def slow_rank(intervals, k, by, *, high):
    """An amount by an end, from its definition: the k best by that end, and where all other ends lie."""
    sign = 1 if high else -1
    strict = [sign * (each[0] if high else each[2]) for each in intervals]
    lenient = [sign * (each[2] if high else each[0]) for each in intervals]
    by_strict = (by == "lower") == high
    named = strict if by_strict else lenient
    order = sorted(range(len(named)), key=lambda i: (named[i], hash_of(i)), reverse=True)
    stays = set(order[:k])
    if len(stays) == len(named):
        return ["keep"] * len(named)
    cut = min((named[i] for i in stays), default=math.inf)
    if by_strict:
        return [three_sides(i in stays, lenient[i] >= cut and lenient[i] > strict[i]) for i in range(len(named))]
    return [three_sides(i in stays and strict[i] >= cut, i in stays) for i in range(len(named))]


whole = st.integers(0, 8)
interval = st.tuples(whole, whole, whole).map(lambda three: tuple(float(v) for v in sorted(three)))
datasets = st.lists(interval, min_size=1, max_size=25)


@given(datasets, st.integers(-1, 9), st.sampled_from(["lower", "upper"]))
@settings(max_examples=150, deadline=None)
def test_a_given_cut_keeps_what_lies_beyond_drops_what_lies_before_and_leaves_what_it_crosses(dataset, cut, by):
    least = [three_sides(low >= cut, high >= cut) for low, _, high in dataset]
    assert outcomes(Minimum(cut, "kappa_a", by=by), dataset) == least
    most = [three_sides(high <= cut, low <= cut) for low, _, high in dataset]
    assert outcomes(Maximum(cut, "unc_a", by=by), dataset, "unc_a") == most


@given(datasets, st.integers(-1, 9))
@settings(max_examples=60, deadline=None)
def test_a_bound_alone_is_a_filter_on_its_column(dataset, cut):
    for at, by in ((0, "lower"), (2, "upper")):
        alone = ["keep" if each[at] >= cut else "drop" for each in dataset]
        assert outcomes(Minimum(cut, "kappa_a", by=by, crossing="bound"), dataset) == alone
        ends = [(each[at],) * 3 for each in dataset]
        ranked = outcomes(KeepTop("40%", "kappa_a", by=by, crossing="bound"), dataset)
        assert ranked == outcomes(KeepTop("40%", "kappa_a"), ends)


@given(datasets, st.integers(0, 25), st.sampled_from(["lower", "upper"]), st.sampled_from(["kappa_a", "unc_a"]))
@settings(max_examples=250, deadline=None)
def test_an_amount_by_an_end_is_its_definition(dataset, k, by, column):
    expected = slow_rank(dataset, min(k, len(dataset)), by, high=column == "kappa_a")
    if k:
        assert outcomes(KeepTop(k, column, by=by), dataset, column) == expected
    if k < len(dataset):
        assert outcomes(DropBottom(len(dataset) - k, column, by=by), dataset, column) == expected


@given(datasets, st.integers(1, 25), st.sampled_from(["lower", "upper"]))
@settings(max_examples=100, deadline=None)
def test_by_the_strict_end_as_many_stay_as_asked_and_by_the_lenient_one_as_many_go(dataset, k, by):
    k = min(k, len(dataset))
    found = outcomes(KeepTop(k, "kappa_a", by=by), dataset)
    if by == "lower":
        assert found.count("keep") == k
    else:
        assert found.count("drop") == len(dataset) - k


@given(st.lists(whole, min_size=1, max_size=25), st.integers(1, 25), st.sampled_from(["lower", "upper"]))
@settings(max_examples=100, deadline=None)
def test_intervals_without_width_decide_as_the_scores_do(values, k, by):
    dataset = [(float(value),) * 3 for value in values]
    for column in ("kappa_a", "unc_a"):
        for kind, amount in ((KeepTop, k), (DropBottom, "30%"), (Minimum, 4), (Maximum, 4)):
            assert outcomes(kind(amount, column, by=by), dataset, column) == outcomes(
                kind(amount, column), dataset, column
            )


@given(st.lists(st.tuples(interval, st.sampled_from("xyz")), min_size=1, max_size=30), st.integers(1, 6))
@settings(max_examples=80, deadline=None)
def test_groups_are_judged_each_by_itself(rows, k):
    dataset, labels = [row[0] for row in rows], [row[1] for row in rows]
    for by in ("lower", "upper"):
        found = outcomes(KeepTop(k, "unc_a", per="label", by=by), dataset, "unc_a", labels)
        for label in set(labels):
            mine = [i for i, each in enumerate(labels) if each == label]
            stays = [found[i] for i in mine]
            if by == "upper":  # strict, of unc
                assert stays.count("keep") == min(k, len(mine))
            else:
                assert stays.count("drop") == max(len(mine) - k, 0)


def test_a_row_without_an_end_is_undecided_and_does_not_compete():
    dataset = [(1.0, 2.0, 3.0), (None, 9.0, 9.0), (9.0, 9.0, NAN), (4.0, None, 9.0), (5.0, 5.0, 6.0)]
    assert outcomes(KeepTop(1, "kappa_a", by="lower"), dataset) == ["drop", *["undecided"] * 3, "keep"]
    assert outcomes(Minimum(0, "kappa_a", by="upper"), dataset) == ["keep", *["undecided"] * 3, "keep"]
    assert outcomes(Minimum(0, "kappa_a", by="upper", crossing="bound"), dataset)[1:4] == ["undecided"] * 3


def test_ends_that_are_swapped_are_refused_with_the_row():
    with pytest.raises(InputError, match=r"kappa_a_lower of at most kappa_a_upper, got 3 and 1 in row 1"):
        outcomes(Minimum(0, "kappa_a", by="lower"), [(1.0, 2.0, 3.0), (3.0, 2.0, 1.0)])


def test_a_rule_is_typed_and_written_with_its_end_and_an_older_receipt_is_read_without():
    rule = KeepTop("80%", "kappa_a", by="lower", crossing="bound")
    assert typed(rule) == "--keep-top 80% --by lower --crossing bound"
    assert rule_from_json(rule_to_json(rule)) == rule
    plain = {"rule": "min", "bound": 3, "column": "kappa_a", "per": None}
    assert rule_to_json(Minimum(3, "kappa_a")) == plain
    assert rule_from_json(plain) == Minimum(3, "kappa_a")


@pytest.mark.parametrize(
    ("named", "words"),
    [({"by": "middle"}, "middle"), ({"by": "lower", "crossing": "drop"}, "drop"), ({"crossing": "bound"}, "add --by")],
)
def test_an_end_that_is_none_is_refused(named, words):
    with pytest.raises(InputError, match=words):
        Minimum(3, "kappa_a", **named)


def table_at(path, n=120, *, seed=0, order=None, **changed):
    """A table with intervals: widths of all sizes, some failed, some without an end."""
    generator = np.random.default_rng(seed)
    score = np.round(generator.gamma(4, 200, n), 1)
    down, up = generator.uniform(0, 200, n), generator.uniform(0, 200, n)
    lower = [None if i % 31 == 5 else float(v) for i, v in enumerate(score - down)]
    values = {
        "key": [f"img/{i:04}.jpg" for i in range(n)],
        "status": ["corrupt" if i % 17 == 3 else "ok" for i in range(n)],
        "kappa_x": score,
        "kappa_x_lower": lower,
        "kappa_x_upper": score + up,
        "unc_local": generator.random(n),
        **changed,
    }
    kinds = {"key": pa.string(), "status": pa.string()}
    schema = pa.schema([(name, kinds.get(name, pa.float32())) for name in values])
    table = pa.table([pa.array(values[field.name], field.type) for field in schema], schema=schema)
    if order is not None:
        table = table.take(pa.array(order))
    about = {"kind": "scores", "model": {"method": "x"}, "intervals": {"views": 8, "coverage": 7 / 9}}
    with TableWriter(path, schema, about) as writer:
        writer.write(table)
    return path


@pytest.fixture
def scored(tmp_path):
    return table_at(tmp_path / "scores.parquet")


def test_undecided_rows_are_listed_apart_with_all_columns_and_the_counts_add_up(scored, tmp_path):
    result = curate.filter(scored, tmp_path / "kept.parquet", min=800, column="kappa_x", by="lower")
    decisions = pl.read_parquet(tmp_path / "kept.decisions.parquet")
    assert decisions["decision"].to_list() == [
        "failed" if row["status"] != "ok"
        else "undecided" if row["kappa_x_lower"] is None
        else three_sides(row["kappa_x_lower"] >= 800, row["kappa_x_upper"] >= 800)
        for row in pq.read_table(scored).to_pylist()
    ]  # fmt: skip
    counts = dict(decisions["decision"].value_counts().iter_rows())
    assert counts == {
        "keep": result.kept,
        "drop": result.dropped,
        "undecided": result.undecided,
        "failed": result.failed,
    }
    assert sum(counts.values()) == result.n_rows == 120
    assert sum(result.undecided_by.values()) == result.undecided
    assert set(result.undecided_by) == {"--min 800 --by lower", "--min 800 --by lower: interval crosses the cut"}
    apart = pq.read_table(tmp_path / "kept.undecided.parquet")
    wanted = decisions.filter(pl.col("decision") == "undecided")["key"].to_list()
    rows = pq.read_table(scored).filter(pa.compute.is_in(pq.read_table(scored)["key"], pa.array(wanted)))
    assert apart.replace_schema_metadata(None).equals(rows.replace_schema_metadata(None))
    assert result.undecided_rows == tmp_path / "kept.undecided.parquet"
    receipt = json.loads((tmp_path / "kept.receipt.json").read_text())
    assert receipt["outputs"]["undecided_rows"]["n_rows"] == result.undecided


def test_reasons_name_score_cut_and_interval(scored, tmp_path):
    curate.filter(scored, tmp_path / "kept.parquet", min=800, column="kappa_x", by="lower")
    for row in pl.read_parquet(tmp_path / "kept.decisions.parquet").iter_rows(named=True):
        if row["decision"] == "failed" or row["lower"] is None:
            assert row["reason"].startswith("not scored") or row["reason"] == "kappa_x has no interval (null or NaN)"
            assert row["score"] is None
            continue
        ends = f"interval {row['lower']:.6g} to {row['upper']:.6g}"
        side = "above" if row["score"] > 800 else "below"
        assert (
            row["reason"]
            == {
                "keep": f"kappa_x {row['score']:.6g}: all of its {ends} is at least the cut 800",
                "drop": f"kappa_x {row['score']:.6g}: all of its {ends} is below the cut 800",
                "undecided": f"kappa_x {row['score']:.6g} is {side} the cut 800, but its {ends} crosses it",
            }[row["decision"]]
        )
        assert row["margin"] == pytest.approx(row["lower"] - 800, abs=1e-3)
        assert row["threshold"] == 800


def test_margins_are_of_the_end_that_was_named_and_negative_only_where_a_row_does_not_stay(scored, tmp_path):
    rules = [
        KeepTop("60%", "kappa_x", by="lower"), KeepTop("60%", "kappa_x", by="upper"),
        Maximum(900, "kappa_x", by="upper"),
        DropBottom("30%", "kappa_x", by="upper", crossing="bound"), KeepTop("100%", "kappa_x", by="upper"),
    ]  # fmt: skip
    for number, rule in enumerate(rules):
        out = tmp_path / f"kept{number}.parquet"
        curate.filter(scored, out, [rule])
        decisions = pl.read_parquet(out.with_suffix(".decisions.parquet")).filter(pl.col("score").is_not_null())
        named = decisions["lower"] if rule.by == "lower" else decisions["upper"]
        sign = -1 if isinstance(rule, Maximum) else 1
        assert (sign * (named - decisions["threshold"]) - decisions["margin"]).abs().max() < 1e-3
        assert (decisions.filter(pl.col("decision") == "keep")["margin"] >= 0).all()
        assert (decisions.filter(pl.col("decision") == "drop")["margin"] <= 0).all()


def test_a_table_in_another_order_gives_the_same_decisions_and_verify_finds_them_so(tmp_path):
    order = np.random.default_rng(1).permutation(120).tolist()
    found = []
    for name, given_order in (("a", None), ("b", order)):
        table_at(tmp_path / f"{name}.parquet", order=given_order)
        curate.filter(
            tmp_path / f"{name}.parquet",
            tmp_path / f"{name}-kept.parquet",
            keep_top="50%",
            column="kappa_x",
            by="lower",
        )
        found.append(pl.read_parquet(tmp_path / f"{name}-kept.decisions.parquet").sort("key"))
    assert found[0].equals(found[1])
    assert verify(tmp_path / "a-kept.receipt.json").identical
    assert verify(tmp_path / "a-kept.receipt.json", tmp_path / "b.parquet").identical


def test_a_changed_end_and_a_changed_list_are_found_by_verify(scored, tmp_path):
    curate.filter(scored, tmp_path / "kept.parquet", min=800, column="kappa_x", by="upper")
    receipt = tmp_path / "kept.receipt.json"
    assert verify(receipt).identical
    listed = tmp_path / "kept.undecided.parquet"
    before = listed.read_bytes()
    pq.write_table(pq.read_table(listed).slice(1), listed)
    assert not verify(receipt).identical
    listed.write_bytes(before)
    table = pq.read_table(scored)
    ends = table["kappa_x_upper"].to_pylist()
    ends[0] = ends[0] + 5000
    pq.write_table(table.set_column(4, "kappa_x_upper", pa.array(ends, pa.float32())), scored)
    assert not verify(receipt).identical


def test_nothing_is_listed_apart_by_scores_and_an_empty_list_is_written_by_intervals(scored, tmp_path):
    result = curate.filter(scored, tmp_path / "a.parquet", min=800, column="kappa_x")
    assert result.undecided_rows is None
    assert not (tmp_path / "a.undecided.parquet").exists()
    assert "lower" not in pq.read_schema(tmp_path / "a.decisions.parquet").names
    curate.filter(
        scored, tmp_path / "b.parquet", where="kappa_x_lower is not null", column="kappa_x", min=-9e9, by="lower"
    )
    assert pq.read_table(tmp_path / "b.undecided.parquet")["kappa_x"].null_count == 0
    for name in ("b.parquet", "b.decisions.parquet", "b.receipt.json"):
        (tmp_path / name).unlink()
    with pytest.raises(InputError, match=r"b.undecided.parquet.*exists"):
        curate.filter(scored, tmp_path / "b.parquet", min=1, column="kappa_x", by="lower")


def test_a_list_of_an_earlier_filter_is_never_left_beside_another_receipt(scored, tmp_path):
    out = tmp_path / "kept.parquet"
    first = curate.filter(scored, out, min=800, column="kappa_x", by="lower")
    with pytest.raises(InputError, match=r"kept.undecided.parquet is of an earlier filter by intervals.*-o"):
        curate.filter(scored, out, min=800, column="kappa_x", overwrite=True)
    assert verify(first.receipt).identical
    curate.filter(scored, out, min=700, column="kappa_x", by="upper", overwrite=True)
    assert verify(first.receipt).identical


@pytest.mark.parametrize("n", [0, 1])
def test_tables_of_no_row_and_of_one(tmp_path, n):
    table_at(tmp_path / "s.parquet", n)
    for by in ("lower", "upper"):
        result = curate.filter(
            tmp_path / "s.parquet", tmp_path / f"{by}.parquet", keep_top="50%", column="kappa_x", by=by
        )
        assert (result.n_rows, result.kept) == (n, n)


def test_a_table_without_the_columns_is_one_line_that_says_what_to_do(scored, tmp_path):
    bare = pq.read_table(scored).drop_columns(["kappa_x_lower", "kappa_x_upper"])
    pq.write_table(bare, tmp_path / "bare.parquet")
    done = run("filter", tmp_path / "bare.parquet", "--min", "3", "--by", "lower", "--column", "kappa_x", "--dry-run")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "kappa_x_lower and kappa_x_upper" in done.stderr
    assert "curate score --views 8" in done.stderr
    done = run("filter", scored, "--keep-top", "50%", "--by", "lower", "--dry-run")
    assert "unc_local" in done.stderr
    assert "compares an image with others" in done.stderr
    assert "--column (kappa_x)" in done.stderr
    done = run("filter", scored, "--min", "1", "--column", "kappa_y", "--by", "lower", "--dry-run")
    assert "no column 'kappa_y'" in done.stderr
    done = run("filter", scored, "--where", "kappa_x > 3", "--by", "lower", "--dry-run")
    assert "--by lower is for one of" in done.stderr


def test_ends_that_are_text_are_refused(scored, tmp_path):
    table = pq.read_table(scored)
    ends = pa.array([str(value) for value in table["kappa_x_upper"].to_pylist()])
    at = table.schema.names.index("kappa_x_upper")
    pq.write_table(table.set_column(at, "kappa_x_upper", ends), tmp_path / "text.parquet")
    with pytest.raises(InputError, match="expected numbers in column 'kappa_x_upper'"):
        curate.filter(tmp_path / "text.parquet", None, min=3, column="kappa_x", by="lower", dry_run=True)


def test_an_end_counts_for_the_rules_after_it_or_for_all_where_it_stands_last(scored, tmp_path):
    first = run(
        "filter", scored, "--column", "kappa_x", "--min", "500", "--by", "upper", "--max", "1200", "--dry-run", "--json"
    )
    rules = json.loads(first.stdout)["dropped_by"]
    assert list(rules) == ["--min 500", "--max 1200 --by upper"]
    last = run(
        "filter", scored, "--min", "500", "--max", "1200", "--by", "upper", "--column", "kappa_x", "--dry-run", "--json"
    )
    assert list(json.loads(last.stdout)["dropped_by"]) == ["--min 500 --by upper", "--max 1200 --by upper"]


def test_the_command_says_which_end_it_goes_by_and_what_it_holds(scored, tmp_path):
    said = run(
        "filter", scored, "--keep-top", "50%", "--column", "kappa_x", "--by", "upper", "-o", tmp_path / "k.parquet"
    )
    text = said.stderr
    assert "uses kappa_x_upper, the lenient end" in text
    assert "over 8 views" in text
    assert "77.8%" in text
    assert "interval crosses the cut" in text
    assert "k.undecided.parquet" in text
    result = curate.filter(scored, None, min=3, column="kappa_x", by="lower", crossing="bound", dry_run=True)
    assert any("are what kappa_x_lower says" in note for note in filter_notes(result))


def test_a_dry_run_shows_undecided_rows_whose_score_is_nearest_to_the_cut(scored):
    result = curate.filter(scored, None, min=800, column="kappa_x", by="lower", dry_run=True)
    shown = [each["key"] for each in result.examples if each["why"] == "undecided"]
    rows = [row for row in pq.read_table(scored).to_pylist() if row["status"] == "ok" and row["kappa_x_lower"]]
    crossing = [row for row in rows if row["kappa_x_lower"] < 800 <= row["kappa_x_upper"]]
    assert shown == [row["key"] for row in sorted(crossing, key=lambda row: abs(row["kappa_x"] - 800))[:3]]
    assert (
        "would be undecided"
        in run("filter", scored, "--min", 800, "--column", "kappa_x", "--by", "lower", "--dry-run").stdout
    )


def test_a_filter_by_intervals_loads_no_torch(scored):
    code = (
        "import sys, curate\n"
        f"curate.filter({str(scored)!r}, None, min=800, column='kappa_x', by='lower', dry_run=True)\n"
        "print([name for name in ('torch', 'timm') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
