"""How good balancing is on a long-tailed dataset whose labels are known: who is found, and what a probe learns.

    curate score DATA/tinyimagenet_train_{a,b}.parquet --key id --no-fit -o train.parquet
    curate score DATA/tinyimagenet_val.parquet --key id --no-fit -o test.parquet
    python benchmarks/balance.py train.parquet test.parquet [--seeds 5] [--imbalance 100] [--budgets 500,1000,2000]

For each seed the classes are put in a random order, and the first gives all its rows, the last a hundredth of them,
those between in a geometric row: a dataset. Strategies see its embeddings alone; ``balance --per label`` knows labels.
Of the picks: the share of the classes of the last third (the tail) that are there at all, the share of picks in the
tail, the divergence of the classes of the picks from uniform, and the accuracy of a linear probe that learned from the
picks on the balanced test, in all and in the tail. Below, the difference to random of the same seed, mean and 95 %
interval by Student's t over the seeds.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from curate.policies.balance.amounts import amounts
from curate.selectors.contract import Pool
from curate.selectors.table import SELECTORS
from curate.tables.table import embedding_matrix, open_table
from scoring.metrics.classifier import fit_linear

STRENGTH = 10.0  # inverse penalty of the probe, as in transfer.py
STEPS = 100
T_QUANTILES = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
MEASURES = ("tail found", "in tail", "KL", "accuracy", "of tail")
RANDOM, ORACLE = "random", "balance --per label"
STRATEGIES: dict[str, tuple[str, dict[str, int]]] = {
    RANDOM: ("random", {}),
    "k-means": ("k-means", {}),
    "typiclust": ("typiclust", {}),
    "hierarchical, levels=1": ("hierarchical", {"levels": 1}),
    "hierarchical, levels=2": ("hierarchical", {"levels": 2}),
    "hierarchical, levels=3": ("hierarchical", {"levels": 3}),
}
Arrays = tuple[np.ndarray, np.ndarray]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", type=Path, help="scored, with labels")
    parser.add_argument("test", type=Path, help="scored, with labels")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--imbalance", type=float, default=100)
    parser.add_argument("--budgets", default="500,1000,2000")
    options = parser.parse_args()
    if options.seeds not in T_QUANTILES:
        parser.error(f"--seeds must be between 2 and 10, got {options.seeds}")
    budgets = [int(text) for text in options.budgets.split(",")]
    train, test = read(options.train), read(options.test)
    accuracies: dict[tuple[str, int], list[list[float]]] = {}
    for seed in range(options.seeds):
        rows, tail = long_tailed(train[1], options.imbalance, seed)
        dataset = train[0][rows], train[1][rows]
        print(f"seed {seed}: {len(rows):,} rows of {len(np.unique(dataset[1]))} classes", flush=True)
        for name in [*STRATEGIES, ORACLE]:
            for budget, picks in picked(dataset, name, budgets, seed).items():
                accuracies.setdefault((name, budget), []).append(measured(dataset, picks, test, tail))
            print(f"  {name}", flush=True)
    report(accuracies)
    return 0


def read(path: Path) -> Arrays:
    """Return embeddings, shape (N, D) float16, and labels, shape (N,), of the rows that were scored."""
    table = open_table(path, require=["key", "label", "embedding"]).read(["label", "status", "embedding"])
    ok = np.array(table["status"].to_pylist()) == "ok"
    vectors = np.concatenate([embedding_matrix(chunk) for chunk in table["embedding"].chunks])
    return vectors[ok], table["label"].to_numpy()[ok].astype(np.int64)


def long_tailed(labels: np.ndarray, imbalance: float, seed: int) -> Arrays:
    """Return rows with geometrically falling class sizes, and the classes of the tail, the last third."""
    generator = np.random.default_rng(seed)
    classes, sizes = np.unique(labels, return_counts=True)
    order = generator.permutation(classes)
    amounts_of = np.round(sizes.min() * imbalance ** (-np.arange(len(classes)) / (len(classes) - 1))).astype(int)
    rows = [
        generator.permutation(np.flatnonzero(labels == each))[:n] for each, n in zip(order, amounts_of, strict=True)
    ]
    return np.sort(np.concatenate(rows)), order[-(len(classes) // 3) :]


def picked(dataset: Arrays, name: str, budgets: Sequence[int], seed: int) -> dict[int, np.ndarray]:
    """Return the picks of each budget, by a strategy or of each class at random, as ``curate balance`` counts them."""
    vectors, labels = dataset
    if name == ORACLE:
        return {budget: of_each_class(labels, budget, seed) for budget in budgets}
    strategy, settings = STRATEGIES[name]
    selector, pool = SELECTORS[strategy](**settings), Pool(np.arange(len(vectors)), vectors=vectors)
    if selector.prefix:
        rows = selector(pool, max(budgets), seed=seed).rows
        return {budget: rows[:budget] for budget in budgets}
    return {budget: selector(pool, budget, seed=seed).rows for budget in budgets}


def of_each_class(labels: np.ndarray, budget: int, seed: int) -> np.ndarray:
    """Return rows of each class, drawn, as many of each as uniform shares come to."""
    classes, sizes = np.unique(labels, return_counts=True)
    quotas = amounts(sizes, np.full(len(classes), 1 / len(classes)), budget).taken
    generator = np.random.default_rng(seed)
    return np.concatenate(
        [generator.permutation(np.flatnonzero(labels == each))[:n] for each, n in zip(classes, quotas, strict=True)]
    )


def measured(dataset: Arrays, picks: np.ndarray, test: Arrays, tail: np.ndarray) -> list[float]:
    """Return the measures of some picks, in the order of ``MEASURES``; all but the divergence in per cent."""
    vectors, labels = dataset[0][picks], dataset[1][picks]
    n_classes = int(test[1].max()) + 1
    counts = np.bincount(labels, minlength=n_classes)
    shares = counts[counts > 0] / counts.sum()
    probe = fit_linear(
        torch.from_numpy(vectors.astype(np.float32)), torch.from_numpy(labels), n_classes, c=STRENGTH, steps=STEPS
    )
    right = probe.logits(torch.from_numpy(test[0].astype(np.float32))).argmax(1).numpy() == test[1]
    of_tail = np.isin(test[1], tail)
    return [
        100 * float((counts[tail] > 0).mean()),
        100 * float(counts[tail].sum() / counts.sum()),
        float((shares * np.log(shares * n_classes)).sum()),
        100 * float(right.mean()),
        100 * float(right[of_tail].mean()),
    ]


def report(accuracies: dict[tuple[str, int], list[list[float]]]) -> None:
    """Print the means, and the differences to random."""
    head = "".join(f"{name:>14}" for name in MEASURES)
    print(f"\n{'mean':36}{'rows':>7}{head}")
    for (name, budget), values in accuracies.items():
        print(f"{name:36}{budget:>7}" + "".join(f"{value:14.2f}" for value in np.mean(values, axis=0)))
    print(f"\n{'difference to random':36}{'rows':>7}{head}")
    for (name, budget), values in accuracies.items():
        if name != RANDOM:
            apart = np.array(values) - np.array(accuracies[RANDOM, budget])
            print(f"{name:36}{budget:>7}" + "".join(interval(column) for column in apart.T))


def interval(values: Sequence[float] | np.ndarray) -> str:
    """Return a mean and half the width of its interval."""
    half = T_QUANTILES[len(values)] * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):+8.2f} ±{half:5.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
