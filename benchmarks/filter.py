"""Filter a million rows with 384-wide float16 embeddings; print peak memory and seconds.

    python benchmarks/filter.py [--rows 1000000] [--width 384] [--folder DIR]

The table is made first (about 800 MB for the default), then ``curate filter --keep-top 80%`` runs in a process
by itself; its peak resident memory is what counts: the promise is less than 1 GB.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_MB = 1000
MAKE = """
import sys
import numpy as np, pyarrow as pa
from curate.tables.table import embedding_field
from curate.tables.writer import TableWriter
path, rows, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
generator = np.random.default_rng(0)
field = embedding_field(width)
schema = pa.schema([("key", pa.string()), ("status", pa.string()), ("label", pa.string()),
                    ("kappa_made_up", pa.float32()), field])
labels = np.array([f"class-{i:03}" for i in range(100)], object)
with TableWriter(path, schema, {"kind": "scores"}) as writer:
    for start in range(0, rows, 32768):
        n = min(32768, rows - start)
        values = generator.standard_normal((n, width), np.float32).astype(np.float16)
        writer.write(pa.table([
            [f"folder-{i % 1000:04}/image-{i:08}.jpg" for i in range(start, start + n)],
            ["ok"] * n, labels[generator.integers(0, 100, n)],
            np.round(generator.gamma(2, 10, n), 2).astype(np.float32),
            pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), type=field.type)], schema=schema))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--folder", type=Path, default=None, help="where the tables go; default a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        return measure(Path(folder), options.rows, options.width)


def measure(folder: Path, rows: int, width: int) -> int:
    table, subset = folder / "scores.parquet", folder / "kept.parquet"
    # One more process between us and the maker, so that its memory is not counted among our children's.
    subprocess.run([sys.executable, "-c", MAKE, str(table), str(rows), str(width)], check=True)
    making = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"table: {rows:,} rows, {width} wide, {table.stat().st_size / 1e6:,.0f} MB (made with {making:,.0f} MB)")
    within = True
    for rules in (["--keep-top", "80%"], ["--where", 'label != "class-007"', "--keep-top", "5000", "--per", "label"]):
        seconds, peak = run_filter(table, subset, rules)
        within &= peak < LIMIT_MB
        print(f"curate filter {' '.join(rules)}: {seconds:.1f} s, peak {peak:,.0f} MB (limit {LIMIT_MB:,} MB)")
    return 0 if within else 1


def run_filter(table: Path, subset: Path, rules: list[str]) -> tuple[float, float]:
    """Run the command in a process that reports the its own peak children: seconds, MB."""
    command = [sys.executable, "-c", "from curate.cli import main; main()", "filter", str(table), "-o", str(subset)]
    watch = (
        "import resource, subprocess, sys\n"
        "code = subprocess.run(sys.argv[1:], stderr=subprocess.DEVNULL).returncode\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)\n"
        "sys.exit(code)"
    )
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", watch, *command, *rules, "--overwrite"], check=True, capture_output=True, text=True
    )
    return time.perf_counter() - start, float(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
