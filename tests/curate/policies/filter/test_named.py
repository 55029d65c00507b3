"""Rows kept and dropped by a file of keys."""

import csv
import json

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run

import curate
from curate.policies.receipts import sealed
from curate.policies.verify import verify
from scoring.errors import InputError

KEYS = ["a", "b,c", 'd"e', "=1+1", "\u202egnp.x", "line\nbreak", " spaced ", "gone"]


@pytest.fixture
def dataset(tmp_path):
    """Rows of odd keys; the last one failed. A CSV names some of them, and one that is missing."""
    columns = {
        "key": KEYS,
        "status": ["ok"] * (len(KEYS) - 1) + ["corrupt"],
        "unc_x": [float(i) for i in range(len(KEYS))],
    }
    pq.write_table(pa.table(columns), tmp_path / "heap.parquet")
    with (tmp_path / "keys.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([["key"], *([key] for key in [*KEYS[1:6], "elsewhere"])])
    return tmp_path


def kept(folder, name="kept"):
    return pl.read_parquet(folder / f"{name}.parquet")["key"].to_list()


def test_keys_keeps_what_without_keys_drops(dataset):
    curate.filter(dataset / "heap.parquet", dataset / "kept.parquet", keys=dataset / "keys.csv")
    curate.filter(dataset / "heap.parquet", dataset / "others.parquet", without_keys=dataset / "keys.csv")
    assert kept(dataset) == KEYS[1:6]
    assert kept(dataset, "others") == [KEYS[0], KEYS[6]]


def test_the_reason_names_the_file_and_the_receipt_needs_it_no_more(dataset):
    result = run(
        "filter",
        dataset / "heap.parquet",
        "--without-keys",
        dataset / "keys.csv",
        "--max",
        "5",
        "-o",
        dataset / "k.parquet",
    )
    assert f"--without-keys {dataset / 'keys.csv'}: 5 of 6 keys are in the table" in result.output
    (dataset / "keys.csv").unlink()
    assert verify(dataset / "k.receipt.json").identical
    reasons = dict(pl.read_parquet(dataset / "k.decisions.parquet").select("key", "reason").iter_rows())
    assert reasons["b,c"] == f"is listed in {dataset / 'keys.csv'}"
    assert reasons[" spaced "] == "unc_x 6 is above the maximum 5"
    assert kept(dataset, "k") == ["a"]


def test_a_key_that_a_spreadsheet_was_warned_of_is_found(dataset):
    (dataset / "guarded.csv").write_text("key\n'=1+1\n")
    curate.filter(dataset / "heap.parquet", dataset / "kept.parquet", keys=dataset / "guarded.csv")
    assert kept(dataset) == ["=1+1"]


def test_a_file_without_keys_or_with_too_many_is_refused(dataset, monkeypatch):
    (dataset / "empty.csv").write_text("key\n")
    with pytest.raises(InputError, match=r"empty\.csv .*no key"):
        curate.filter(dataset / "heap.parquet", keys=dataset / "empty.csv", dry_run=True)
    (dataset / "other.csv").write_text("name\na\n")
    with pytest.raises(InputError, match="has no column 'key'"):
        curate.filter(dataset / "heap.parquet", without_keys=dataset / "other.csv", dry_run=True)
    monkeypatch.setattr("curate.policies.filter.named.MOST_KEYS", 5)
    with pytest.raises(InputError, match="5 keys, got 6"):
        curate.filter(dataset / "heap.parquet", keys=dataset / "keys.csv", dry_run=True)


def test_a_receipt_with_other_keys_no_longer_verifies(dataset):
    curate.filter(dataset / "heap.parquet", dataset / "kept.parquet", keys=dataset / "keys.csv")
    receipt = json.loads((dataset / "kept.receipt.json").read_text())
    other = json.loads(json.dumps(receipt).replace('"b,c"', '"a"'))
    (dataset / "kept.receipt.json").write_bytes(sealed(other))
    assert not verify(dataset / "kept.receipt.json").identical


@pytest.mark.parametrize("flag", ["--keys", "--without-keys"])
@pytest.mark.parametrize("name", ["kept.parquet", "kept.decisions.parquet"])
def test_what_names_keys_is_not_written_over(dataset, flag, name):
    pq.write_table(pa.table({"key": KEYS[:2]}), dataset / name)
    before = (dataset / name).read_bytes()
    line = ["filter", dataset / "heap.parquet", flag, dataset / name, "-o", dataset / "kept.parquet", "--overwrite"]
    result = run(*line)
    assert result.exit_code == 1
    assert f"{name} is read by {flag} and would be overwritten" in " ".join(result.stderr.split())
    assert (dataset / name).read_bytes() == before
    assert len(list(dataset.glob("kept*"))) == 1


def test_a_subset_does_not_become_a_part_of_what_names_keys(dataset):
    (dataset / "parts").mkdir()
    pq.write_table(pa.table({"key": KEYS[:2]}), dataset / "parts/part-000000.parquet")
    with pytest.raises(InputError, match="read by --keys"):
        curate.filter(dataset / "heap.parquet", dataset / "parts/part-000001.parquet", keys=dataset / "parts")
    curate.filter(dataset / "heap.parquet", dataset / "kept.parquet", keys=dataset / "parts")
    assert kept(dataset) == KEYS[:2]
    assert json.loads((dataset / "kept.receipt.json").read_text())["read"] == {}
