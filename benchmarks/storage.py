"""What a table costs to write and to read, by layout: the one that curate writes, and those that it could.

    python benchmarks/storage.py [--rows 200000] [--width 384] [--scores 10000000] [--folder DIR]

First a table with embeddings in every layout: its size, rows a second written, and how long one score column and all
embeddings take to read by pyarrow and by polars. Then a table of scores alone, of which one column is read. Seconds are
of the processor, one thread, the least of three, so that other work on the machine does not count.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.tables.table import embedding_field
from curate.tables.writer import ROW_GROUP_ROWS, TableWriter

SCORES = ("kappa_made_up", "unc_made_up", "unc_fitted")
BATCH = 4096  # rows that a shard of `curate score` brings
OTHERS: dict[str, dict[str, Any]] = {  # layouts next to our own: as pyarrow writes them
    "list, zstd and byte-stream split": {"compression": "zstd", "use_byte_stream_split": ["embedding.list.element"]},
    "list, zstd": {"compression": "zstd"},
    "list, nothing, a dictionary": {"compression": "none", "use_dictionary": True},
    "list, row groups of 8,192": {"compression": "none", "row_group_size": 8192},
    "list, row groups of 131,072": {"compression": "none", "row_group_size": 131_072},
    "list, no page checksums": {"compression": "none", "write_page_checksum": False},
    "binary, nothing": {"compression": "none", "binary": True},
}


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the least processor time of some repeats."""
    least = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        work()
        least = min(least, time.process_time() - began)
    return least


def scores_of(start: int, n: int, generator: np.random.Generator) -> dict[str, Any]:
    """Return n made-up rows without embeddings."""
    number = pc.utf8_lpad(pc.cast(pa.array(np.arange(start, start + n)), pa.string()), 9, "0")
    values = generator.gamma(2, 10, (len(SCORES), n)).astype(np.float32)
    return {
        "key": pc.binary_join_element_wise("folder/", number, ".jpg", ""),
        "status": pa.array(["ok"] * n),
        **{name: pa.array(column) for name, column in zip(SCORES, values, strict=True)},
    }


def batches(rows: int, width: int) -> list[pa.RecordBatch]:
    """Return made-up rows in batches, with embeddings where they have a width."""
    generator = np.random.default_rng(0)
    field = embedding_field(width) if width else None
    made = []
    for start in range(0, rows, BATCH):
        n = min(BATCH, rows - start)
        columns = scores_of(start, n, generator)
        if field is not None:
            vectors = generator.standard_normal((n, width), np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            flat = pa.array(vectors.astype(np.float16).ravel())
            columns["embedding"] = pa.FixedSizeListArray.from_arrays(flat, type=field.type)
        made.append(pa.RecordBatch.from_pydict(columns))
    return made


def write_ours(path: Path, rows: list[pa.RecordBatch]) -> None:
    """Write rows as `curate` does."""
    with TableWriter(path, rows[0].schema, {"kind": "scores"}, overwrite=True) as writer:
        for batch in rows:
            writer.write(batch)


def write_other(path: Path, rows: list[pa.RecordBatch], options: dict[str, Any]) -> None:
    """Write rows in another layout; page checksums unless the layout says otherwise."""
    options = {"use_dictionary": False, "write_page_checksum": True, **options}
    size = options.pop("row_group_size", ROW_GROUP_ROWS)
    table = pa.Table.from_batches(rows)
    if options.pop("binary", False):
        column = table.column("embedding")
        width = column.type.list_size * 2
        packed = [
            pa.Array.from_buffers(pa.binary(width), len(chunk), [None, chunk.flatten().buffers()[1]])
            for chunk in column.chunks
        ]
        table = table.set_column(table.schema.get_field_index("embedding"), "embedding", pa.chunked_array(packed))
    pq.write_table(table, path, row_group_size=size, **options)


def main() -> None:
    """Print a line a layout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--scores", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=None)
    typed = parser.parse_args()
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory(dir=typed.folder) as folder:
        path = Path(folder) / "table.parquet"
        rows = batches(typed.rows, typed.width)
        print(f"{typed.rows:,} rows, embeddings of {typed.width} float16")
        print(f"{'layout':<36}{'MB':>7}{'rows/s written':>16}{'one score':>11}{'embeddings':>12}{'polars':>9}")
        layouts: dict[str, Callable[[], None]] = {"curate's: list, scores in zstd": lambda: write_ours(path, rows)}
        for name, options in OTHERS.items():
            layouts[name] = lambda options=options: write_other(path, rows, options)  # type: ignore[misc]
        for name, write in layouts.items():
            rate = typed.rows / seconds(write)
            column_seconds = seconds(lambda: pq.read_table(path, columns=[SCORES[0]], use_threads=False))
            all_ = seconds(lambda: pq.read_table(path, columns=["embedding"], use_threads=False))
            polars = seconds(lambda: pl.read_parquet(path, columns=["embedding"]))
            size = path.stat().st_size / 1e6
            print(
                f"{name:<36}{size:7,.0f}{rate:16,.0f}{column_seconds * 1e3:8.0f} ms{all_:10.2f} s{polars:7.2f} s",
                flush=True,
            )
        if typed.scores:
            measure_scores(path, typed.scores)


def measure_scores(path: Path, n: int) -> None:
    """Print how long one score column of a table without embeddings takes to read."""
    generator = np.random.default_rng(0)
    first = pa.RecordBatch.from_pydict(scores_of(0, 1, generator))
    with TableWriter(path, first.schema, {"kind": "scores"}, overwrite=True) as writer:
        for start in range(0, n, 1 << 20):
            writer.write(pa.RecordBatch.from_pydict(scores_of(start, min(1 << 20, n - start), generator)))
    arrow = seconds(lambda: pq.read_table(path, columns=[SCORES[0]], use_threads=False))
    polars = seconds(lambda: pl.read_parquet(path, columns=[SCORES[0]]))
    checked = seconds(
        lambda: pq.read_table(path, columns=[SCORES[0]], use_threads=False, page_checksum_verification=True)
    )
    print(
        f"{n:,} rows of scores, {path.stat().st_size / 1e6:,.0f} MB: one column in {arrow:.2f} s by pyarrow, "
        f"{checked:.2f} s with checksums verified, {polars:.2f} s by polars"
    )


if __name__ == "__main__":
    main()
