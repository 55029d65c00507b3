"""`curate select` on the command line: help, exit codes, what is printed and what is written."""

import json
import re
import runpy
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from choosing import csv, table
from typer.testing import CliRunner

from curate.cli import app
from curate.options.option import declared
from curate.selectors.table import WHERE

ROOT = Path(__file__).parents[3]
LABELLED = ["--labelled-where", "key like 'img/00%'"]
MORE = {"score": ["--score", "unc_losspred"]}


def run(*args):
    return CliRunner().invoke(app, ["select", *map(str, args)])


@pytest.fixture
def scores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return table(tmp_path / "s.parquet", 60)


def keys(path):
    return pq.read_table(path)["key"].to_pylist()


OUTSIDE = """
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from curate.selectors.contract import Selector, check
from curate.selectors.contract import Selection


@dataclass(frozen=True)
class Every(Selector):
    \"\"\"Every ``step``-th row, from the first.\"\"\"

    step: int = 2

    needs: ClassVar[tuple[str, ...]] = ()
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(N) time"

    def __call__(self, pool, budget, *, seed=0):
        check(pool, budget, self.needs)
        return Selection(pool.candidates[:: self.step][:budget], np.ones(budget))
"""


def test_a_selector_from_outside_is_one_file_and_one_line(scores, monkeypatch):
    (scores.parent / "outside_selector.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(str(scores.parent))
    monkeypatch.setitem(WHERE, "every", "outside_selector:Every")
    result = run("s.parquet", "-b", 8, "--strategy", "every", "--set", "step=3", "-o", "b.parquet")
    assert result.exit_code == 0, result.output
    assert re.search(r"picked +8 +every", result.stderr)
    assert CliRunner().invoke(app, ["verify", "b.receipt.json"]).exit_code == 0
    assert "did you mean 'every'" in run("s.parquet", "-b", 8, "--strategy", "evry", "--dry-run").stderr
    anew = runpy.run_path(str(ROOT / "curate/policies/select/options.py"))["SelectOptions"]
    assert any(field.name == "strategy" and "every." in field.about.text for field in declared(anew))
    tables = runpy.run_path(str(ROOT / "docs/generate.py"))["TABLES"]
    assert "| `every` | Every `step`-th row, from the first |  | yes | O(N) time |" in tables["strategies"]()


@pytest.mark.parametrize("name", ["auto", *MORE])
def test_a_strategy_with_its_options_through_the_command(scores, name):
    result = run("s.parquet", "-b", 8, "--strategy", name, *LABELLED, "-o", "b.parquet", *MORE.get(name, []))
    assert result.exit_code == 0, result.output
    assert len(set(keys("b.parquet"))) == 8
    assert re.search(rf"picked +8 +{name}", result.stderr)
    assert result.stdout == ""
    assert CliRunner().invoke(app, ["verify", "b.receipt.json"]).exit_code == 0


def test_what_is_printed_adds_up_and_names_the_files(scores):
    csv(scores.parent / "x.csv", [("img/050.png",)], header="key")
    result = run("s.parquet", "-b", 8, *LABELLED, "--exclude", "x.csv", "--noise-guard", "--quality", "kappa_mcinfonce",
                 "-o", "b.parquet")  # fmt: skip
    assert result.exit_code == 0, result.output
    counts = dict(
        re.findall(
            r"^(rows in|picked|labelled already|excluded|left out by the gate|not picked) +(\d+)",
            result.stderr,
            re.MULTILINE,
        )
    )
    counts = {name: int(n) for name, n in counts.items()}
    assert counts["rows in"] == 60 == sum(n for name, n in counts.items() if name != "rows in")
    assert (counts["picked"], counts["labelled already"], counts["excluded"]) == (8, 10, 1)
    assert "10 labelled rows" in result.stderr
    for name in ("subset: b.parquet", "decisions: b.decisions.parquet", "receipt: b.receipt.json"):
        assert name in result.stderr


def test_json_is_one_value_on_stdout(scores):
    result = run("s.parquet", "-b", 5, "--dry-run", "--json")
    report = json.loads(result.stdout)
    assert (report["kept"], report["n_rows"], report["strategy"], report["subset"]) == (5, 60, "auto", None)
    assert len(report["gains"]) == 5
    assert report["settings"]["bandwidth"] == 0.5


@pytest.mark.parametrize(("strategy", "falls"), [("herding", True), ("small-loss", False)])
def test_gains_are_reported_by_their_ends_where_they_fall_and_else_by_their_least_and_greatest(scores, strategy, falls):
    command = ["s.parquet", "-b", 12, "--strategy", strategy, *LABELLED, "--dry-run"]
    gains = json.loads(run(*command, "--json").stdout)["gains"]
    assert (gains == sorted(gains, reverse=True)) == falls
    first, last = (gains[0], gains[-1]) if falls else (min(gains), max(gains))
    words = ("from", "to") if falls else ("between", "and")
    assert f"gains {words[0]} {first:.3g} {words[1]} {last:.3g}" in run(*command).stdout


def test_a_dry_run_names_the_first_picks_and_writes_nothing(scores):
    before = sorted(scores.parent.iterdir())
    result = run("s.parquet", "-b", 5, "--dry-run")
    assert "nothing was written" in result.stderr
    assert len(re.findall(r"^would pick: \d\. img/", result.stdout, re.MULTILINE)) == 5
    assert sorted(scores.parent.iterdir()) == before


def test_a_budget_below_one_per_cent_could_be_meant_as_a_fraction(scores, tmp_path):
    """Of 60 rows 0.8 % is no row, of 200 it is one."""
    result = run("s.parquet", "-b", "0.8%", "--strategy", "random", "--dry-run")
    assert (result.exit_code, "0 of 60 rows" in result.stderr) == (1, True)
    table(tmp_path / "more.parquet", 200)
    assert "1 of 200 rows" in run("more.parquet", "-b", "0.8%", "--strategy", "random", "--dry-run").stdout
    assert "100 times" not in run("more.parquet", "-b", "1%", "--strategy", "random", "--dry-run").stdout


def test_parameters_reach_the_strategy_and_the_receipt(scores):
    result = run("s.parquet", "-b", 5, "--strategy", "herding", "--set", "bandwidth=0.7", "--set", "references=9", "-o",
                 "b.parquet")  # fmt: skip
    assert result.exit_code == 0, result.output
    receipt = json.loads((scores.parent / "b.receipt.json").read_text())
    assert receipt["policy"][0]["settings"] == {"bandwidth": "0.7", "references": "9"}
    assert (receipt["settings"]["bandwidth"], receipt["settings"]["references"]) == (0.7, 9)


def test_the_seed_decides_what_is_drawn(scores):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run("s.parquet", "-b", 12, "--strategy", "random", "--seed", seed, "-o", f"{name}.parquet")
    assert keys("a.parquet") == keys("b.parquet") != keys("c.parquet")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-b", "5"], "-o kept.parquet"),
        (["-b", "5", "-o", "b.parquet", "--set", "x"], "--set takes NAME=VALUE"),
        (["-b", "5", "-o", "b.parquet", "--set", "seed=1", "--set", "seed=2"], "--set seed was given"),
        (["-b", "5", "-o", "b.parquet", "--strategy", "entrpy"], "did you mean 'entropy'"),
        (["-b", "5", "-o", "b.parquet", "--labelled", "none.csv"], "none.csv does not exist"),
    ],
)
def test_a_mistake_is_one_line_exit_1_and_no_file(scores, args, said):
    before = sorted(scores.parent.iterdir())
    result = run("s.parquet", *args)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
    assert sorted(scores.parent.iterdir()) == before


def test_no_budget_is_bad_usage(scores):
    result = run("s.parquet", "-o", "b.parquet")
    assert result.exit_code == 2
    assert "--budget" in result.stderr


def test_a_table_that_was_really_scored_can_be_chosen_from(full_table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(full_table, "-b", 6, "--noise-guard", "-o", "b.parquet")
    assert result.exit_code == 0, result.output
    decisions = {row["key"]: row for row in pq.read_table("b.decisions.parquet").to_pylist()}
    assert decisions["broken.jpg"]["decision"] == decisions["text.png"]["decision"] == "failed"
    assert len(keys("b.parquet")) == 6
    assert CliRunner().invoke(app, ["verify", "b.receipt.json"]).exit_code == 0
