"""Which tenth of the data trains as well as the whole? Subsets chosen by every strategy, against random ones.

    python examples/subset_training.py --data DATA [--work FOLDER] [--set cifar10n|tiny] [--seeds 5] [--strategies ...]
    python examples/subset_training.py --data DATA --set cifar10n --network     # a small network on pixels, not a probe

DATA holds cifar10_train.parquet, cifar10_test.parquet, cifar10n_train.parquet, tinyimagenet_train_a.parquet,
tinyimagenet_train_b.parquet and tinyimagenet_val.parquet. What is trained: a linear probe on the frozen embeddings of
the shipped model (their first 128 principal components), or a network of three convolutions from random weights.
`docs/studies/subset_training.md` has our numbers.

"cifar10n" has CIFAR-10N's worst labels, four in ten wrong, on the 25,000 images whose labels the backbone of the
shipped model did not see, and the clean test images. "tiny" is tiny-imagenet; the backbone learned from the labels of
all its training images, so its embeddings know them better than yours would.

Each seed draws its pool. Strategies that need probabilities get them of a probe that was fitted on other rows, a tenth
of the pool's number, with labels as bad as the pool's.

Cost: 95,000 images to score, then 5 to 60 seconds for each strategy and seed; a network half a minute more.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from small_network import accuracy_of_network, pixels
from study_data import PEOPLE, PICTURES, Scored, add_data, cifar_pool, labelled, open_data
from study_features import principal
from study_results import Ledger, accuracy_table, against_table, curves_of

from curate.columns import is_less_certain
from curate.policies.select.request import SAFE_GATE, guard
from curate.probes.linear import fit_linear_probe
from curate.selectors.chance import StratifiedRandom
from curate.selectors.contract import Pool, Selector
from curate.selectors.table import SELECTORS
from scoring.metrics.classifier import fit_linear

SHARES = (0.01, 0.05, 0.1, 0.3)
FILES = (PICTURES, "cifar10_test", PEOPLE, "tinyimagenet_train_a", "tinyimagenet_train_b", "tinyimagenet_val")
POOL = {"cifar10n": 20_000, "tiny": 20_000}
FEATURES = 128
HOLDOUT = 0.1  # rows that the holdout model learns from, as a share of the pool
LEFT_OUT = {
    "least-confidence": "between margin and entropy",
    "score": "highest uncertainty; the other end is `keep-top`",
}


@dataclass(frozen=True)
class Set:
    """Rows to choose from, and rows to test on.

    Attributes:
        rows: scored.
        given: labels to train with, shape (N,) int64.
        test: scored.
        test_labels: clean.
        sources: Parquet with the images of rows and test rows.
    """

    rows: Scored
    labels: NDArray[np.int64]
    test: Scored
    test_labels: NDArray[np.int64]
    sources: tuple[Path, Path]


def load(arguments: argparse.Namespace) -> Set:
    """Return one of the two sets, scored."""
    data, work, limit = open_data(arguments.data, FILES), arguments.work, arguments.limit
    if arguments.set == "cifar10n":
        rows, name, label = cifar_pool(data, work, limit), "pool", "worse_label"
        test = labelled(data.folder, ["cifar10_test.parquet"], work, "test", limit)
        sources = work / "pool_source.parquet", work / "test_source.parquet"
    else:
        files = ["tinyimagenet_train_a.parquet", "tinyimagenet_train_b.parquet"]
        rows, name, label = labelled(data.folder, files, work, "tiny_train", limit), "tiny_train", "label"
        test = labelled(data.folder, ["tinyimagenet_val.parquet"], work, "tiny_val", limit)
        sources = work / f"{name}_source.parquet", work / "tiny_val_source.parquet"
    labels, known = rows.columns[label].astype(np.int64), test.columns["label"].astype(np.int64)
    return Set(rows, labels, test, known, sources)


@dataclass(frozen=True)
class Drawn:
    """What one seed chooses from.

    Attributes:
        rows: of the set, that are the pool, shape (N,).
        pool: the same as selectors see them.
        scored: the same with all columns.
        features: what a probe learns from, shape (N, F).
        test_features: the same of the test rows.
        classes: C.
    """

    rows: NDArray[np.int64]
    pool: Pool
    scored: Scored
    features: NDArray[np.float32]
    test_features: NDArray[np.float32]
    classes: int


def draw(data: Set, size: int, features: int, seed: int) -> Drawn:
    """Return the pool of a seed, with the probabilities and losses that selectors may need."""
    order = np.random.default_rng([seed, 5]).permutation(len(data.rows))
    size = min(size, int(len(order) / (1 + HOLDOUT)))
    rows, other = order[:size], order[size : size + max(20, round(HOLDOUT * size))]
    scored, labels = data.rows.take(rows), data.labels[rows]
    turn = principal(scored.vectors, features)
    project = [(vectors @ turn).astype(np.float32) for vectors in (scored.vectors, data.test.vectors)]
    classes = int(max(data.labels.max(), data.test_labels.max())) + 1
    holdout = fit_linear_probe(data.rows.vectors[other] @ turn, data.labels[other], classes, calibrate=False)
    chances = holdout.predict(project[0])
    pool = Pool(
        np.arange(size),
        vectors=scored.vectors,
        probabilities=chances,
        labels=labels,
        holdout_loss=loss_of(chances, labels),
    )
    return Drawn(rows, pool, scored, project[0], project[1], classes)


def loss_of(chances: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the cross-entropy of each row's label, shape (N,), at most as at a probability of one in a million."""
    of_label = np.maximum(chances[np.arange(len(labels)), labels], 1e-6)
    return -np.log(of_label).astype(np.float32)


