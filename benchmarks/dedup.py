"""Deduplicate tables of growing size with the command itself; print seconds, peak memory and what it found.

    python benchmarks/dedup.py [--rows 10000 100000 1000000] [--width 384] [--folder DIR]

Each table is made first: rows with signatures and embeddings in clusters as photographs are, a tenth
of them edited copies of others (moved by 1 to 20 % of their length, so some within the thresholds and some beyond), a
hundredth the same file again, and one group of near copies that holds a tenth of all rows. Then each of several
``curate dedup`` commands runs in its own process, whose peak resident memory counts. The promise is 4 GB for a
million rows; ten million, 384 wide, take 40 minutes of processor time and 40 GB of disk.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_MB, PROMISED = 4096, 1_000_000
RUNS = {
    "default": [],
    "mirrored": ["--mirrored"],
    "hash": ["--finder", "hash", "--threshold", "3"],
    "embedding": ["--finder", "embedding", "--threshold", "0.95"],
}
MAKE = """
import hashlib, sys
import numpy as np, pyarrow as pa
from curate.tables.table import embedding_field
from curate.tables.writer import TableWriter
path, n, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(0)
big = n // 10                                  # one group of near copies
centres = {w: rng.standard_normal((max(2, n // 200), w)).astype(np.float32) for w in (width, 255)}
first = rng.integers(0, len(centres[width]), n)
near = {w: centres[w][0] for w in centres}
field = embedding_field(width)
schema = pa.schema([("key", pa.string()), ("sha256", pa.string()), ("phash", pa.uint64()),
                    ("signature", pa.binary(255)), ("status", pa.string()), ("width", pa.int32()),
                    ("height", pa.int32()), ("n_bytes", pa.int64()), field])
def rows_of(ids, w):
    out = np.empty((len(ids), w), np.float32)
    block = np.random.default_rng([int(ids[0]), w])
    out[:] = centres[w][first[ids]] * 0.6 + block.standard_normal((len(ids), w)).astype(np.float32)
    out[ids < big] = near[w]
    out /= np.linalg.norm(out, axis=1, keepdims=True)
    edited = (np.arange(len(ids)) % 10 == 9) | (ids < big)   # a copy of the row before it, or of the one large group
    base = np.where(ids < big, np.arange(len(ids)), np.arange(len(ids)) - 1).clip(0)
    noise = block.standard_normal((len(ids), w)).astype(np.float32)
    noise *= (block.uniform(0.01, 0.2, (len(ids), 1)) / np.sqrt(w)).astype(np.float32)
    out = np.where(edited[:, None], out[base] + noise, out)
    return out / np.linalg.norm(out, axis=1, keepdims=True)
with TableWriter(path, schema, {"kind": "scores"}) as writer:
    for start in range(0, n, 32768):
        ids = np.arange(start, min(start + 32768, n))
        vectors, signs = rows_of(ids, width), rows_of(ids, 255)
        signs = np.rint(signs / np.abs(signs).max(1, keepdims=True) * 127).astype(np.int8)
        same = np.where(ids % 100 == 50, ids - 1, ids)       # the same file again
        at = np.clip(same - start, 0, None)
        vectors, signs = vectors[at], signs[at]
        codes = rng.integers(0, 2**63, len(ids), dtype=np.uint64)[at]
        codes[ids < big] = 12345
        writer.write(pa.table([
            [f"image-{i:09}.jpg" for i in ids], [hashlib.sha256(b"%d" % i).hexdigest() for i in same],
            codes, pa.array([row.tobytes() for row in signs], pa.binary(255)), ["ok"] * len(ids),
            rng.integers(100, 2000, len(ids)).astype(np.int32), rng.integers(100, 2000, len(ids)).astype(np.int32),
            rng.integers(10_000, 900_000, len(ids)),
            pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float16).ravel()), type=field.type)],
            schema=schema))
"""
WATCH = (
    "import resource, subprocess, sys\n"
    "done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)\n"
    "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
    "print(used.ru_maxrss / 1024, used.ru_utime + used.ru_stime)\n"
    "print(done.stderr)\n"
    "sys.exit(done.returncode)"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--folder", type=Path, default=None, help="where the tables go; default a temporary folder")
    options = parser.parse_args()
    within = True
    for n in options.rows:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            table = Path(folder) / "scores.parquet"
            made = [sys.executable, "-c", MAKE, str(table), str(n), str(options.width)]
            subprocess.run(made, check=True)
            print(f"{n:,} rows, embeddings {options.width} wide, {table.stat().st_size / 1e6:,.0f} MB", flush=True)
            for name in options.runs:
                within &= run_command(name, table, Path(folder) / "unique.parquet") or n > PROMISED
    return 0 if within else 1


def run_command(name: str, table: Path, out: Path) -> bool:
    """Run one command and print what it took; return whether it stayed within the memory promised."""
    command = [sys.executable, "-c", "from curate.cli import main; main()", "dedup", str(table), "-o", str(out)]
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", WATCH, *command, "--overwrite", *RUNS[name]], check=True, capture_output=True, text=True
    )
    seconds = time.perf_counter() - start
    first, _, rest = done.stdout.partition("\n")
    peak, cpu = map(float, first.split())
    kept = next(line for line in rest.splitlines() if line.startswith("kept"))
    searched = [line for line in rest.splitlines() if "clusters" in line]
    took = f"{seconds:7.1f} s ({cpu:.1f} s of processor)"
    print(f"  {name:10} {took}  peak {peak:6,.0f} MB  {' '.join(kept.split())}  {' '.join(searched)}", flush=True)
    return peak < LIMIT_MB


if __name__ == "__main__":
    sys.exit(main())
