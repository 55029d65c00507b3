"""What `curate evaluate` costs: time of each step, and peak memory, on this CPU.

    python benchmarks/evaluate.py [--rows 200000] [--width 512] [--classes 100] [--columns 3] [--repeats 1000] [--all]

Makes embeddings of clusters, measures neighbours (next to the bare matrix products that they need at least), linear
classifiers, and intervals: the weighted bootstrap next to one that sorts every resample again.
"""

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from curate.evaluation import correctness
from curate.statistics import weighted
from scoring.metrics import classifier, neighbours, ranking, resampling
from scoring.metrics.neighbours import QUERIES, REFERENCES

SLOW = 50  # resamples by sorting, from which the rest is projected
PROBE = 4  # blocks of queries from which the bare products are projected


def clusters(n: int, width: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return unit rows around one centre a class, and the classes."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(classes, width, generator=generator)
    labels = torch.randint(classes, (n,), generator=generator)
    rows = torch.randn(n, width, generator=generator).mul_(3).add_(centres[labels])
    return torch.nn.functional.normalize(rows, dim=1), labels


def timed(what: str, call: Callable[[], Any]) -> tuple[Any, float]:
    """Run, print seconds and the peak of memory so far, and return the result and the seconds."""
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{what:<52} {seconds:9.2f} s   peak {peak:6.2f} GiB", flush=True)
    return result, seconds


def products(rows: torch.Tensor, n_queries: int) -> None:
    """Multiply as the search does, and keep nothing: the least that it could cost."""
    for at in range(0, n_queries, QUERIES):
        for start in range(0, len(rows), REFERENCES):
            _ = rows[at : at + QUERIES] @ rows[start : start + REFERENCES].T


def main() -> None:
    """Measure every step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("rows", 200_000), ("width", 512), ("classes", 100), ("columns", 3), ("repeats", 1000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--all", action="store_true", help="search for every row, instead of a projection")
    a = parser.parse_args()
    (rows, labels), _ = timed(f"make {a.rows:,} x {a.width}", lambda: clusters(a.rows, a.width, a.classes))
    probe = a.rows if a.all else min(a.rows, PROBE * QUERIES)
    _, bare = timed(f"bare products of {probe:,} queries", lambda: products(rows, probe))
    _, search = timed(f"20 neighbours of {probe:,} queries", lambda: neighbours.nearest(rows[:probe], rows, 20))
    print(f"search / bare products: {search / bare:.2f}; every row: {search * a.rows / probe / 60:.1f} minutes")
    linear, _ = timed("5 linear classifiers", lambda: classifier.cross_validate(rows, labels))
    hits = (linear.label == labels).numpy()
    print(f"linear right: {hits.mean():.3f}")
    right = {correctness.NEAREST: np.random.default_rng(1).random(a.rows) < 0.5, correctness.LINEAR: hits}
    noise = np.random.default_rng(0)
    columns = {f"score {i}": noise.normal(size=a.rows) + right[correctness.LINEAR] for i in range(a.columns)}
    correct = correctness.Correctness(right, None, {})
    timed(
        f"{a.repeats:,} resamples and shuffles, {a.columns} columns, all measures",
        lambda: correctness.certainty_measures(columns, correct, repeats=a.repeats, seed=0),
    )
    score = next(iter(columns.values()))
    order = weighted.RankOrder(score)
    target = order.sort(hits[:, None])
    timed(
        f"{SLOW} resamples of one AUROC, weighted",
        lambda: resampling.resample(lambda counts: order.auroc(counts, target), a.rows, repeats=SLOW),
    )
    timed(
        f"{SLOW} resamples of one AUROC, sorted again",
        lambda: [ranking.auroc(score[drawn], hits[drawn]) for drawn in noise.integers(0, a.rows, (SLOW, a.rows))],
    )


if __name__ == "__main__":
    main()
