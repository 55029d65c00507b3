"""Rows kept and dropped by a file of keys."""

import csv
import json

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run

import curate
from curate.policies.seal import sealed
from curate.policies.verify import verify
from scoring.errors import InputError

KEYS = ["a", "b,c", 'd"e', "=1+1", "\u202egnp.x", "line\nbreak", " spaced ", "gone"]


@pytest.fixture
def heap(tmp_path):
    """Rows of odd keys; the last one failed. A CSV names some of them, and one that is not there."""
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


def test_keys_keeps_what_without_keys_drops(heap):
    curate.filter(heap / "heap.parquet", heap / "kept.parquet", keys=heap / "keys.csv")
    curate.filter(heap / "heap.parquet", heap / "others.parquet", without_keys=heap / "keys.csv")
    assert kept(heap) == KEYS[1:6]
    assert kept(heap, "others") == [KEYS[0], KEYS[6]]


def test_the_reason_names_the_file_and_the_receipt_needs_it_no_more(heap):
    result = run(
        "filter", heap / "heap.parquet", "--without-keys", heap / "keys.csv", "--max", "5", "-o", heap / "k.parquet"
    )
    assert f"--without-keys {heap / 'keys.csv'}: 5 of 6 keys are in the table" in result.output
    (heap / "keys.csv").unlink()
    assert verify(heap / "k.receipt.json").identical
    reasons = dict(pl.read_parquet(heap / "k.decisions.parquet").select("key", "reason").iter_rows())
    assert reasons["b,c"] == f"is named in {heap / 'keys.csv'}"
    assert reasons[" spaced "] == "unc_x 6 is above the maximum 5"
    assert kept(heap, "k") == ["a"]


def test_a_key_that_a_spreadsheet_was_warned_of_is_found(heap):
    (heap / "guarded.csv").write_text("key\n'=1+1\n")
    curate.filter(heap / "heap.parquet", heap / "kept.parquet", keys=heap / "guarded.csv")
    assert kept(heap) == ["=1+1"]


def test_a_file_without_keys_or_with_too_many_is_refused(heap, monkeypatch):
    (heap / "empty.csv").write_text("key\n")
    with pytest.raises(InputError, match=r"--keys .*empty.csv names no key"):
        curate.filter(heap / "heap.parquet", keys=heap / "empty.csv", dry_run=True)
    (heap / "other.csv").write_text("name\na\n")
    with pytest.raises(InputError, match="has no column 'key'"):
        curate.filter(heap / "heap.parquet", without_keys=heap / "other.csv", dry_run=True)
    monkeypatch.setattr("curate.policies.filter.named.MOST_KEYS", 5)
    with pytest.raises(InputError, match=r"--keys takes up to 5 keys, got 6 in .*keys.csv"):
        curate.filter(heap / "heap.parquet", keys=heap / "keys.csv", dry_run=True)


def test_a_receipt_with_other_keys_no_longer_verifies(heap):
    curate.filter(heap / "heap.parquet", heap / "kept.parquet", keys=heap / "keys.csv")
    receipt = json.loads((heap / "kept.receipt.json").read_text())
    other = json.loads(json.dumps(receipt).replace('"b,c"', '"a"'))
    (heap / "kept.receipt.json").write_bytes(sealed(other))
    assert not verify(heap / "kept.receipt.json").identical


@pytest.mark.parametrize("flag", ["--keys", "--without-keys"])
@pytest.mark.parametrize("name", ["kept.parquet", "kept.decisions.parquet"])
def test_what_names_keys_is_not_written_over(heap, flag, name):
    pq.write_table(pa.table({"key": KEYS[:2]}), heap / name)
    before = (heap / name).read_bytes()
    line = ["filter", heap / "heap.parquet", flag, heap / name, "-o", heap / "kept.parquet", "--overwrite"]
    result = run(*line)
    assert result.exit_code == 1
    assert f"{name} is read by {flag} and would be written over" in " ".join(result.stderr.split())
    assert (heap / name).read_bytes() == before
    assert len(list(heap.glob("kept*"))) == 1


def test_a_subset_does_not_become_a_part_of_what_names_keys(heap):
    (heap / "parts").mkdir()
    pq.write_table(pa.table({"key": KEYS[:2]}), heap / "parts/part-000000.parquet")
    with pytest.raises(InputError, match="parts is read by --keys"):
        curate.filter(heap / "heap.parquet", heap / "parts/part-000001.parquet", keys=heap / "parts")
    curate.filter(heap / "heap.parquet", heap / "kept.parquet", keys=heap / "parts")
    assert kept(heap) == KEYS[:2]
    assert json.loads((heap / "kept.receipt.json").read_text())["read"] == {}
