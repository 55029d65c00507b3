"""What `curate compare` finds: false alarms, the least shift that it sees, and four pairs of real tables.

    python benchmarks/compare.py [--data DATA] [--work compare-work] [--trials 200]

False alarms: two random parts of one set, apart, overlapping, and one a part of the other. Power: photographs of which
a share is replaced by sketches or paintings, next to a classifier two-sample test by halves (a logistic regression
fitted on one half, tested by a permutation test on the other). Every set is scored once, into --work.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from named_data import add_data, open_data

import curate
from curate.evaluation.comparison.results import SIGNIFICANT, TableComparison
from curate.statistics.two_sample import Counts, classifier_test, mmd_test
from scoring.metrics import classifier, proportions, ranking, resampling

SETS = ("pacs_160", "caltech_subset", "tinyimagenet_val")
TINY = 10_000


def scored(data: Path, work: Path) -> dict[str, Path]:
    """Return the scored tables, made where they are missing."""
    work.mkdir(parents=True, exist_ok=True)
    drawn = work / "tiny_images.parquet"
    if not drawn.exists():
        pl.read_parquet(data / "tinyimagenet_train_a.parquet").sample(TINY, seed=0).write_parquet(drawn)
    tables = {}
    for name, source in [*((name, data / f"{name}.parquet") for name in SETS), ("tiny_train", drawn)]:
        tables[name] = work / f"{name}.parquet"
        if not tables[name].exists():
            curate.score(str(source), tables[name], key="id")
    for domain in ("photo", "art_painting", "cartoon", "sketch"):
        tables[domain] = part(tables["pacs_160"], work / f"{domain}.parquet", domain)
    return tables


def part(table: Path, out: Path, domain: str) -> Path:
    """Write the rows of one domain, with what the file reports for itself."""
    rows = pq.read_table(table)
    pq.write_table(rows.filter(pc.equal(rows["domain"], domain)), out)
    return out


def random_part(table: Path, out: Path, share: float) -> Path:
    """Write a part of the rows, drawn at random."""
    rows = pq.read_table(table)
    pq.write_table(rows.filter(pa.array(np.random.default_rng(0).random(len(rows)) < share)), out)
    return out


def vectors(table: Path) -> np.ndarray:
    """Return the embeddings, shape (N, D)."""
    return np.stack(pq.read_table(table, columns=["embedding"])["embedding"].to_numpy()).astype(np.float32)


def by_halves(rows: np.ndarray, is_b: np.ndarray, seed: int) -> float:
    """Return p of the usual classifier two-sample test: fitted on one half, tested on the other."""
    train = np.random.default_rng(seed).random(len(rows)) < 0.5
    x, y = torch.from_numpy(rows), torch.from_numpy(is_b.astype(np.int64))
    fitted = classifier.fit_linear(x[train], y[train], 2).logits(x[~train])
    score = ranking.ranks((fitted[:, 1] - fitted[:, 0]).numpy())
    return float(resampling.permutation_test_linear(score, is_b[~train], repeats=199, seed=seed)[0])


def alarms(rows: np.ndarray, trials: int) -> None:
    """Print how often parts of one set are separated."""
    for kind in ("apart", "overlapping", "a part of the other"):
        p_values: dict[str, list[float]] = {"classifier": [], "MMD": []}
        for trial in range(trials):
            generator = np.random.default_rng([trial, 1])
            of = rows[generator.choice(len(rows), 400, replace=False)]
            draw = generator.random(400)
            a, b = {
                "apart": (draw < 0.5, draw >= 0.5),
                "overlapping": (draw < 0.7, draw > 0.4),
                "a part of the other": (draw < 2, draw < 0.8),
            }[kind]
            counts = Counts(a.astype(int), b.astype(int))
            p_values["classifier"].append(classifier_test(of, counts, repeats=99, seed=trial).p)
            p_values["MMD"].append(float(mmd_test(of, counts, repeats=99, seed=trial).p))
        for name, p in p_values.items():
            share = proportions.wilson(int((np.array(p) <= SIGNIFICANT).sum()), trials)
            print(f"false alarms, {kind}: {name} {share.value:.3f} [{share.low:.3f}, {share.high:.3f}]", flush=True)


def power(photo: np.ndarray, other: np.ndarray, name: str, trials: int) -> None:
    """Print how often a share of other images among 300 is noticed, against 300 photographs."""
    for share in (0.01, 0.02, 0.05, 0.1):
        p_values: dict[str, list[float]] = {"classifier": [], "MMD": [], "by halves": []}
        for trial in range(trials):
            generator = np.random.default_rng([trial, 2])
            mine = photo[generator.permutation(len(photo))[:600]]
            n = round(300 * share)
            rows = np.concatenate([mine[: 600 - n], other[generator.choice(len(other), n, replace=False)]])
            is_b = np.arange(600) >= 300
            counts = Counts((~is_b).astype(int), is_b.astype(int))
            p_values["classifier"].append(classifier_test(rows, counts, repeats=199, seed=trial).p)
            p_values["MMD"].append(float(mmd_test(rows, counts, repeats=199, seed=trial).p))
            p_values["by halves"].append(by_halves(rows, is_b, trial))
        cells = []
        for test, p in p_values.items():
            seen = proportions.wilson(int((np.array(p) <= SIGNIFICANT).sum()), trials)
            cells.append(f"{test} {seen.value:.2f} [{seen.low:.2f}, {seen.high:.2f}]")
        print(f"{share:.0%} {name} noticed: {', '.join(cells)}", flush=True)


def shown(comparison: TableComparison, seconds: float) -> str:
    """Return the numbers of one comparison."""
    shifted = sum(each.adjusted_p <= SIGNIFICANT for each in comparison.columns)
    lacking = sum(bool(each.lacking) for each in comparison.clusters)
    differing = sum(each.adjusted_p <= SIGNIFICANT for each in comparison.clusters)
    of = comparison.embedding
    if of is None:
        raise ValueError("both tables have embeddings")
    both = f"{of.shared:,} in both"
    auroc = f"{of.auroc.value:.3f} [{of.auroc.low:.3f}, {of.auroc.high:.3f}]"
    return (
        f"AUROC {auroc} p {of.p:.3f}; MMD^2 {of.mmd:.5f} p {of.mmd_p:.3f}; {shifted} of {len(comparison.columns)} "
        f"columns; {differing} of {len(comparison.clusters)} clusters differ, {lacking} lacking; {both}; "
        f"{seconds:.0f} s"
    )


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--work", type=Path, default=Path("compare-work"))
    parser.add_argument("--trials", type=int, default=200)
    a = parser.parse_args()
    data = open_data(a.data, (*SETS, "tinyimagenet_train_a"))
    tables = scored(data.need(*SETS, "tinyimagenet_train_a"), a.work)
    caltech = tables["caltech_subset"]
    kept = a.work / "kept.parquet"
    curate.filter(caltech, kept, keep_top="90%", column="kappa_visimsiam", overwrite=True)
    pairs = {
        "photographs and sketches": (tables["photo"], tables["sketch"]),
        "photographs and paintings": (tables["photo"], tables["art_painting"]),
        "tiny-imagenet, training and validation": (tables["tiny_train"], tables["tinyimagenet_val"]),
        "Caltech and the most certain 90 % of it": (caltech, kept),
        "Caltech and 90 % of it at random": (caltech, random_part(caltech, a.work / "random.parquet", 0.9)),
    }
    for name, pair in pairs.items():
        start = time.perf_counter()
        comparison = curate.compare(*pair)
        print(f"{name}: {shown(comparison, time.perf_counter() - start)}", flush=True)
    alarms(vectors(tables["pacs_160"]), a.trials)
    photo = vectors(tables["photo"])
    for domain in ("sketch", "art_painting"):
        power(photo, vectors(tables[domain]), domain, a.trials)


if __name__ == "__main__":
    main()
