"""``curate balance`` and ``curate split`` as a reviewer types them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run


@pytest.fixture
def scores(tmp_path):
    label = ["cat"] * 60 + ["dog"] * 30 + ["emu"] * 10
    rows = {"key": [f"k{i}" for i in range(100)], "label": label, "sha256": [f"s{i // 2}" for i in range(100)]}
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def test_a_dry_run_shows_the_cells_before_and_after_and_writes_nothing(scores, tmp_path):
    result = run("balance", scores, "--rows", 45, "--dry-run")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["cell", "rows", "share", "kept", "share", "requested"] in lines
    assert ["cat", "60", "60.00%", "18", "40.00%", "33.33%"] in lines
    assert ["emu", "10", "10.00%", "10", "22.22%", "33.33%"] in lines
    assert "5 rows too few" in result.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["t.parquet"]


def test_rows_below_one_per_cent_could_be_meant_as_a_fraction(tmp_path):
    pq.write_table(
        pa.table({"key": [f"k{i}" for i in range(300)], "label": ["cat", "dog"] * 150}), tmp_path / "t.parquet"
    )
    said = run("balance", tmp_path / "t.parquet", "--rows", "0.8%", "--dry-run").stdout
    assert "2 of 300 rows" in said


def test_shares_that_cannot_be_met_are_one_line_with_both_numbers(scores):
    result = run("balance", scores, "--to", "emu=50%", "--to", "cat=50%", "--rows", 40, "--dry-run")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "10 too few in all" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_split_says_what_would_have_leaked_on_stderr_and_json_on_stdout(scores, tmp_path):
    typed = ("split", scores, "--train", "80%", "--test", "20%", "--per", "label", "-o", tmp_path / "o.parquet")
    result = run(*typed)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "80.00%, requested 80%" in result.stderr
    assert "copy on another side: 0" in result.stderr
    report = json.loads(run(*typed, "--overwrite", "--json", "--finder", "bytes").stdout)
    assert report["sides"] == {"train": 80, "test": 20}
    assert report["strata"]["cat"] == [48, 12]
    assert report["leaks"] == 0 < report["would_leak"]
    assert run("verify", tmp_path / "o.receipt.json").stdout.startswith("identical: 100 rows")
