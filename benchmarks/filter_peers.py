"""`curate filter` next to Polars and DuckDB that make the same decision, subset and decisions file; by rows.

    python benchmarks/filter_peers.py [--rows 10000 100000 1000000] [--rounds 5] [--folder DIR] [--csv FILE]
    python benchmarks/filter_peers.py --rules '--where "label != '"'class-007'"'" --drop-bottom 20%'

Tables have a key of 30 bytes, a status, a class of a hundred and one score. Processor time and peak memory are of whole
processes, imports included, all three in turn. The others write no receipt, hash nothing and check no key. Ratios are
medians over rounds with 95 % bootstrap intervals, also of the exponent by which time grows with the rows. With other
rules, only `curate filter` runs.
"""

import argparse
import csv
import shlex
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

DUCKDB = """
import sys
import duckdb
table, folder = sys.argv[1:3]
db = duckdb.connect()
db.execute("set enable_progress_bar = false")
db.execute(f'''create temp table ranked as select *, row_number() over (order by unc_made_up, key) as place,
    row_number() over () as row from read_parquet('{table}')''')
[(n,)] = db.sql("select round(0.8 * count(*))::bigint from ranked").fetchall()
[(cut,)] = db.sql(f"select unc_made_up from ranked where place = {n}").fetchall()
db.execute(f'''copy (select * exclude (place, row) from ranked where place <= {n} order by row)
    to '{folder}/duck.parquet' (format parquet, compression zstd)''')
db.execute(f'''copy (select key, if(place <= {n}, 'keep', 'drop') as decision,
    printf('unc_made_up %.6g is %s the lowest 80%% (cut {cut:.6g})', unc_made_up::double,
        if(place <= {n}, 'in', 'above')) as reason,
    '--keep-top 80%' as rule, unc_made_up::double as score, {cut}::double as threshold,
    {cut} - unc_made_up::double as margin
    from ranked order by row) to '{folder}/duck.decisions.parquet' (format parquet, compression zstd)''')
"""
NAMES = ("curate", "Polars", "DuckDB")
RULES = "--keep-top 80%"  # which the others apply too
DRAWS = 2000
Costs = dict[int, "np.ndarray"]  # rows -> seconds and MB, (rounds, 3 or 1, 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=5, help="of all three in turn")
    parser.add_argument("--rules", default=RULES, help="of curate filter, as typed")
    parser.add_argument("--folder", type=Path, default=None, help="where the tables go; default a temporary folder")
    parser.add_argument("--csv", type=Path, default=None, help="file for the numbers")
    options = parser.parse_args()
    costs: Costs = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for n in options.rows:
            costs[n] = measure(Path(folder), n, options.rounds, options.rules)
    show(summary(costs), options.csv)
    return 0


def show(lines: list[list[str]], path: Path | None) -> None:
    """Print a table, and write it as CSV where a path is given."""
    for line in lines:
        print("| " + " | ".join(line) + " |", flush=True)
    if path is not None:
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)


def measure(folder: Path, n: int, rounds: int, rules: str) -> np.ndarray:
    """Return processor time in seconds and peak memory in MB on a table of n rows, shape (rounds, 3 or 1, 2)."""
    table = folder / f"scores-{n}.parquet"
    make(table, n)
    ours = [sys.executable, "-m", "curate", "filter", str(table), *shlex.split(rules), "--column", "unc_made_up"]
    ours += ["--allow-uneven", "--overwrite", "-o", str(folder / "kept.parquet")]
    scripts = (PLAIN, DUCKDB) if rules == RULES else ()
    others = [[sys.executable, "-c", script, str(table), str(folder)] for script in scripts]
    return np.array([[cost(command) for command in (ours, *others)] for _ in range(rounds)])


def summary(costs: Costs) -> list[list[str]]:
    """Return the table: a line for each number of rows, and one for the exponents."""
    names = NAMES[: min(values.shape[1] for values in costs.values())]
    lines = [["rows", *(f"{name}: s, MB" for name in names), *(f"curate / {name}" for name in names[1:])]]
    for n, values in costs.items():
        seconds, memory = np.median(values, axis=0).T
        ratios = [interval(values[:, 0, 0] / values[:, at, 0]) for at in range(1, len(names))]
        each = [f"{second:.2f}, {mb:.0f}" for second, mb in zip(seconds, memory, strict=True)]
        lines.append([f"{n}", *each, *ratios])
    first, last = min(costs), max(costs)
    if last > first:
        grown = np.log(costs[last][..., 0] / costs[first][..., 0]) / np.log(last / first)  # (rounds, 3 or 1)
        lines.append(
            [
                f"exponent from {first} to {last}",
                *(interval(grown[:, at]) for at in range(len(names))),
                *[""] * (len(names) - 1),
            ]
        )
    return lines


def interval(values: np.ndarray) -> str:
    """Return the median with its 95 % bootstrap interval, as text."""
    drawn = np.random.default_rng(0).choice(values, (DRAWS, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return f"{np.median(values):.2f} [{low:.2f}, {high:.2f}]"


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