def chosen(drawn: Drawn, name: str, budgets: Sequence[int], seed: int) -> list[NDArray[np.int64]]:
    """Return the rows of the pool that a strategy chooses, for each budget.

    Args:
        drawn: the pool.
        name: ``STRATEGY``, ``STRATEGY + guard COLUMN``, ``keep-top COLUMN`` or ``keep-top COLUMN by class``.
        budgets: ascending.
        seed: of the strategy.
    """
    if name.startswith("keep-top "):
        order = kept_first(drawn, name.removeprefix("keep-top "))
        return [order[:budget] for budget in budgets]
    pool, selector = prepared(drawn, name)
    if selector.prefix:
        rows = selector(pool, budgets[-1], seed=seed).rows
        return [rows[:budget] for budget in budgets]
    return [selector(pool, budget, seed=seed).rows for budget in budgets]


def kept_first(drawn: Drawn, strategy: str) -> NDArray[np.int64]:
    """Return rows, the most certain first; "by class": the most certain of each class in turn.

    Equal shares by class are `curate filter --keep-top` on each class.
    """
    column, _, by_class = strategy.partition(" by ")
    sign = 1.0 if is_less_certain(column) else -1.0
    order = np.argsort(sign * drawn.scored.columns[column], kind="stable")
    if not by_class or drawn.pool.labels is None:
        return order
    turn = np.empty(len(order), np.int64)
    labels = drawn.pool.labels[order]
    for label in np.unique(labels):
        turn[labels == label] = np.arange((labels == label).sum())
    return order[np.argsort(turn, kind="stable")]


def prepared(drawn: Drawn, name: str) -> tuple[Pool, Selector]:
    """Return a strategy by name and the pool as it sees it: coverage alone is blind to probabilities."""
    base, _, guarding = name.partition(" + ")
    if base == "stratified":
        return drawn.pool, StratifiedRandom(by="given", shares="equal")
    if base not in SELECTORS:
        raise SystemExit(f"unknown strategy {base!r} (known: {', '.join(SELECTORS)}, keep-top COLUMN)")
    selector: Any = SELECTORS[base]()
    if not guarding:
        return drawn.pool, selector
    pool = replace(drawn.pool, quality=drawn.scored.quality(guarding.split()[1]))
    pool, selector, _ = guard(pool, base, selector, least=SAFE_GATE, discount=True)
    return pool, selector


def accuracy_of_probe(drawn: Drawn, data: Set, rows: NDArray[np.int64]) -> float:
    """Return the share of the test rows that a linear probe on some rows of the pool gets right."""
    labels = torch.from_numpy(data.labels[drawn.rows[rows]])
    features = torch.from_numpy(drawn.features[rows])
    length = float((features - features.mean(0)).square().sum(1).mean().sqrt()) or 1.0
    fitted = fit_linear(features / length, labels, drawn.classes, c=16.0)
    said = fitted.logits(torch.from_numpy(drawn.test_features) / length).argmax(1).numpy()
    return float((said == data.test_labels).mean())


