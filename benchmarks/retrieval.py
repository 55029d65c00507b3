"""How good `curate retrieve` is on labelled images: safe retrieval, regions of a stated probability, and its speed.

    python benchmarks/retrieval.py safe WORK/*.parquet
    python benchmarks/retrieval.py coverage WORK/*.parquet
    python benchmarks/retrieval.py known
    python benchmarks/retrieval.py speed --rows 1000000 --width 512 --queries 1000

``safe`` repeats Table 1 of Kirchhof et al. 2024 ("Pretrained Visual Uncertainties"): the error of the nearest row, of
all rows as queries among all others; without the least certain 10 % of the queries; without the least certain 10 % of
the database; and without both; the tenth by class, as there, or of all. Next to each score stand random tenths, the
mean of 200 draws. Intervals are 95 %, of 1,000 resamples of rows, paired, of the difference to the error of all.

``coverage`` halves a table at random, 20 times: one half calibrates regions, the other one asks; all rows are searched.
It reports how often the nearest row of the query's class lies inside, and how many rows do. ``known`` does the same
where latents are drawn from a von Mises-Fisher distribution around each query, whose concentration is known: how often
the latent itself is in the region, and how often the image of a match does, which is drawn around the same latent.

Tables are those that `curate score` wrote, with a column of classes (``--label``).
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

import curate
from curate.columns import is_less_certain
from curate.retrieval.regions import share_below
from scoring.distributions.credible import calibrate
from scoring.distributions.vmf_quantiles import credible_cosine
from scoring.distributions.vmf_sampler import sample
from scoring.metrics.resampling import percentiles, resample

SHARE = 0.1
OF_A_MODEL = (0.5, 0.8, 0.9, 0.95)
SPLITS = 20
DRAWS = 200
SCORES = ("unc_losspred", "kappa_mcinfonce", "kappa_visimsiam", "unc_junk", "unc_fitted", "unc_local", "unc_neighbour")
Floats = NDArray[np.float64]


class Dataset:
    """Rows of a table with a class: cosines of all pairs, and how certain each column is."""

    def __init__(self, path: Path, label: str) -> None:
        self.name = path.stem
        table = pq.read_table(path)
        table = table.filter(table["embedding"].is_valid())
        vectors = np.stack(table["embedding"].to_numpy(zero_copy_only=False)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        self.cosine = vectors @ vectors.T
        np.fill_diagonal(self.cosine, -9)
        self.label = np.unique(table[label].to_numpy(), return_inverse=True)[1]
        self.certainty = {
            name: np.asarray(table[name], np.float64) * (-1 if is_less_certain(name) else 1)
            for name in SCORES
            if name in table.column_names
        }

    def __len__(self) -> int:
        return len(self.label)


def least(certainty: Floats, label: NDArray[np.int64] | None) -> NDArray[np.bool_]:
    """Return which rows are not among the least certain tenth, of all or of each class."""
    keep = np.ones(len(certainty), bool)
    for code in [None] if label is None else np.unique(label):
        rows = np.arange(len(certainty)) if code is None else np.flatnonzero(label == code)
        keep[rows[np.argsort(certainty[rows], kind="stable")[: int(SHARE * len(rows))]]] = False
    return keep


def wrong(dataset: Dataset, may_answer: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return whether the nearest row that may be found is of another class, for every row."""
    best = np.where(may_answer[None], dataset.cosine, -9).argmax(1)
    return dataset.label[best] != dataset.label


def safe(datasets: list[Dataset]) -> None:
    """Print the error of the nearest row in each setting."""
    for by_class in (True, False):
        print(f"\n### The least certain tenth {'of each class' if by_class else 'of all'}\n")
        print("| dataset | score | all | more certain queries | more certain database | both |")
        print("| --- | --- | --- | --- | --- | --- |")
        for dataset in datasets:
            every = wrong(dataset, np.ones(len(dataset), bool))
            label = dataset.label if by_class else None
            draw = np.random.default_rng(0)
            chance = []
            for _ in range(DRAWS):
                keep = least(draw.random(len(dataset)), label)
                clean = wrong(dataset, keep)
                chance.append((every[keep].mean(), clean.mean(), clean[keep].mean()))
            random = " | ".join(f"{value:.4f}" for value in np.mean(chance, 0))
            print(f"| {dataset.name} | a random tenth | {every.mean():.4f} | {random} |")
            for name, certainty in dataset.certainty.items():
                keep = least(certainty, label)
                clean = wrong(dataset, keep)
                print(f"| {dataset.name} | {name} | | {' | '.join(_cells(every, keep, clean))} |")


def _cells(every: NDArray[np.bool_], keep: NDArray[np.bool_], clean: NDArray[np.bool_]) -> Iterator[str]:
    """Yield errors with the intervals of their differences to the error of all."""
    kept = keep.astype(np.float64)
    parts = ((every * kept, kept), (clean * 1.0, np.ones(len(kept))), (clean * kept, kept))

    def statistic(counts: NDArray[np.int64]) -> Floats:
        return np.array([counts @ bad / (counts @ of) - counts @ every / counts.sum() for bad, of in parts])

    low, high = percentiles(resample(statistic, len(kept), repeats=1000, seed=0))
    for at, (bad, of) in enumerate(parts):
        yield f"{bad.sum() / of.sum():.4f} [{low[at]:+.4f}, {high[at]:+.4f}]"


