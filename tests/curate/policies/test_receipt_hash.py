"""A receipt of a version that hashed keys otherwise is refused, in one line that names the version and both hashes."""

import json

import numpy as np
import pyarrow as pa
import pytest

from curate.policies.filter.policy import filter
from curate.policies.receipts import sealed
from curate.policies.verify import verify
from curate.tables.writer import TableWriter
from scoring.errors import InputError


@pytest.fixture
def receipt(tmp_path):
    table = pa.table({"key": [f"k{i}" for i in range(20)], "unc_x": np.linspace(0, 1, 20)})
    with TableWriter(tmp_path / "s.parquet", table.schema, {"kind": "scores"}) as writer:
        writer.write(table)
    filter(tmp_path / "s.parquet", tmp_path / "kept.parquet", keep_top="50%", column="unc_x")
    return tmp_path / "kept.receipt.json"


def test_a_receipt_names_the_hash_of_keys(receipt):
    assert json.loads(receipt.read_text())["hash"] == "xxh64 of keys and rows"
    assert verify(receipt).identical


@pytest.mark.parametrize(("change", "named"), [({"hash": "xxh64"}, "by xxh64,"), ({}, "BLAKE2b")])
def test_another_hash_is_refused(receipt, change, named):
    value = {name: each for name, each in json.loads(receipt.read_text()).items() if name != "hash"}
    receipt.write_bytes(sealed({**value, **change, "curate": "0.0.9"}))
    with pytest.raises(InputError) as caught:
        verify(receipt)
    assert all(word in str(caught.value) for word in ("0.0.9", named, "xxh64 of keys and rows"))
    assert "\n" not in str(caught.value)
