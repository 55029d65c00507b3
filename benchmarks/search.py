"""Near-duplicate search: seconds, recall and memory of the cosine index next to faiss, and of the Hamming index.

    python benchmarks/search.py [--rows 10000 50000 100000] [--width 384] [--table SCORED.parquet]

Synthetic rows are in clusters, and about 6 % of them are copies of another row, moved by 0.05 to 0.4 of its length.
With ``--table`` the embeddings of a scored table are searched instead. Every method runs in its own process, which
reports the seconds to build and to search, with all rows as queries, and its peak memory, which has the rows in it:
float16 for the index, float32 for faiss. Recall is over the true pairs of 2,000 rows drawn at random, found by float32
products. faiss is measured where it is installed; it does not come with this package. Set OMP_NUM_THREADS=1 to
compare cores.
"""

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

METHODS = ("clusters", "exact", "faiss-ivf", "faiss-hnsw", "faiss-flat")
SAMPLE = 2000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 50_000, 100_000])
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--threshold", type=float, default=0.95)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--most-exact", type=int, default=50_000, help="rows above which nothing exact is run")
    parser.add_argument("--table", type=Path, default=None, help="a scored table, instead of synthetic rows")
    parser.add_argument("--hamming", action="store_true", help="64-bit codes at 3 and 8 bits, instead of cosines")
    parser.add_argument("--method", help=argparse.SUPPRESS)  # of a child, which gets the folder with the rows
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.method:
        print(json.dumps(measured(options.method, options.folder, options.threshold)))
        return 0
    if options.hamming:
        for n_rows in options.rows:
            hamming(n_rows)
        return 0
    sizes = [None] if options.table else options.rows
    print(f"{'method':12}{'rows':>10}{'build s':>9}{'search s':>10}{'links':>12}{'recall':>9}{'MB':>8}  notes")
    for n_rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            rows = read_table(options.table) if n_rows is None else synthetic(n_rows, options.width)
            np.save(Path(folder) / "rows.npy", rows)
            save_truth(rows, options.threshold, Path(folder))
            compare(options, Path(folder), len(rows))
    return 0


def compare(options: argparse.Namespace, folder: Path, n_rows: int) -> None:
    for method in options.methods:
        if method in ("exact", "faiss-flat", "faiss-hnsw") and n_rows > options.most_exact:
            continue
        if method.startswith("faiss") and importlib.util.find_spec("faiss") is None:
            print(f"{method:12}{'faiss is not installed':>30}")
            continue
        script = [sys.executable, __file__, "--method", method, "--folder", str(folder)]
        done = subprocess.run(
            [*script, "--threshold", str(options.threshold)], capture_output=True, text=True, check=True
        )
        numbers = json.loads(done.stdout.splitlines()[-1])
        print(
            f"{method:12}{n_rows:>10,}{numbers['build']:>9.2f}{numbers['search']:>10.2f}{numbers['links']:>12,}"
            f"{numbers['recall']:>9.4f}{numbers['mb']:>8,.0f}  {numbers['notes']}",
            flush=True,
        )


