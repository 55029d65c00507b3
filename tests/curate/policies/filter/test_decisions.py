"""What a filter leaves behind: subset, decisions, receipt, and their verification."""

import json
import math

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curate
from curate.commands.filter import filter_notes
from curate.commands.verify import lines_of
from curate.policies.filter.amounts import DropBottom, KeepTop
from curate.policies.filter.named import Maximum, Minimum, Where
from curate.policies.verify import verify
from curate.tables.table import embedding_field, open_table
from curate.tables.writer import TableWriter
from curate.training.info import info
from scoring.errors import InputError

NAN = float("nan")


def score_table(path, n=200, *, order=None, **changed):
    """Scores with every kind of row: n keys, some failed, some without a value, many ties."""
    values = {
        "key": [f"img/{i:04}.jpg" for i in range(n)],
        "label": [("cat", "dog", None)[i % 3] for i in range(n)],
        "width": [100 + i for i in range(n)],
        "status": ["truncated" if i % 20 == 7 else "ok" for i in range(n)],
        "error": ["cut short" if i % 20 == 7 else None for i in range(n)],
        "kappa_a": [None if i % 20 == 7 else NAN if i % 30 == 4 else float(i * 7 % 23) for i in range(n)],
        "unc_b": [1.0 + i % 11 for i in range(n)],
        **changed,
    }
    field = embedding_field(3)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(3 * n, dtype=np.float16)), type=field.type)
    schema = pa.schema(
        [
            ("key", pa.string()),
            ("label", pa.string()),
            ("width", pa.int32()),
            ("status", pa.string()),
            ("error", pa.string()),
            ("kappa_a", pa.float32()),
            ("unc_b", pa.float32()),
            field,
        ]
    )
    arrays = [pa.array(values[name], schema.field(name).type) for name in schema.names[:-1]]
    table = pa.table([*arrays, lists], schema=schema)
    if order is not None:
        table = table.take(pa.array(order))
    with TableWriter(path, schema, {"kind": "scores", "model": {"name": "m", "digest": "d"}}) as writer:
        writer.write(table)
    return table


def decisions_of(path):
    return pl.read_parquet(path.with_name(path.stem + ".decisions.parquet"))


@pytest.fixture
def scored(tmp_path):
    score_table(tmp_path / "scores.parquet")
    return tmp_path / "scores.parquet"


def test_subset_decisions_and_counts_agree_with_a_plain_loop(scored, tmp_path):
    out = tmp_path / "kept.parquet"
    result = curate.filter(scored, out, [Where("width >= 120"), Minimum(5, "kappa_a")])
    expected = {}
    for row in pq.read_table(scored).drop_columns("embedding").to_pylist():
        if row["status"] != "ok":
            expected[row["key"]] = "failed"
        elif row["width"] < 120:
            expected[row["key"]] = "drop"
        elif row["kappa_a"] is None or math.isnan(row["kappa_a"]):
            expected[row["key"]] = "undecided"
        else:
            expected[row["key"]] = "keep" if row["kappa_a"] >= 5 else "drop"
    decisions = decisions_of(out)
    assert dict(zip(decisions["key"], decisions["decision"], strict=True)) == expected
    counts = [sum(word == name for word in expected.values()) for name in ("keep", "drop", "undecided", "failed")]
    assert [result.kept, result.dropped, result.undecided, result.failed] == counts
    assert sum(counts) == result.n_rows == 200
    assert result.dropped == sum(result.dropped_by.values())


def test_margins_are_positive_for_kept_and_never_for_dropped(scored, tmp_path):
    rules = [KeepTop("60%", "kappa_a"), DropBottom("10%", "unc_b"), Maximum(9, "unc_b"), Minimum(6, "kappa_a")]
    for index, rule in enumerate(rules):
        out = tmp_path / f"kept{index}.parquet"
        curate.filter(scored, out, [rule])
        decisions = decisions_of(out)
        kept = decisions.filter(pl.col("decision") == "keep")
        dropped = decisions.filter(pl.col("decision") == "drop")
        assert (kept["margin"] >= 0).all()
        assert (dropped["margin"] <= 0).all()
        ties = dropped.filter(pl.col("margin") == 0)
        assert ties["reason"].str.contains("loses the tie by the hash of its key").all()
        sign = -1 if rule.column == "unc_b" else 1
        distance = sign * (decisions["score"] - decisions["threshold"])
        assert (distance - decisions["margin"]).drop_nulls().abs().max() == 0
        gone = decisions.filter(pl.col("decision").is_in(["undecided", "failed"]))
        assert gone["score"].null_count() == gone.height


def test_reasons_are_words_with_the_numbers_in_them(scored, tmp_path):
    out = tmp_path / "kept.parquet"
    curate.filter(
        scored, out, [Where("label is not null"), KeepTop("80%", "kappa_a"), DropBottom(10, "unc_b", "label")]
    )
    reasons = set(decisions_of(out)["reason"])
    assert "label is not null" in str(reasons)
    assert "truncated (cut short)" in str(reasons)
    assert "(null or NaN)" in str(reasons)
    assert any(r.startswith("kappa_a 2 is below the top 80% (cut ") for r in reasons)
    assert any(r.startswith("unc_b 11 is in the highest 10 rows of label 'cat' (cut ") for r in reasons)
    assert any("10 rows of label 'cat'" in r for r in reasons)
    assert any(r.startswith("unc_b 1 is outside the highest 10 rows of label 'dog' (cut ") for r in reasons)


