"""How fast exports are, next to a plain copy of the same files in the same run.

    python benchmarks/export.py --data DATA --images 8000

Each repeat copies the files one by one with ``shutil.copyfile`` and flushes the disk, then exports the same images in
every format, so that what else the machine does falls on both. Printed are images and megabytes a second (the
median), the time as a multiple of the copy's of the same repeat (median, least and most), and the processor's time an
image, which a busy disk does not change.
"""

import argparse
import hashlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from named_data import add_data, open_data

import curate

PHOTOGRAPHS = "caltech_subset"  # of the layout

WAYS: dict[str, dict[str, Any]] = {
    "folder": {"to": "folder"},
    "folder, hard links": {"to": "folder", "link": "hard"},
    "imagefolder": {"to": "imagefolder"},
    "webdataset": {"to": "webdataset", "shard": "2000"},
    "parquet": {"to": "parquet", "shard": "2000"},
    "folder, --resize 128": {"to": "folder", "resize": 128},
    "csv": {"to": "csv"},
}


def photographs(data: Path, n: int, folder: Path) -> Path:
    """Write n photographs as files, and the table of them; return its path."""
    images = pq.read_table(data / f"{PHOTOGRAPHS}.parquet", columns=["image"])["image"].to_pylist()
    folder.mkdir()
    columns: dict[str, list[Any]] = {"key": [], "uri": [], "n_bytes": [], "sha256": [], "label": []}
    for number in range(n):
        encoded = images[number % len(images)]
        path = folder / f"{number:06d}.jpg"
        path.write_bytes(encoded)
        values = (path.name, str(path), len(encoded), hashlib.sha256(encoded).hexdigest(), f"class {number % 100}")
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
    vectors = np.random.default_rng(0).standard_normal((n, 384)).astype(np.float16)
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 384)
    table = folder.parent / "subset.parquet"
    pq.write_table(pa.table({**columns, "embedding": embedding}), table)
    return table


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds that a call takes, until what it wrote is on the disk, and the processor's."""
    os.sync()
    start, used = time.perf_counter(), time.process_time()
    call()
    os.sync()
    return time.perf_counter() - start, time.process_time() - used


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--images", type=int, default=8000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ("plain copy", *WAYS)}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        table = photographs(open_data(options.data, [PHOTOGRAPHS]).need(PHOTOGRAPHS), options.images, root / "photos")
        files = sorted((root / "photos").iterdir())
        n_bytes = sum(path.stat().st_size for path in files)

        def copy() -> None:
            (root / "out").mkdir()
            for path in files:
                shutil.copyfile(path, root / "out" / path.name)

        for _ in range(options.repeats):
            for name in seconds:
                suffix = ".csv" if name == "csv" else ""
                out = root / f"out{suffix}"
                call = copy if name == "plain copy" else lambda: curate.export(table, out, **WAYS[name])  # noqa: B023
                seconds[name].append(timed(call))
                shutil.rmtree(out) if out.is_dir() else out.unlink()
    cores = len(os.sched_getaffinity(0))
    print(f"{options.images:,} JPEGs, {n_bytes / 1e6:,.0f} MB, {cores} cores, {options.repeats} repeats\n")
    print(
        "| export | images/s | MB/s | time of a plain copy | processor, ms an image |\n| --- | --- | --- | --- | --- |"
    )
    for name, times in seconds.items():
        ratios = [
            seconds_taken / base for (seconds_taken, _), (base, _) in zip(times, seconds["plain copy"], strict=True)
        ]
        middle, used = (statistics.median(column) for column in zip(*times, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        speed = f"{options.images / middle:,.0f} | {n_bytes / middle / 1e6:,.0f}"
        print(f"| {name} | {speed} | {spread} | {1000 * used / options.images:.2f} |")


if __name__ == "__main__":
    main()
