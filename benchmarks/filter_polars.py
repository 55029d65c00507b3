"""`curate filter` next to plain Polars that makes the same decision, subset and decisions file; by rows.

    python benchmarks/filter_polars.py [--rows 100000 300000 1000000 3000000] [--rounds 1] [--folder DIR]

Tables have a key of 30 bytes, a status, a class of a hundred and one score. Processor time and peak memory are of whole
processes, imports included. Plain Polars writes no receipt, hashes nothing and checks no key.
"""

import argparse
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.tables.writer import TableWriter

GROUP = 32_768
COST = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
sys.stderr.buffer.write(done.stderr)
"""
PLAIN = """
import sys
import polars as pl
table, folder = sys.argv[1:3]
rows = pl.read_parquet(table).with_row_index("row")
n = round(0.8 * len(rows))
cut = rows["unc_made_up"].sort()[n - 1]
below = rows.select((pl.col("unc_made_up") < cut).sum()).item()
tied = rows.filter(pl.col("unc_made_up") == cut).sort("key")["row"].head(n - below)
score = pl.col("unc_made_up")
rows = rows.with_columns(kept=(score < cut) | pl.col("row").is_in(tied.implode()))
rows.filter("kept").drop("row", "kept").write_parquet(f"{folder}/plain.parquet", compression="zstd")
reason = "unc_made_up {} is {} the lowest 80% (cut {})"
side = pl.when("kept").then(pl.lit("in")).otherwise(pl.lit("above"))
rows.select(
    "key",
    pl.when("kept").then(pl.lit("keep")).otherwise(pl.lit("drop")).alias("decision"),
    pl.format(reason, score.round_sig_figs(6), side, pl.lit(cut)).alias("reason"),
    pl.lit("--keep-top 80%").alias("rule"),
    score.cast(pl.Float64).alias("score"),
    pl.lit(float(cut)).alias("threshold"),
    (cut - score).cast(pl.Float64).alias("margin"),
).write_parquet(f"{folder}/plain.decisions.parquet", compression="zstd")
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 300_000, 1_000_000, 3_000_000])
    parser.add_argument("--rounds", type=int, default=1, help="of both in turn; medians count")
    parser.add_argument("--folder", type=Path, default=None, help="where the tables go; default a temporary folder")
    options = parser.parse_args()
    costs = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        print("| rows | plain Polars | `curate filter` | ratio |\n| --- | --- | --- | --- |")
        for n in options.rows:
            costs[n] = measure(Path(folder), n, options.rounds)
            (plain, plain_mb), (ours, ours_mb) = costs[n]
            print(
                f"| {n:,} | {plain:.2f} s, {plain_mb:,.0f} MB | {ours:.2f} s, {ours_mb:,.0f} MB | {ours / plain:.2f} |"
            )
    first, last = options.rows[0], options.rows[-1]
    if last > first:
        grown = [math.log(costs[last][at][0] / costs[first][at][0]) / math.log(last / first) for at in (0, 1)]
        print(f"exponent from {first:,} to {last:,} rows: plain Polars {grown[0]:.2f}, curate filter {grown[1]:.2f}")
    return 0


def measure(folder: Path, n: int, rounds: int) -> list[tuple[float, float]]:
    """Return the processor time in seconds and the peak memory in MB of both, on a table of n rows."""
    table = folder / f"scores-{n}.parquet"
    make(table, n)
    plain = [sys.executable, "-c", PLAIN, str(table), str(folder)]
    ours = [sys.executable, "-m", "curate", "filter", str(table), "--keep-top", "80%", "--column", "unc_made_up"]
    ours += ["--allow-uneven", "--overwrite", "-o", str(folder / "kept.parquet")]
    costs = [[cost(command) for command in (plain, ours)] for _ in range(rounds)]
    return [tuple(float(np.median([each[at][i] for each in costs])) for i in (0, 1)) for at in (0, 1)]  # type: ignore[misc]


def make(table: Path, n: int) -> None:
    """Write a table of n rows."""
    generator = np.random.default_rng(0)
    classes = np.array([f"class-{i:03}" for i in range(100)], object)
    kinds = {"key": pa.string(), "status": pa.string(), "label": pa.string(), "unc_made_up": pa.float32()}
    with TableWriter(table, pa.schema(list(kinds.items())), {"kind": "scores"}) as writer:
        for start in range(0, n, GROUP):
            rows = range(start, min(start + GROUP, n))
            keys = [f"folder-{i % 1000:04}/image-{i:08}.jpg" for i in rows]
            scores = np.round(generator.gamma(2, 10, len(rows)), 4).astype(np.float32)
            columns = [keys, ["ok"] * len(rows), classes[generator.integers(0, 100, len(rows))], scores]
            writer.write(pa.table(columns, schema=pa.schema(list(kinds.items()))))


def cost(command: list[str]) -> tuple[float, float]:
    """Return the processor time in seconds and the peak memory in MB of a process."""
    done = subprocess.run([sys.executable, "-c", COST, *command], check=True, capture_output=True, text=True)
    code, seconds, memory = done.stdout.split()
    if code != "0":
        raise RuntimeError(done.stderr)
    return float(seconds), float(memory)


if __name__ == "__main__":
    sys.exit(main())