def test_a_decision_names_the_rule_as_typed(scored, tmp_path):
    curate.filter(scored, tmp_path / "kept.parquet", [Where("width >= 120"), KeepTop("50%", "kappa_a", "label")])
    decisions = decisions_of(tmp_path / "kept.parquet")
    by_rule = dict(decisions.filter(pl.col("decision") == "drop").group_by("rule").len().iter_rows())
    assert set(by_rule) == {"--where width >= 120", "--keep-top 50% --per label"}
    assert by_rule["--where width >= 120"] == 19  # 20 rows below, one of them failed
    assert decisions.filter(pl.col("decision") == "failed")["rule"].null_count() == 10


def test_a_division_by_zero_leaves_a_row_undecided_and_no_column_is_blamed(tmp_path):
    pq.write_table(pa.table({"key": ["a", "b"], "status": ["ok"] * 2, "width": [0, 2]}), tmp_path / "s.parquet")
    result = curate.filter(tmp_path / "s.parquet", tmp_path / "k.parquet", where="4 / width > 1")
    (reason,) = pl.read_parquet(result.decisions).filter(pl.col("decision") == "undecided")["reason"]
    assert result.undecided == 1
    assert "null" in reason
    assert "column" not in reason


def test_the_digest_changes_with_every_value_that_counts(tmp_path):
    rules = [Where("label == 'cat'"), KeepTop(9, "kappa_a")]
    base = [float(i) for i in range(200)]
    variants = [
        {"kappa_a": base},
        {"kappa_a": [0.5, *base[1:]]},
        {"kappa_a": [*base[:-1], None]},
        {"kappa_a": base, "label": ["cat"] * 200},
        {"kappa_a": base, "label": [None] * 200},
        {"kappa_a": base, "key": ["other", *(f"img/{i:04}.jpg" for i in range(1, 200))]},
    ]
    digests = set()
    for index, changed in enumerate(variants):
        score_table(tmp_path / f"{index}.parquet", **changed)
        digests.add(curate.filter(tmp_path / f"{index}.parquet", rules=rules, dry_run=True).input_digest)
    assert len(digests) == len(variants)


def test_a_plain_table_with_a_key_can_be_filtered(tmp_path):
    pl.DataFrame({"key": [3, 1, 2], "aesthetic": [0.1, 0.9, 0.5]}).write_parquet(tmp_path / "t.parquet")
    result = curate.filter(tmp_path / "t.parquet", tmp_path / "kept.parquet", [KeepTop(2, "aesthetic")])
    assert (result.kept, result.failed) == (2, 0)
    assert pl.read_parquet(tmp_path / "kept.parquet")["key"].to_list() == [1, 2]
    assert decisions_of(tmp_path / "kept.parquet")["key"].to_list() == ["3", "1", "2"]
    assert verify(tmp_path / "kept.receipt.json").identical


def test_an_empty_table_gives_empty_files(tmp_path):
    score_table(tmp_path / "scores.parquet", 0)
    result = curate.filter(tmp_path / "scores.parquet", tmp_path / "kept.parquet", [KeepTop("80%", "kappa_a", "label")])
    assert result.n_rows == 0
    assert "the subset is empty" in str(filter_notes(result))
    assert open_table(tmp_path / "kept.parquet").n_rows == 0
    assert verify(tmp_path / "kept.receipt.json").identical


def test_keywords_say_the_same_as_rules(scored, tmp_path):
    curate.filter(scored, tmp_path / "a.parquet", where="width >= 120", keep_top=0.5, per="label")
    curate.filter(scored, tmp_path / "b.parquet", [Where("width >= 120"), KeepTop(0.5, "kappa_a", "label")])
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    pairs = [("where", "width >= 120"), ("column", "kappa_a"), ("per", "label"), ("keep-top", 0.5)]
    curate.filter(scored, tmp_path / "c.parquet", pairs)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "c.parquet").read_bytes()
    for rules in (pairs, [KeepTop(0.5, "kappa_a")], []):
        with pytest.raises(InputError, match="min"):
            curate.filter(scored, tmp_path / "d.parquet", rules, min=1)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([KeepTop(5, "kapa_a")], "did you mean 'kappa_a'"),
        ([KeepTop(5, "label")], "got string.*--where"),
        ([KeepTop(5, "kappa_a", "lable")], "did you mean 'label'"),
        ([KeepTop(5, "kappa_a", "embedding")], "column 'embedding'"),
        ([Where("lable == 'cat'")], "column 'lable'"),
        ([], "at least one rule"),
    ],
)
def test_a_rule_that_does_not_fit_the_table_is_one_line_and_writes_nothing(scored, tmp_path, rules, words):
    with pytest.raises(InputError, match=words) as caught:
        curate.filter(scored, tmp_path / "kept.parquet", rules)
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["scores.parquet"]


