"""Time grows with the number of columns, not with its square."""

import gc
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curate
from curate.manifest.contract import SourceOptions
from curate.manifest.sources import open_manifest
from curate.tables.table import open_table
from curate.tables.writer import TableWriter

FEW, MANY = 500, 4_000
MOST = 24  # times as long for 8 times as many columns; their square takes 64 times as long


def wide(n):
    numbers = pa.array([1.0, 2.0])
    return {"key": pa.array(["a", "b"]), "uri": pa.array(["a", "b"]), **{f"c{i}": numbers for i in range(n)}}


def as_table(path):
    table = open_table(path)
    assert next(iter(table.batches())).num_columns == len(table.schema.names)


def as_manifest(path):
    manifest = open_manifest([path], SourceOptions())
    assert manifest.rows(0, 2).num_rows == 2


def as_csv(path):
    curate.export(path, path.with_suffix(".csv"), to="csv", take=["*"], overwrite=True)


def processor_time(read, path):
    gc.collect()
    gc.disable()  # looking for garbage takes as long as everything that other tests left in memory
    try:
        began = time.process_time()
        read(path)
        return time.process_time() - began
    finally:
        gc.enable()


SELDOM = [pytest.param(read, marks=pytest.mark.slow) for read in (as_manifest, as_csv)]


@pytest.mark.parametrize("read", [as_table, *SELDOM], ids=lambda read: read.__name__)
def test_time_grows_with_the_number_of_columns(tmp_path, read):
    seconds = {}
    for n in (FEW, MANY):
        columns, path = pa.table(wide(n)), tmp_path / f"{n}.parquet"
        if read is as_manifest:
            pq.write_table(columns.rename_columns(["key", "path", *columns.column_names[2:]]), path)
        else:
            with TableWriter(path, columns.schema, {"kind": "scores"}) as writer:
                writer.write(columns)
        read(path)  # what is loaded once
        seconds[n] = min(processor_time(read, path) for _ in range(3))
    assert seconds[MANY] < MOST * seconds[FEW]


def test_all_columns_share_the_memory_of_buffers(tmp_path, monkeypatch):
    opened, sizes = pq.ParquetFile, []
    monkeypatch.setattr(pq, "ParquetFile", lambda *a, **k: sizes.append(k["buffer_size"]) or opened(*a, **k))
    for n in (10, MANY):
        pq.write_table(pa.table(wide(n)), tmp_path / "a.parquet")
        as_table(tmp_path / "a.parquet")
        assert sizes[-1] * n <= 64 << 20
    assert sizes[-1] < sizes[0] == 1 << 20
