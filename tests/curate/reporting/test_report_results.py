"""Which policies a report is of, and files that are none."""

import json

import numpy as np
import polars as pl
import pytest
from choosing import columns_of, write
from typer.testing import CliRunner

import curate
from curate.cli import app
from curate.policies.receipts import sealed
from curate.reporting.document import gather
from curate.reporting.findings import Finding, of_findings
from curate.reporting.options import ReportOptions
from curate.tables.table import open_table
from scoring.errors import InputError


def test_decisions_of_another_table_are_refused_in_one_line(five_policies, tmp_path):
    write(tmp_path / "scores.parquet", columns_of(30, key=[f"other/{i}.png" for i in range(30)]))
    curate.filter(tmp_path / "scores.parquet", tmp_path / "other.parquet", keep_top=5, column="unc_losspred")
    with pytest.raises(InputError, match="30 of its 30"):
        gather(open_table(five_policies / "scores.parquet"), ReportOptions("s", [tmp_path / "other.parquet"], points=0))


def test_decisions_that_contradict_their_receipt_are_refused(five_policies, tmp_path):
    for name in ("scores.parquet", "kept.decisions.parquet", "kept.receipt.json"):
        (tmp_path / name).write_bytes((five_policies / name).read_bytes())
    decisions = pl.read_parquet(tmp_path / "kept.decisions.parquet")
    decisions.with_columns(decision=pl.lit("keep")).write_parquet(tmp_path / "kept.decisions.parquet")
    with pytest.raises(InputError, match="from different runs"):
        gather(open_table(tmp_path / "scores.parquet"), ReportOptions("s", [tmp_path / "kept.receipt.json"], points=0))


def test_files_that_are_no_result_are_refused_with_what_to_give(five_policies, tmp_path):
    for name, words in (
        (five_policies / "scores.parquet", "has no receipt"),
        (five_policies / "none.parquet", "does not exist"),
        (tmp_path, "got the folder"),
    ):
        with pytest.raises(InputError, match=words):
            gather(open_table(five_policies / "scores.parquet"), ReportOptions("s", [name], points=0))


def test_results_that_were_moved_with_their_table_are_found_next_to_one_another(five_policies, tmp_path):
    for file in five_policies.glob("*.parquet"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    for file in five_policies.glob("*.json"):
        text = file.read_text().replace(str(five_policies), "/where/it/was")
        (tmp_path / file.name).write_bytes(sealed(json.loads(text)))
    moved = ReportOptions("s", [tmp_path / "picked.parquet"], points=0)
    assert [each["step"] for each in gather(open_table(tmp_path / "scores.parquet"), moved).counted["funnel"]] == [
        "filter",
        "dedup",
        "select",
    ]


def test_a_policy_whose_decisions_are_gone_is_in_the_funnel_alone(five_policies, tmp_path):
    for name in ("scores.parquet", "kept.receipt.json"):
        (tmp_path / name).write_bytes((five_policies / name).read_bytes())
    request = ReportOptions("s", [tmp_path / "kept.receipt.json"], points=0, column="unc_losspred")
    facts = gather(open_table(tmp_path / "scores.parquet"), request)
    assert facts.counted["funnel"][0]["kept"] > 0
    assert any("decisions are missing" in note for note in facts.counted["overview"]["notes"])


def test_the_folder_of_a_pipeline_is_read_as_all_its_policies(five_policies, tmp_path):
    (tmp_path / "curate.toml").write_text(
        f"""
[filter]
table = {json.dumps(str(five_policies / "scores.parquet"))}
column = "unc_losspred"
keep-top = 100

[select]
budget = 10
strategy = "random"
"""
    )
    ran = CliRunner().invoke(app, ["run", str(tmp_path / "curate.toml"), "--quiet"])
    assert ran.exit_code == 0, ran.output
    receipt = next(tmp_path.rglob("pipeline.receipt.json"))
    for path in (receipt, receipt.parent):
        facts = gather(open_table(five_policies / "scores.parquet"), ReportOptions("s", [path], points=0))
        assert [(each["step"], each["kept"]) for each in facts.counted["funnel"]] == [("filter", 100), ("select", 10)]


def test_a_policy_of_a_thousand_reasons_names_the_most_and_sums_the_rest(five_policies, tmp_path):
    for name in ("scores.parquet", "kept.receipt.json"):
        (tmp_path / name).write_bytes((five_policies / name).read_bytes())
    receipt = json.loads((tmp_path / "kept.receipt.json").read_text())
    receipt["counts"] = {"n_rows": 4000, "kept": 1000, "dropped": 1500, "undecided": 1500, "failed": 0}
    receipt["dropped_by"] = {f"why {'x' * 500} {i}": 1 for i in range(1500)}
    receipt["failed_by"] = {}
    receipt["undecided_by"] = {f"what {i}": 1 for i in range(1400)}
    (tmp_path / "kept.receipt.json").write_bytes(sealed(receipt))
    request = ReportOptions("s", [tmp_path / "kept.receipt.json"], points=0)
    (step,) = gather(open_table(tmp_path / "scores.parquet"), request).counted["funnel"]
    assert step["rows_in"] == step["kept"] + sum(each["n"] for each in step["out"]) == 4000
    assert len(step["out"]) <= 52
    assert max(len(each["reason"]) for each in step["out"]) <= 200


def test_from_python_one_result_needs_no_list(five_policies):
    table, kept = five_policies / "scores.parquet", five_policies / "kept.parquet"
    single, listed = (curate.report(table, results, points=0, thumbs=0).document for results in (str(kept), [kept]))
    assert [step["step"] for step in single["funnel"]] == ["filter"]
    assert single["funnel"] == listed["funnel"]


def test_each_group_unlike_the_rest_is_shown_separately():
    rows = np.arange(70)
    parts = ["in group 1"] * 40 + ["in group 4"] * 30
    finding = Finding("unlike-the-rest", "unlike", rows, np.repeat([1.0, 4.0], [40, 30]), parts, parts)
    bright = Finding("bright", "nothing in it is dark", rows[:3], np.ones(3), ["bright"] * 3)
    first, second, last = of_findings([finding, bright]).groups
    assert (list(first.rows), list(second.rows), list(last.rows)) == ([*range(24)], [*range(40, 64)], [0, 1, 2])
    assert "group 1" in first.words
    assert "40 rows" in first.words
    assert "group 4" in second.words