def coverage(datasets: list[Dataset]) -> None:
    """Print how often regions hold the nearest row of the class, and how many rows."""
    print(
        "| dataset | score | probability | inside | rows: median | of the most certain tenth | of the least certain |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for dataset in datasets:
        match = np.where(dataset.label[:, None] == dataset.label, dataset.cosine, -1).max(1).astype(np.float64)
        ordered = np.sort(dataset.cosine, 1)
        for name, certainty in dataset.certainty.items():
            rank = share_below(np.sort(certainty), certainty)
            splits = np.array([_split(match, rank, ordered, seed) for seed in range(SPLITS)])  # (S, probabilities, 4)
            for at, chance in enumerate(OF_A_MODEL):
                inside, *sizes = splits[:, at].mean(0)
                spread = splits[:, at, 0].std(ddof=1)
                cells = " | ".join(f"{size:.0f}" for size in sizes)
                print(f"| {dataset.name} | {name} | {chance} | {inside:.3f} ±{1.96 * spread:.3f} | {cells} |")


def _split(match: Floats, rank: Floats, ordered: NDArray[np.float32], seed: int) -> list[tuple[float, ...]]:
    """Return for each probability how often regions hold a match, and sizes of regions."""
    order = np.random.default_rng(seed).permutation(len(match))
    known, asking = order[: len(order) // 2], order[len(order) // 2 :]
    model = calibrate(match[known], rank[known], np.arange(len(known)) % 2 == 0)
    measures = []
    for chance in OF_A_MODEL:
        bound = model.bounds(rank[asking], chance)
        size = np.array([len(ordered) - np.searchsorted(ordered[row], b) for row, b in zip(asking, bound, strict=True)])
        ends = (size, size[rank[asking] > 0.9], size[rank[asking] < 0.1])
        measures.append(((match[asking] >= bound).mean(), *(float(np.median(each)) for each in ends)))
    return measures


def known(n: int = 20_000) -> None:
    """Print how often the latent lies inside, and how often the image of a match, where concentrations are known."""
    print(
        "| dimensions | concentrations | probability | the latent inside | a match inside |\n| --- | --- | --- | "
        "--- | --- |"
    )
    generator = torch.Generator().manual_seed(0)
    for dim, low, high in ((16, 16, 128), (128, 64, 1024), (512, 256, 8192)):
        kappa = torch.exp(torch.empty(n, dtype=torch.float64).uniform_(np.log(low), np.log(high), generator=generator))
        other = kappa[torch.randperm(n, generator=generator)]
        mean = torch.zeros(n, dim, dtype=torch.float64)
        mean[:, 0] = 1
        latent = sample(mean, kappa, 1, generator)[0]
        image = sample(latent, other, 1, generator)[0]
        for chance in OF_A_MODEL:
            bound = credible_cosine(chance, kappa, dim)
            shares = [((each[:, 0] >= bound).double().mean().item()) for each in (latent, image)]
            cells = " | ".join(f"{share:.3f} ±{1.96 * (share * (1 - share) / n) ** 0.5:.3f}" for share in shares)
            print(f"| {dim} | {low} to {high} | {chance} | {cells} |")


def speed(n: int, width: int, n_queries: int) -> None:
    """Print seconds and memory of queries among many rows."""
    with tempfile.TemporaryDirectory() as folder:
        table, queries = Path(folder) / "table.parquet", Path(folder) / "queries.parquet"
        for path, rows, seed in ((table, n, 0), (queries, n_queries, 1)):
            _write(path, rows, width, seed)
        for named in ({"top": 10}, {"top": 10, "reject": "10%"}, {"credible": 0.9, "calibrate": "label"}):
            wall, processor = time.perf_counter(), time.process_time()
            answers = curate.retrieve(table, str(queries), **named)  # type: ignore[arg-type]
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            print(
                f"{n:,} x {width}, {n_queries:,} queries, {named}: {processor:.1f} CPU s, {wall:.1f} s, {peak:.1f} GB, "
                f"recall {answers.recall.estimate:g}{' (exact)' if answers.recall.exact else ''}, "
                f"{len(answers.links):,} answers"
            )


def _write(path: Path, n: int, width: int, seed: int) -> None:
    """Write rows around 1,000 directions, with a kappa."""
    centres = np.random.default_rng(99).normal(size=(1000, width)).astype(np.float32)
    draw = np.random.default_rng(seed)
    kind = pa.list_(pa.field("element", pa.float16(), nullable=False), width)
    schema = pa.schema([("key", pa.string()), ("label", pa.int32()), ("kappa_own", pa.float32()), ("embedding", kind)])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n, 32_768):
            size = min(32_768, n - start)
            label = draw.integers(0, 1000, size)
            rows = centres[label] + draw.uniform(0.5, 2, (size, 1)) * draw.normal(size=(size, width))
            rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)
            keys = [f"{seed}-{at}" for at in range(start, start + size)]
            kappa = draw.uniform(1, 99, size).astype(np.float32)
            embedding = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), type=kind)
            writer.write_batch(pa.record_batch([keys, label.astype(np.int32), kappa, embedding], schema=schema))


def main() -> None:
    """Print what was requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["safe", "coverage", "known", "speed"])
    parser.add_argument("tables", type=Path, nargs="*")
    parser.add_argument("--label", default="label")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--queries", type=int, default=1000)
    a = parser.parse_args()
    if a.what == "known":
        known()
    elif a.what == "speed":
        speed(a.rows, a.width, a.queries)
    else:
        {"safe": safe, "coverage": coverage}[a.what]([Dataset(path, a.label) for path in a.tables])


if __name__ == "__main__":
    main()
