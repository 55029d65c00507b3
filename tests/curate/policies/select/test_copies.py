"""Picks that are copies of one another, or of labelled rows: counted by what the table holds, and said."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from curate.cli import app
from curate.policies.dedup.finders.table import FINDERS
from curate.policies.select.policy import ALIKE, find_picked_copies, select
from curate.tables.table import open_table


def signatures(*groups):
    """One random signature a group, as often as it says; copies differ a little."""
    random = np.random.default_rng(0)
    made = []
    for size in groups:
        base = random.normal(0, 40, 255)
        made += [(base + random.normal(0, 2, 255)).clip(-127, 127).astype(np.int8) for _ in range(size)]
    return made


@pytest.fixture
def table(tmp_path):
    """Ten rows: k0, k1 and k2 look the same, k3 and k4 are one file without a signature, the rest are alone."""
    signed = signatures(3, *[1] * 7)
    signed[3] = signed[4] = np.zeros(255, np.int8)
    digests = [hashlib.sha256(str(min(row, 3) if row in (3, 4) else row).encode()).hexdigest() for row in range(10)]
    random = np.random.default_rng(1)
    vectors = random.normal(size=(10, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    pq.write_table(
        pa.table(
            {
                "key": [f"k{row}" for row in range(10)],
                "sha256": digests,
                "signature": pa.array([each.tobytes() for each in signed], pa.binary(255)),
                "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 8),
            }
        ),
        tmp_path / "s.parquet",
    )
    return open_table(tmp_path / "s.parquet")


def rows(*numbers):
    return np.array(numbers, np.int64)


def test_copies_are_what_dedup_calls_the_same():
    assert FINDERS["signature"].threshold == ALIKE


def test_copies_of_earlier_picks_and_of_labelled_rows_are_counted(table):
    assert find_picked_copies(table, rows(0, 5, 6), rows()).n == 0
    copies = find_picked_copies(table, rows(5, 2, 0, 1), rows())
    assert (copies.n, copies.of, copies.key, copies.earlier) == (2, 4, "k0", "k2")
    assert find_picked_copies(table, rows(5, 2), rows(1)).n == 1
    assert find_picked_copies(table, rows(5, 6), rows(0, 1, 2)).n == 0  # labelled copies of one another do not count


def test_equal_files_count_though_they_have_no_signature_and_flat_ones_are_not_alike(table):
    copies = find_picked_copies(table, rows(3, 4), rows())
    assert (copies.n, copies.key, copies.earlier) == (1, "k4", "k3")


def test_nothing_is_printed_where_the_table_has_no_information(table, tmp_path, monkeypatch):
    pq.write_table(table.read(["key", "embedding"]), tmp_path / "bare.parquet")
    assert find_picked_copies(open_table(tmp_path / "bare.parquet"), rows(0, 1), rows()) is None
    monkeypatch.setattr("curate.policies.select.policy.MOST", 2)
    assert find_picked_copies(table, rows(0, 1, 2), rows()) is None


@pytest.mark.parametrize("strategy", ["auto", "k-center", "random"])
def test_every_strategy_reports_copies(table, tmp_path, strategy):
    result = select(table.path, tmp_path / "b.parquet", strategy, 10)
    assert result.copies.n == 3
    receipt = json.loads((tmp_path / "b.receipt.json").read_text())
    assert receipt["copies"]["n"] == 3
    said = CliRunner().invoke(app, ["select", str(table.path), "--strategy", strategy, "-b", "10", "--dry-run"])
    assert "3 of 10 picks" in said.output
    assert "curate dedup" in said.output


def test_a_choice_without_copies_prints_nothing(table, tmp_path):
    (tmp_path / "x.csv").write_text("key\nk1\nk2\nk4\n")
    said = CliRunner().invoke(
        app, ["select", str(table.path), "-b", "7", "--exclude", str(tmp_path / "x.csv"), "--dry-run", "--json"]
    )
    assert json.loads(said.stdout)["copies"]["n"] == 0


def test_a_score_that_is_the_same_for_all_rows_is_reported(table, tmp_path):
    values = table.read()
    for name, column, said in (("flat", [0.0] * 10, True), ("steps", [*range(9), 8.0], False)):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(values.append_column("unc_x", pa.array(column, pa.float32())), path)
        result = select(path, strategy="score", budget=3, score="unc_x", dry_run=True)
        assert any("same for all" in note for note in result.notes) == said
