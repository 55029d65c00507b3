"""A scored table as other tools read it: the same rows, values and nulls in each."""

import math

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from commandline import run
from PIL import Image

duckdb = pytest.importorskip("duckdb")
datasets = pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def scored(tmp_path_factory, tiny_checkpoint):
    folder = tmp_path_factory.mktemp("alike")
    (folder / "photos").mkdir()
    for i in range(5):
        Image.new("RGB", (40, 30), (50 * i, 0, 99)).save(folder / "photos" / f"{i}.png")
    (folder / "photos" / "5.png").write_bytes(b"not an image")
    done = run("score", folder / "photos", "-o", folder / "s.parquet", "--model", tiny_checkpoint)
    assert done.exit_code == 0, done.output
    return folder / "s.parquet"


def values_of(rows):
    """Rows as plain values that compare: numbers exactly, embeddings as lists, bytes and nulls as they are."""
    return [
        {
            name: [float(x) for x in value] if isinstance(value, list | tuple | np.ndarray) else value
            for name, value in row.items()
        }
        for row in rows
    ]


def test_every_tool_reads_the_same(scored, tmp_path):
    expected = values_of(pq.read_table(scored).to_pylist())
    assert expected[-1]["embedding"] is None
    assert math.isclose(sum(x * x for x in expected[0]["embedding"]), 1, abs_tol=1e-2)
    assert values_of(pl.read_parquet(scored).to_dicts()) == expected
    relation = duckdb.sql(f"select * from read_parquet('{scored}')")
    records = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    assert values_of(records) == expected
    loaded = datasets.load_dataset("parquet", data_files=str(scored), split="train", cache_dir=str(tmp_path))
    assert values_of(loaded) == expected