def synthetic(n_rows: int, width: int) -> np.ndarray:
    """Rows of length 1, float16, in clusters of about 500, with planted near-duplicates."""
    generator = np.random.default_rng(0)
    middle = generator.standard_normal((max(200, n_rows // 500), width), np.float32)
    rows = np.empty((n_rows, width), np.float16)
    for start in range(0, n_rows, 65_536):
        size = min(65_536, n_rows - start)
        some = middle[generator.integers(len(middle), size=size)]
        rows[start : start + size] = unit(some + 0.9 * generator.standard_normal((size, width), np.float32))
    copies = generator.permutation(n_rows)[: n_rows * 6 // 100]
    for start in range(0, len(copies), 65_536):
        some = copies[start : start + 65_536]
        moved = unit(generator.standard_normal((len(some), width), np.float32))
        moved *= generator.uniform(0.05, 0.4, (len(some), 1)).astype(np.float32)
        rows[some] = unit(rows[generator.integers(n_rows, size=len(some))].astype(np.float32) + moved)
    return rows


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def read_table(path: Path) -> np.ndarray:
    import pyarrow.parquet as pq

    column = pq.read_table(path, columns=["embedding"]).column("embedding").combine_chunks().drop_null()
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)


def save_truth(rows: np.ndarray, threshold: float, folder: Path) -> None:
    """Write the sampled rows, and the pairs with other rows that they have."""
    sample = np.sort(np.random.default_rng(1).choice(len(rows), min(SAMPLE, len(rows)), replace=False))
    ours = unit(rows[sample].astype(np.float32))
    pairs = []
    for start in range(0, len(rows), 8192):
        close = ours @ unit(rows[start : start + 8192].astype(np.float32)).T >= threshold + 1e-5
        query, row = np.nonzero(close)
        pairs.append(np.stack([sample[query], row + start], 1))
    true = np.concatenate(pairs)
    np.savez(folder / "truth.npz", sample=sample, keys=keys(true[true[:, 0] != true[:, 1]], len(rows)))


def keys(pairs: np.ndarray, n_rows: int) -> np.ndarray:
    return pairs[:, 0] * n_rows + pairs[:, 1]


def measured(method: str, folder: Path, threshold: float) -> dict[str, object]:
    rows = np.load(folder / "rows.npy")
    if method.startswith("faiss"):
        import faiss  # noqa: F401  loading it is not what is timed

        rows = rows.astype(np.float32)
    else:
        import scoring.search  # noqa: F401
    start = time.perf_counter()
    search, notes = build(method, rows, threshold)
    built = time.perf_counter()
    query, row = search(rows)
    done = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    truth = np.load(folder / "truth.npz")
    in_sample = np.isin(query, truth["sample"])
    is_match = np.isin(truth["keys"], keys(np.stack([query[in_sample], row[in_sample]], 1), len(rows)))
    recall = float(is_match.mean()) if len(is_match) else float("nan")
    return {
        "build": built - start,
        "search": done - built,
        "links": len(query) - len(rows),
        "recall": recall,
        "mb": peak / 1024,
        "notes": f"{notes}; {len(is_match)} true pairs sampled",
    }


def build(method: str, rows: np.ndarray, threshold: float):
    if not method.startswith("faiss"):
        from scoring.search.cosine import CosineIndex

        index = CosineIndex(rows, threshold, exact_rows=len(rows) if method == "exact" else 0)
        recall_of = index.recall
        notes = f"{index.probes} probes, says {recall_of.estimate:.4f} ({recall_of.low:.4f} to {recall_of.high:.4f})"

        def search(queries):
            links = index.search(queries)
            return links.query, links.row

        return search, notes
    import faiss

    width = rows.shape[1]
    if method == "faiss-hnsw":
        graph = faiss.IndexHNSWFlat(width, 16, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = graph.hnsw.efSearch = 64
        graph.add(rows)
        return lambda queries: nearest_pairs(graph, queries, threshold), "16 nearest"
    if method == "faiss-flat":
        flat = faiss.IndexFlatIP(width)
        flat.add(rows)
        return lambda queries: range_pairs(flat, queries, threshold), ""
    n_lists = int(4 * len(rows) ** 0.5)
    inverted = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, n_lists, faiss.METRIC_INNER_PRODUCT)
    inverted.train(rows)
    inverted.add(rows)
    inverted.nprobe = 8
    return lambda queries: range_pairs(inverted, queries, threshold), f"{n_lists} lists, 8 probes"


def range_pairs(index, queries: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    limits, _, row = index.range_search(queries, threshold)
    return np.repeat(np.arange(len(queries)), np.diff(limits.astype(np.int64))), row


def nearest_pairs(index, queries: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    cosine, row = index.search(queries, 16)
    query, place = np.nonzero(cosine >= threshold)
    return query, row[query, place]


def hamming(n_rows: int) -> None:
    from scoring.search.hamming import HammingIndex

    codes = np.random.default_rng(0).integers(0, 2**64, size=n_rows, dtype=np.uint64)
    for radius in (3, 8):
        start, cpu = time.perf_counter(), time.process_time()
        index = HammingIndex(codes, radius)
        links = index.search(codes)
        took, busy = time.perf_counter() - start, time.process_time() - cpu
        print(f"{n_rows:,} random codes, {radius} bits: {took:.2f} s ({busy:.2f} s of a core), {len(links):,} links")


if __name__ == "__main__":
    sys.exit(main())
