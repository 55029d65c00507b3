"""``curate filter``, ``info`` and ``verify`` as typed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run

from curate.tables.writer import TableWriter

ROOT = Path(__file__).parents[3]
N = 100
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("label", pa.string()),
        ("kappa_a", pa.float32()),
        ("unc_a", pa.float32()),
        ("width", pa.int32()),
    ]
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    table = pa.table(
        [
            [f"k{i}" for i in range(N)],
            ["cat" if i % 4 else "dog" for i in range(N)],
            [float(i) for i in range(N)],
            [float((i * 37) % N) for i in range(N)],
            [i % 10 for i in range(N)],
        ],
        schema=SCHEMA,
    )
    with TableWriter(tmp_path / "scores.parquet", SCHEMA, {"kind": "scores", "model": {"name": "m"}}) as writer:
        writer.write(table)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rules_of(*args):
    """The rules that a command line asks for, from the receipt it writes."""
    result = run("filter", "scores.parquet", *args, "-o", "kept.parquet", "--overwrite")
    assert result.exit_code == 0, result.output
    policy = json.loads(Path("kept.receipt.json").read_text())["policy"]
    return [(rule["rule"], rule["column"], rule["per"]) for rule in policy]


@pytest.mark.usefixtures("folder")
def test_rules_apply_in_the_order_typed_across_options_and_repeats():
    names = lambda rules: [rule[0] for rule in rules]  # noqa: E731
    assert names(rules_of("--max", "90", "--keep-top", "50%", "--min=3", "--max", "80")) == [
        "max",
        "keep-top",
        "min",
        "max",
    ]
    assert names(rules_of("--keep-top", "50%", "--max", "90", "--max", "80", "--min", "3")) == [
        "keep-top",
        "max",
        "max",
        "min",
    ]
    assert names(rules_of("--where", "width > 1", "--drop-bottom", "3", "--where", "width < 9")) == [
        "where",
        "drop-bottom",
        "where",
    ]


def test_the_order_decides_what_stays(folder):
    run("filter", "scores.parquet", "--max", "89", "--keep-top", "50%", "-o", "a.parquet")
    run("filter", "scores.parquet", "--keep-top", "50%", "--max", "89", "-o", "b.parquet")
    assert sorted(pl.read_parquet("a.parquet")["kappa_a"]) == [float(i) for i in range(45, 90)]
    assert sorted(pl.read_parquet("b.parquet")["kappa_a"]) == [float(i) for i in range(50, 90)]


@pytest.mark.usefixtures("folder")
def test_a_column_counts_for_the_rules_after_it():
    assert rules_of("--min", "3", "--column", "unc_a", "--max", "50", "--keep-top", "9") == [
        ("min", "kappa_a", None),
        ("max", "unc_a", None),
        ("keep-top", "unc_a", None),
    ]
    assert rules_of("--column", "unc_a", "--max", "50", "--column", "kappa_a", "--keep-top", "9") == [
        ("max", "unc_a", None),
        ("keep-top", "kappa_a", None),
    ]


@pytest.mark.usefixtures("folder")
def test_a_column_or_per_after_every_rule_counts_for_all():
    assert rules_of("--min", "3", "--keep-top", "9", "--column", "unc_a", "--per", "label") == [
        ("min", "unc_a", None),
        ("keep-top", "unc_a", "label"),
    ]
    assert rules_of("--keep-top", "9", "--per", "label", "--drop-bottom", "1") == [
        ("keep-top", "kappa_a", None),
        ("drop-bottom", "kappa_a", "label"),
    ]


def test_keep_top_of_an_uncertainty_keeps_the_lowest_and_reports_it(folder):
    result = run("filter", "scores.parquet", "--column", "unc_a", "--keep-top", "10", "-o", "kept.parquet")
    assert sorted(pl.read_parquet("kept.parquet")["unc_a"]) == [float(i) for i in range(10)]
    assert "higher: less certain" in result.stderr


def test_the_end_says_what_happened_and_where_it_is(folder):
    result = run("filter", "scores.parquet", "--keep-top", "80%", "-o", "kept.parquet")
    assert result.exit_code == 0
    assert result.stdout == ""
    lines = [line.split() for line in result.stderr.splitlines()]
    assert ["rows", "in", "100"] in lines
    assert ["kept", "80"] in lines
    assert ["dropped", "20", "--keep-top", "80%"] in lines
    for name in ("kept.parquet", "kept.decisions.parquet", "kept.receipt.json"):
        assert name in result.stderr
        assert (folder / name).is_file()


def test_json_is_alone_on_stdout(folder):
    result = run("filter", "scores.parquet", "--keep-top", "80%", "-o", "kept.parquet", "--json")
    value = json.loads(result.stdout)
    assert (value["n_rows"], value["kept"], value["dropped"]) == (100, 80, 20)
    assert value["subset"] == "kept.parquet"
    assert json.loads(run("verify", "kept.receipt.json", "--json").stdout)["identical"] is True
    assert json.loads(run("info", "kept.parquet", "--json").stdout)["kind"] == "subset"


def test_a_dry_run_shows_what_would_go_and_writes_nothing(folder):
    result = run("filter", "scores.parquet", "--min", "98", "--dry-run")
    assert "k0: kappa_a 0" in result.stdout
    assert "nothing was written" in result.stderr
    assert [path.name for path in folder.iterdir()] == ["scores.parquet"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["scores.parquet", "--keep-top", "-5"], "--keep-top takes"),
        (["scores.parquet", "--where", "widht > 1"], "did you mean 'width'"),
        (["scores.parquet", "--where", "width >"], "cannot understand --where"),
        (["scores.parquet", "--column", "unc_a"], "--column unc_a needs"),
        (["scores.parquet", "--per", "label", "--min", "1"], "--per label needs"),
        (["scores.parquet", "--column", "unc_a", "--min", "1", "--column", "kappa_a"], "no rule after"),
        (["scores.parquet", "--per", "label", "--per", "status", "--keep-top", "50%"], "no rule before"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_mistake_is_one_line_with_exit_1(args, words):
    result = run("filter", *args, "-o", "kept.parquet")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


def test_a_folder_without_permission_and_a_read_only_disk_are_one_line(folder, monkeypatch):
    for error, words in (
        (PermissionError(13, "Permission denied"), "permission denied"),
        (OSError(30, "ro"), "the file system is read-only"),
    ):

        def refuse(*args, error=error):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr("scoring.atomic.os.open", refuse)
            result = run("filter", "scores.parquet", "--keep-top", "80%", "-o", "kept.parquet")
        assert result.exit_code == 1
        assert f"cannot write kept.parquet: {words}" in result.stderr
        assert result.stderr.count("error") == 1
    assert [path.name for path in folder.iterdir()] == ["scores.parquet"]


def test_a_full_disk_is_one_line_and_leaves_nothing_behind(folder):
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))\n"
        "from curate.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "filter", "scores.parquet", "--keep-top", "80%", "-o", "kept.parquet"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: cannot write kept.")
    assert "the system allows" in done.stderr
    assert not re.search("Traceback|Exception ignored", done.stderr)
    assert [path.name for path in folder.iterdir()] == ["scores.parquet"]


def test_verify_exits_0_when_identical_and_1_when_not(folder):
    run("filter", "scores.parquet", "--keep-top", "80%", "-o", "kept.parquet")
    result = run("verify", "kept.receipt.json")
    assert result.exit_code == 0
    assert result.stdout.startswith("identical: 100 rows")
    table = pq.read_table("scores.parquet")
    changed = table.set_column(2, SCHEMA.field("kappa_a"), pa.array([1000.0, *map(float, range(1, N))], pa.float32()))
    pq.write_table(changed, "changed.parquet")
    result = run("verify", "kept.receipt.json", "--table", "changed.parquet")
    assert result.exit_code == 1
    assert "k0: now keep, then drop" in result.stdout
    assert "input has changed" in result.stdout
    assert "different: " in result.stdout.splitlines()[-1]
    pq.write_table(pq.read_table("kept.parquet"), "kept.parquet", compression="none")  # the same rows, other bytes
    result = run("verify", "kept.receipt.json")
    assert result.exit_code == 1
    assert "kept.parquet was changed" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("different: 100 rows with the same decision")


@pytest.mark.usefixtures("folder")
def test_verify_of_a_subset_or_its_decisions_uses_the_receipt_next_to_it():
    run("filter", "scores.parquet", "--keep-top", "80%", "-o", "kept.parquet")
    for name in ("kept.parquet", "kept.decisions.parquet"):
        assert run("verify", name).stdout == run("verify", "kept.receipt.json").stdout
    alone = run("verify", "scores.parquet")
    assert alone.exit_code == 1
    assert "has no receipt" in alone.stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", [["filter", "", "--min", "1", "--dry-run"], ["verify", ""], ["info", ""]])
def test_an_empty_path_is_not_the_folder_one_is_in(command):
    Path("scores.parquet").rename("part-00000.parquet")
    result = run(*command)
    assert result.exit_code == 2
    assert "got an empty text" in result.stderr


@pytest.mark.usefixtures("folder")
def test_info_shows_columns_with_their_meaning_and_rules_as_lines():
    run("filter", "scores.parquet", "--keep-top", "80%", "--per", "label", "-o", "kept.parquet")
    text = run("info", "kept.parquet").stdout
    assert text.startswith("kept.parquet: subset\n")
    assert "kappa_a per label" in text
    assert "more certain" in " ".join(text.split())
    assert run("info", "kept.receipt.json").exit_code == 0


def test_keys_with_control_characters_stay_on_their_line(folder):
    pq.write_table(pa.table({"key": ["a\x1b[2J\nb"], "kappa_a": [1.0]}), "odd.parquet")
    result = run("filter", "odd.parquet", "--min", "5", "--dry-run")
    assert "would drop, the worst: a\\x1b[2J\\nb: kappa_a 1 is below" in result.stdout


def test_a_dry_run_shows_the_worst_the_nearest_to_the_cut_and_each_class(folder):
    """kappa_a of k0 to k99 is 0 to 99; every fourth, from k0, is a dog."""
    said = run("filter", "scores.parquet", "--keep-top", "60%", "--dry-run").stdout
    shown = [line.split(": ")[:2] for line in said.splitlines() if line.startswith("would ")]
    assert shown == [
        *(["would drop, the worst", f"k{i}"] for i in range(5)),
        *(["would drop, nearest to the cut", f"k{i}"] for i in (39, 38, 37)),
        *(["would keep, nearest to the cut", f"k{i}"] for i in (40, 41, 42)),
    ]
    assert ["cat", "75", "45", "60%"] in [line.split() for line in said.splitlines()]
    assert ["dog", "25", "15", "60%"] in [line.split() for line in said.splitlines()]


def test_a_dry_run_by_an_uncertainty_has_the_most_uncertain_as_the_worst(folder):
    said = run("filter", "scores.parquet", "--column", "unc_a", "--max", "96", "--dry-run").stdout
    unc = {f"k{i}": float((i * 37) % N) for i in range(N)}
    worst = sorted(unc, key=lambda key: -unc[key])
    assert [line.split(": ")[1] for line in said.splitlines() if line.startswith("would drop")] == worst[:3]
    assert [line.split(": ")[1] for line in said.splitlines() if line.startswith("would keep")] == worst[3:6]


def test_a_dry_run_of_a_condition_shows_the_first_that_go(folder):
    said = run("filter", "scores.parquet", "--where", "width > 1", "--dry-run").stdout
    shown = [line.split(": ")[:2] for line in said.splitlines() if line.startswith("would ")]
    assert shown == [["would drop", f"k{i}"] for i in (0, 1, 10, 11, 20)]


def test_a_count_that_could_be_per_cent_is_distinguished_from_a_share(folder):
    for amount, note in (("70", True), ("70%", False), ("0.7", False), ("101", False)):
        said = run("filter", "scores.parquet", "--keep-top", amount, "--dry-run").stdout
        assert (f"--keep-top {amount} is {amount} rows; {amount}% is a share" in said) == note


@pytest.mark.parametrize(
    ("typed", "note"),
    [
        ("--keep-top 0.8%", "1 of 100 rows"),  # a share kept is rounded up
        ("--drop-bottom 0.5%", "0 of 100 rows"),
        ("--drop-bottom 0.9% --per label", "0 of 100 rows"),
        ("--where label=='dog' --keep-top 0.9%", "1 of 25 rows"),
        ("--keep-top 1%", ""),
        ("--keep-top 0.008", ""),
    ],
)
def test_a_percentage_below_one_could_be_meant_as_a_fraction(folder, typed, note):
    result = run("filter", "scores.parquet", *typed.split(), "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert note in result.stdout
    assert ("100 times as many" in result.stdout) == bool(note)


def test_info_says_what_matters_before_digests(folder):
    run("filter", "scores.parquet", "--keep-top", "80%", "-o", "kept.parquet")
    for name in ("kept.parquet", "kept.receipt.json"):
        said = run("info", name).stdout
        first, _, last = said.partition("digests and environment")
        assert "keep-top 80%" in first
        assert not [word for word in first.split() if len(word) == 64]
        assert name == "kept.parquet" or [word for word in last.split() if len(word.strip('",}')) == 64]
