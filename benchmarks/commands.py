"""Processor time and peak memory of commands on large tables, made up in the likeness of a scored one.

    python benchmarks/commands.py SCORES [--rows 10000 100000 1000000] [--commands labels dedup] [--width 384]

Rows are drawn from SCORES. Embeddings, signatures and labels are made up: 100 classes of eight groups each, 5 % of the
labels wrong, 1 % copies with equal bytes and 1 % near copies. A command is stopped after ten minutes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from curate.tables.table import embedding_field
from curate.tables.writer import TableWriter
from scoring.images.signature import CHROMA_WIDTH, STORED_WIDTH, WIDTH

CLASSES, GROUPS, BLOCK = 100, 8, 32_768
LIMIT = 600  # seconds
COMMANDS = {
    "info": "info {table}",
    "filter": "filter {table} --keep-top 80% -o {out}/kept.parquet",
    "issues": "issues {table} --drop unusable -o {out}/usable.parquet",
    "split": "split {table} --train 80% --val 10% --test 10% -o {out}/split.parquet",
    "dedup": "dedup {table} -o {out}/unique.parquet",
    "balance": "balance {table} --per label -o {out}/balanced.parquet",
    "select k-means": "select {table} --budget 500 --strategy k-means -o {out}/means.parquet",
    "select k-center": "select {table} --budget 500 --strategy k-center -o {out}/center.parquet",
    "select herding": "select {table} --budget 500 --strategy herding -o {out}/herding.parquet",
    "labels": "labels {table} --label label -o {out}/labels.parquet",
    "calibrate": "calibrate {table} --label label --apply {out}/calibrated.parquet",
    "fit": "fit {table} --apply {out}/fitted.parquet",
    "evaluate": "evaluate {table} --label label -o {out}/evaluated.json",
    "compare": "compare {table} {out}/kept.parquet -o {out}/compared.json",
    "report": "report {table} {out}/kept.parquet -o {out}/report.html",
    "export csv": "export {out}/kept.parquet --to csv -o {out}/kept.csv",
    "export jsonl": "export {out}/kept.parquet --to jsonl -o {out}/kept.jsonl",
    "diff": "diff {out}/kept.parquet {out}/usable.parquet -o {out}/diff.parquet",
    "verify": "verify {out}/kept.receipt.json",
    "explain": "explain {out}/kept.parquet folder-0000/image-00000000.jpg",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scores", type=Path, help="a scored table with a column label, whose rows are drawn")
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--width", type=int, default=384, help="numbers of an embedding")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--folder", type=Path, default=None, help="where the tables go; default a temporary folder")
    options = parser.parse_args()
    print(f"{'command':<16} {'rows':>10} {'CPU s':>8} {'peak MB':>8}")
    for rows in options.rows:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            table = Path(folder) / "scores.parquet"
            make(options.scores, table, rows, options.width)
            for name in options.commands:
                seconds, peak, code = run(COMMANDS[name].format(table=table, out=folder).split())
                stopped = "" if code in (0, 1) else f" exit code {code}"
                print(f"{name:<16} {rows:>10,} {seconds:>8.1f} {peak:>8,.0f}{stopped}", flush=True)
    return 0


def run(arguments: list[str]) -> tuple[float, float, int]:
    """Run a command by itself: processor seconds, peak MB, exit code (diff exits with 1 for a difference)."""
    command = ["timeout", str(LIMIT), sys.executable, "-m", "curate", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, os.waitstatus_to_exitcode(status)


def make(scores: Path, path: Path, rows: int, width: int) -> None:
    """Write a table of made-up rows."""
    pattern, generator = pq.read_table(scores), np.random.default_rng(0)
    metadata = json.loads(pattern.schema.metadata[b"curate"])
    metadata["classes"] = {"label": [f"class-{number:03}" for number in range(CLASSES)]}
    fields = {"embedding": embedding_field(width), "label": pa.field("label", pa.string())}
    schema = pa.schema([fields.get(field.name, field.remove_metadata()) for field in pattern.schema])
    centres = generator.standard_normal((CLASSES, GROUPS, width), np.float32)
    centres += 1.5 * generator.standard_normal((CLASSES, 1, width), np.float32)
    with TableWriter(path, schema, {k: v for k, v in metadata.items() if k not in ("curate", "columns")}) as writer:
        for start in range(0, rows, BLOCK):
            n = min(BLOCK, rows - start)
            drawn, near = generator.integers(0, len(pattern), n), np.arange(1, n)[generator.random(n - 1) < 0.02]
            drawn[near] = drawn[near - 1]  # copies of the row before
            block = pattern.take(pa.array(drawn))
            columns = {name: block[name].combine_chunks() for name in schema.names}
            columns |= made_up(generator, centres, near, start, n)
            writer.write(pa.table([columns[name] for name in schema.names], schema=schema))


def made_up(generator: np.random.Generator, centres: NDArray, near: NDArray, start: int, n: int) -> dict[str, pa.Array]:
    """Return the columns of a block that are not drawn."""
    width = centres.shape[2]
    true = generator.integers(0, CLASSES, n)
    vectors = centres[true, generator.integers(0, GROUPS, n)] + 1.2 * generator.standard_normal((n, width))
    grey = generator.standard_normal((n, WIDTH)) * np.linspace(1, 0.4, WIDTH)
    grey *= 127 / np.abs(grey).max(1, keepdims=True)
    colour = np.repeat(generator.integers(-20, 20, (n, 2)), CHROMA_WIDTH // 2, 1)
    digests = [row.tobytes().hex() for row in generator.integers(0, 256, (n, 32), np.uint8)]
    vectors[near] = vectors[near - 1] + 0.01 * generator.standard_normal((len(near), width))
    grey[near] = np.clip(grey[near - 1] + generator.integers(-2, 3, (len(near), WIDTH)), -127, 127)
    colour[near] = colour[near - 1]
    for row in near[: len(near) // 2].tolist():
        vectors[row], grey[row], digests[row] = vectors[row - 1], grey[row - 1], digests[row - 1]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    label = np.where(generator.random(n) < 0.05, generator.integers(0, CLASSES, n), true)
    keys = [f"folder-{number % 1000:04}/image-{number:08}.jpg" for number in range(start, start + n)]
    signature = np.ascontiguousarray(np.hstack([np.rint(grey), colour]).astype(np.int8))
    flat = pa.array(vectors.astype(np.float16).ravel())
    return {
        "key": pa.array(keys),
        "uri": pa.array([f"/data/{key}" for key in keys]),
        "label": pa.array([f"class-{number:03}" for number in label]),
        "sha256": pa.array(digests),
        "phash": pa.array(generator.integers(0, 2**63, n).astype(np.uint64)),
        "signature": pa.FixedSizeBinaryArray.from_buffers(pa.binary(STORED_WIDTH), n, [None, pa.py_buffer(signature)]),
        "embedding": pa.FixedSizeListArray.from_arrays(flat, type=embedding_field(width).type),
    }


if __name__ == "__main__":
    sys.exit(main())
