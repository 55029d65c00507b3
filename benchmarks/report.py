"""What a report costs: seconds and peak memory of its facts by rows, thumbnails by format, the map by rows.

    python benchmarks/report.py [--rows 1000000] [--folder DIR] [--data DATA]

The table has 384-wide float16 embeddings, 5 scores, 11 measures of quality and 100 classes; it is filtered and
deduplicated by bytes first. ``curate report --json`` runs in its own process, whose peak resident memory counts.
"""

import argparse
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from named_data import add_data, open_data
from numpy.typing import NDArray

PHOTOGRAPHS = "photos_unlabelled"  # of the layout

MAKE = """
import hashlib, sys
import numpy as np, pyarrow as pa
from curate.columns import QUALITY_COLUMNS
from curate.tables.table import embedding_field
from curate.tables.writer import TableWriter
path, rows, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
generator = np.random.default_rng(0)
field = embedding_field(width)
scores = ["kappa_made_up", "unc_made_up", "unc_fitted", "unc_local", "unc_outlier"]
schema = pa.schema([("key", pa.string()), ("uri", pa.string()), ("label", pa.string()), ("width", pa.int32()),
                    ("height", pa.int32()), ("n_bytes", pa.int64()), ("format", pa.string()), ("sha256", pa.string()),
                    ("status", pa.string()), ("error", pa.string()),
                    *((name, pa.float32()) for name in (*QUALITY_COLUMNS, *scores)), field])
labels = np.array([f"class-{i:03}" for i in range(100)], object)
with TableWriter(path, schema, {"kind": "scores"}) as writer:
    for start in range(0, rows, 32768):
        n = min(32768, rows - start)
        numbers = np.arange(start, start + n)
        values = generator.standard_normal((n, width), np.float32).astype(np.float16)
        keys = [f"folder-{i % 1000:04}/image-{i:08}.jpg" for i in numbers]
        status = np.where(generator.random(n) < 0.001, "truncated", "ok")
        writer.write(pa.table([
            keys, [f"/photos/{key}" for key in keys], labels[generator.integers(0, 100, n)],
            generator.integers(200, 4000, n, np.int32), generator.integers(200, 4000, n, np.int32),
            generator.integers(1000, 9_000_000, n), ["jpeg"] * n,
            [hashlib.sha256(b"%d" % (i // 50 * 50 if i % 50 == 1 else i)).hexdigest() for i in numbers], status,
            pa.nulls(n, pa.string()),
            *(generator.gamma(2, 10, n).astype(np.float32) for _ in (*QUALITY_COLUMNS, *scores)),
            pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), type=field.type)], schema=schema))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--folder", type=Path, default=None, help="where the tables go; default a temporary folder")
    add_data(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measure_facts(Path(folder), options.rows, options.width)
    if options.data is not None:
        measure_thumbs(open_data(options.data, [PHOTOGRAPHS]).need(PHOTOGRAPHS) / f"{PHOTOGRAPHS}.parquet")


def measure_facts(folder: Path, rows: int, width: int) -> None:
    table = folder / "scores.parquet"
    subprocess.run([sys.executable, "-c", MAKE, str(table), str(rows), str(width)], check=True)
    print(f"table: {rows:,} rows, {width} wide, {table.stat().st_size / 1e6:,.0f} MB")
    kept, alone = folder / "kept.parquet", folder / "alone.parquet"
    for words in (
        ["filter", str(table), "--keep-top", "80%", "-o", str(kept)],
        ["dedup", str(kept), "--finder", "bytes", "-o", str(alone)],
    ):
        print(f"curate {words[0]}: {run(words)[0]:,.1f} s")
    for more in ([], [str(alone)]):
        seconds, used, peak, size = run(["report", str(table), *more, "--json", "--points", "0", "--thumbs", "0"])
        what = "the table" if not more else "table, filter and dedup"
        print(f"report of {what}: {seconds:,.1f} s, {used:,.1f} s of processors, {peak:,.0f} MB, {size / 1e6:,.1f} MB")
    measure_view(table)


def measure_view(table: Path) -> None:
    """Seconds of pages of 100 rows from a table that is served."""
    from curate.reporting.served.index import Query
    from curate.reviewing.serve import review

    began = time.perf_counter()
    server = review(table, browse=True, no_map=True)
    print(f"review --browse begins after {time.perf_counter() - began:,.1f} s")
    for words, query in (
        ("first page", Query()),
        ("a page in the middle", Query(offset=table_rows(table) // 2)),
        ("sorted by a score, the first time", Query(sort="unc_fitted", descending=True)),
        ("sorted by a score, a later page", Query(sort="unc_fitted", descending=True, offset=500)),
        ("a class, sorted", Query(sort="unc_fitted", of_class="class-007")),
        ("searched by key", Query(search="image-00012")),
    ):
        began = time.perf_counter()
        page = server.site.table.index.page(query)
        print(f"{words}: {time.perf_counter() - began:.2f} s, {page['total']:,} rows")
    server.server_close()


def table_rows(table: Path) -> int:
    from curate.tables.table import open_table

    return open_table(table).n_rows


def run(words: list[str]) -> tuple[float, float, float, int]:
    """Seconds, seconds of processors, peak memory in MB and bytes on stdout of a command in its own process."""
    code = (
        "import resource, subprocess, sys, time; began = time.perf_counter();"
        "done = subprocess.run([sys.executable, '-m', 'curate', *sys.argv[1:]], capture_output=True);"
        "sys.stderr.write(done.stderr.decode()) if done.returncode else None;"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN);"
        "print(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024,"
        "len(done.stdout), done.returncode)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    if not done.stdout.endswith(" 0\n"):
        raise SystemExit(done.stderr)
    seconds, used, peak, size, _ = done.stdout.split()
    return float(seconds), float(used), float(peak), int(size)


def measure_thumbs(photos: Path) -> None:
    """Bytes a thumbnail by format at equal error against the same pixels, and seconds a thousand."""
    import pyarrow.parquet as pq
    from PIL import Image

    from scoring.images import decode_rgb

    images = pq.read_table(photos, columns=["image"]).column(0).to_pylist()[:500]
    small = []
    for data in images:
        thumbnail = Image.fromarray(decode_rgb(data, short_side=128))
        thumbnail.thumbnail((128, 128))
        small.append(thumbnail)
    print(f"{len(small)} photographs at 128 pixels")
    for kind, qualities in (("JPEG", (70, 75, 80, 85)), ("WEBP", (60, 70, 75, 80))):
        for quality in qualities:
            more = {"method": 3} if kind == "WEBP" else {"optimize": True}
            began = time.perf_counter()
            made = [encoded(thumbnail, kind, quality, more) for thumbnail in small]
            seconds = time.perf_counter() - began
            size = sum(map(len, made)) / len(made)
            looks = f"{psnr(small, made):.2f} dB, SSIM {mean_ssim(small, made):.4f}"
            print(f"{kind} {quality}: {size:,.0f} bytes, {looks}, {1000 * seconds / len(made):.2f} s a thousand")


def encoded(image: "object", kind: str, quality: int, more: dict) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, quality=quality, **more)  # type: ignore[attr-defined]
    return out.getvalue()


def psnr(images: list, made: list[bytes]) -> float:
    return mean(images, made, lambda a, b: 10 * np.log10(255**2 / max(1e-9, ((a - b) ** 2).mean())))


def mean_ssim(images: list, made: list[bytes]) -> float:
    """Structural similarity of the grey in windows of 8 x 8 (Wang et al. 2004, with plain windows)."""

    def of(a: NDArray, b: NDArray) -> float:
        a, b = (np.lib.stride_tricks.sliding_window_view(each.mean(-1), (8, 8))[::4, ::4] for each in (a, b))
        ma, mb = a.mean((-1, -2)), b.mean((-1, -2))
        va, vb, cov = a.var((-1, -2)), b.var((-1, -2)), (a * b).mean((-1, -2)) - ma * mb
        c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
        return float(((2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))).mean())

    return mean(images, made, of)


def mean(images: list, made: list[bytes], measure: Callable[[NDArray, NDArray], float]) -> float:
    from PIL import Image

    pairs = (
        (np.asarray(a, float), np.asarray(Image.open(io.BytesIO(b)).convert("RGB"), float))
        for a, b in zip(images, made, strict=True)
    )
    return float(np.mean([measure(a, b) for a, b in pairs]))


if __name__ == "__main__":
    main()