def scored_by(path, method, **columns):
    """A table of two rows, scored by a model of this method."""
    table = pa.table({"key": ["a", "b"], **{name: pa.array(values, pa.float32()) for name, values in columns.items()}})
    card = {} if method is None else {b"curate": json.dumps({"model": {"method": method}}).encode()}
    pq.write_table(table.replace_schema_metadata(card), path)
    return path


def kept_by_default(path):
    return curate.filter(path, path.with_name("kept.parquet"), keep_top=1, overwrite=True), path.with_name(
        "kept.parquet"
    )


@pytest.mark.parametrize(
    ("method", "columns", "kept"),
    [
        (None, {"kappa_a": [1, 2]}, "b"),
        ("b", {"kappa_a": [1, 2], "kappa_b": [2, 1]}, "a"),
        ("a", {"kappa_a": [1, 2], "kappa_b": [2, 1]}, "b"),
        ("c", {"kappa_a": [1, 2], "unc_a": [1, 0.5], "unc_c": [1, 2]}, "a"),  # the lower uncertainty is the better
        ("a", {"kappa_a": [1, 2], "unc_a": [1, 0.5], "unc_c": [1, 2]}, "b"),
        (None, {"unc_c": [1, 2]}, "a"),
        ("gone", {"kappa_a": [1, 2], "unc_c": [1, 2]}, "b"),
    ],
)
def test_the_default_column_belongs_to_the_method_of_the_model_or_is_the_only_one(tmp_path, method, columns, kept):
    _, out = kept_by_default(scored_by(tmp_path / "t.parquet", method, **columns))
    assert pq.read_table(out).column("key").to_pylist() == [kept]


def test_several_scores_of_which_none_is_the_models_own_are_listed(tmp_path):
    two = scored_by(tmp_path / "two.parquet", None, kappa_a=[1, 2], kappa_b=[1, 2])
    with pytest.raises(InputError, match="--column: kappa_a, kappa_b"):
        curate.filter(two, dry_run=True, keep_top=1)
    uncertain = scored_by(tmp_path / "unc.parquet", "other", unc_a=[1, 2], unc_b=[1, 2])
    with pytest.raises(InputError, match="--column: unc_a, unc_b"):
        curate.filter(uncertain, dry_run=True, keep_top=1)
    pq.write_table(pa.table({"key": ["a"], "x": [1.0]}), tmp_path / "none.parquet")
    with pytest.raises(InputError, match=r"no kappa column .*: x"):
        curate.filter(tmp_path / "none.parquet", dry_run=True, keep_top=1)


def test_verify_names_missing_and_added_rows(scored, tmp_path):
    curate.filter(scored, tmp_path / "kept.parquet", [Minimum(0, "unc_b")])
    score_table(tmp_path / "fewer.parquet", order=list(range(1, 200)))
    result = verify(tmp_path / "kept.receipt.json", tmp_path / "fewer.parquet")
    assert "no longer in" in str(lines_of(result)["different"])
    assert "but not kept" in str(lines_of(result)["different"])
    score_table(tmp_path / "more.parquet", 201)
    result = verify(tmp_path / "kept.receipt.json", tmp_path / "more.parquet")
    assert "then not there" in str(lines_of(result)["different"])


def test_verify_counts_all_but_names_ten(scored, tmp_path):
    curate.filter(scored, tmp_path / "kept.parquet", [Minimum(0, "unc_b")])
    score_table(tmp_path / "other.parquet", unc_b=[-1.0] * 200)
    result = verify(tmp_path / "kept.receipt.json", tmp_path / "other.parquet")
    assert result.n_different == 190 * 2  # decided otherwise, and in the subset
    assert len(lines_of(result)["different"]) == 10


def test_info_knows_scores_subsets_decisions_receipts_and_plain_tables(scored, tmp_path):
    curate.filter(scored, tmp_path / "kept.parquet", [KeepTop(50, "kappa_a")])
    pq.write_table(pa.table({"x": [1]}), tmp_path / "plain.parquet")
    kinds = {
        name: info(tmp_path / name).kind
        for name in ("scores.parquet", "kept.parquet", "kept.decisions.parquet", "kept.receipt.json", "plain.parquet")
    }
    assert list(kinds.values()) == ["scores", "subset", "decisions", "receipt", "table"]
    described = info(scored)
    assert described.facts["rows"] == 200
    assert described.counts == {"ok": 190, "truncated": 10}
    assert {c["name"]: c["higher"] for c in described.columns}["unc_b"] == "less certain"
    assert {c["name"]: c["type"] for c in described.columns}["width"] == "int32"
    assert info(tmp_path / "kept.decisions.parquet").counts["keep"] == 50


@pytest.mark.parametrize("name", ["notes.txt", "none.parquet", "other.json", "fake.safetensors"])
def test_info_refuses_other_files_in_one_line(tmp_path, name):
    if name != "none.parquet":
        (tmp_path / name).write_text("{}")
    with pytest.raises(InputError, match=name.replace(".", r"\.")) as caught:
        info(tmp_path / name)
    assert "\n" not in str(caught.value)