def train_on_subsets(
    data: Set, name: str, seed: int, arguments: argparse.Namespace, images: tuple[Any, Any]
) -> dict[str, Any]:
    """Choose subsets and train on them, with one seed."""
    start = time.perf_counter()
    drawn = draw(data, arguments.pool, arguments.features, seed)
    budgets = [max(2, round(share * len(drawn.rows))) for share in arguments.shares]
    subsets = [np.arange(len(drawn.rows))] if name == "all" else chosen(drawn, name, budgets, seed)
    wrong, reached = [], []
    clean = data.rows.columns["label"]
    for rows in subsets:
        set_rows = drawn.rows[rows]
        wrong.append(float((data.labels[set_rows] != clean[set_rows]).mean()))
        if arguments.network:
            labels, settings = (data.labels[set_rows], data.test_labels), (arguments.steps, arguments.device)
            reached.append(accuracy_of_network((images[0][set_rows], images[1]), labels, seed, *settings))
        else:
            reached.append(accuracy_of_probe(drawn, data, rows))
    if name == "all":
        budgets, wrong, reached = [len(drawn.rows)], wrong, reached
    return {"budgets": budgets, "accuracy": reached, "wrong": wrong, "seconds": time.perf_counter() - start}


def default_strategies(data: Set) -> list[str]:
    """Return the names to run where none are given."""
    names = [name for name in SELECTORS if name not in LEFT_OUT]
    for column in data.rows.certainty_columns:
        names += [f"keep-top {column}", f"keep-top {column} by class", f"auto + guard {column}"]
    return [*names, "all"]


def parse_arguments(typed: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what was typed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--work", type=Path, default=Path("subset-training"), help="where tables and results go")
    parser.add_argument("--set", choices=list(POOL), default="cifar10n")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--strategies", nargs="+", help="names as printed; all that make sense by default")
    parser.add_argument("--shares", type=float, nargs="+", default=list(SHARES))
    parser.add_argument("--pool", type=int, help="rows of a pool")
    parser.add_argument("--features", type=int, default=FEATURES, help="numbers that the probe learns from")
    parser.add_argument("--network", action="store_true", help="train a small network from random weights")
    parser.add_argument("--steps", type=int, default=400, help="of the network, 128 images each")
    parser.add_argument("--device", default="cpu", help="that trains the network")
    parser.add_argument("--limit", type=int, help="score the first rows only, to try the study out")
    parser.add_argument("--print", action="store_true", help="run nothing; print what is there")
    return parser.parse_args(typed)


def main(typed: Sequence[str] | None = None) -> None:
    """Run a study and print it."""
    arguments = parse_arguments(typed)
    arguments.pool = arguments.pool or POOL[arguments.set]
    arguments.work.mkdir(parents=True, exist_ok=True)
    data = load(arguments)
    names = arguments.strategies or default_strategies(data)
    settings = {name: getattr(arguments, name) for name in ("set", "shares", "pool", "features", "network", "limit")}
    ledger = Ledger(arguments.work / "subsets", settings | ({"steps": arguments.steps} if arguments.network else {}))
    seeds = range(arguments.seeds)
    images = tuple(map(stored_pixels, data.sources)) if arguments.network and not arguments.print else (None, None)
    for seed in seeds if not arguments.print else ():
        for name in names:
            result = ledger.of(
                name, seed, lambda name=name, seed=seed: train_on_subsets(data, name, seed, arguments, images)
            )
            print(f"seed {seed} {name}: {100 * result['accuracy'][-1]:.1f} ({result['seconds']:.0f} s)", flush=True)
    report(ledger.known(names, seeds), arguments)


def stored_pixels(source: Path) -> torch.Tensor:
    """Return the images of a table as a network sees them."""
    return pixels(pq.read_table(source, columns=["image"]).column("image").to_pylist())


def report(measured: Mapping[str, list[dict[str, Any]]], arguments: argparse.Namespace) -> None:
    """Print what a study found."""
    on_all = measured.get("all")
    curves = {name: curves_of(results) for name, results in measured.items() if name != "all"}
    if "random" not in curves:
        raise SystemExit("nothing to compare with: `random` has not run with every seed")
    print(
        f"\nAccuracy in percent by rows trained on, {arguments.seeds} seeds, ± half of the 95 % interval over seeds\n"
    )
    print("\n".join(accuracy_table(curves)))
    if on_all:
        print(f"\nAll {on_all[0]['budgets'][0]} rows: {100 * curves_of(on_all).mean[0]:.1f}")
    print("\nThe same less random, on the same pools\n")
    print("\n".join(against_table(curves)))
    if any(any(result["wrong"]) for results in measured.values() for result in results):
        budgets = next(iter(curves.values())).budgets
        print("\nShare of the rows whose label is wrong, in percent\n")
        print("| labels | " + " | ".join(map(str, budgets)) + " |\n| --- |" + " --- |" * len(budgets))
        for name, results in measured.items():
            shares = np.asarray([result["wrong"] for result in results]).mean(0)
            print(f"| {name} | " + " | ".join(f"{100 * share:.1f}" for share in shares) + " |")


if __name__ == "__main__":
    main()
