"""What `curate evaluate --subset` says of random subsets, and what it costs.

    python benchmarks/subset.py null scores.parquet --label label --test split=test [--trials 100]
    python benchmarks/subset.py cost [--rows 50000] [--width 384] [--classes 10] [--kept 0.5]

`null` draws random subsets of a scored table, which cannot help, and counts what is reported on them: 2.5 in 100 may
help at random, and 2.5 hurt. `cost` makes embeddings with a third of the labels wrong, keeps a part of the rows, and
times the whole command with its peak memory.
"""

import argparse
import json
import resource
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import curate
from curate.evaluation.options import EvaluateOptions
from curate.evaluation.subset.findings import verdict_of
from curate.evaluation.subset.pool import SubsetPool, read_pool
from curate.evaluation.subset.request import parse_test
from curate.evaluation.subset.sides import ALL_ROWS, BY_CLASS, RANDOM, SUBSET, TrainingSides, draw_sides
from curate.evaluation.subset.trained import HeldOutRows, Train, compared, train_on_sides
from curate.evaluation.subset.training import right_by_linear, right_by_neighbours
from curate.tables.table import open_table
from scoring.metrics.proportions import wilson

BANK = 30  # random subsets of the same rows
FEW = 15  # draws by class of the same rows


def null(arguments: argparse.Namespace) -> None:
    """Count what the models report for random subsets.

    Rows to train and to test on are drawn again for every 30 subsets, which share random draws to be compared with.
    """
    table = open_table(arguments.table)
    side = parse_test(arguments.test, table)
    with tempfile.TemporaryDirectory() as folder:
        subset = Path(folder) / "any.parquet"
        pq.write_table(table.read(["key"]), subset)
        options = EvaluateOptions(table.path, subset=subset, label=arguments.label, sample=arguments.sample)
        pool = read_pool(table, side, options)
    outcomes: dict[str, Counter[str]] = {}
    for bank in range(-(-arguments.trials // BANK)):
        part = drawn(pool, arguments, bank)
        sides = draw_sides(part, seeds=BANK, seed=bank)
        few = replace(sides, by_class=sides.by_class[:FEW])
        for name, train in models(part, bank).items():
            right = train_on_sides(few, train, seeds=BANK, repeated=False, report=lambda text: None)
            for trial in range(BANK):
                comparison = compared(name, dealt(right, arguments.seeds, bank, trial), held_out(part, sides))
                verdict = verdict_of(comparison)
                for side_of, says in ((RANDOM, verdict.says), (ALL_ROWS, verdict.of_size)):
                    outcomes.setdefault(f"{name} - {side_of}", Counter())[says] += 1
                moved = any(each.adjusted_p[RANDOM] <= 0.05 for each in comparison.classes)
                outcomes.setdefault(f"{name}, some class", Counter())["moves" if moved else "none"] += 1
        print(json.dumps({name: dict(counts) for name, counts in outcomes.items()}), flush=True)
    for name, counts in outcomes.items():
        bounds = [(what, n, wilson(n, counts.total())) for what, n in counts.most_common()]
        print(
            f"{name:<24} "
            + ", ".join(f"{what} {n} [{interval.low:.1%}, {interval.high:.1%}]" for what, n, interval in bounds)
        )


def dealt(right: dict[str, NDArray[np.bool_]], seeds: int, bank: int, trial: int) -> dict[str, NDArray[np.bool_]]:
    """Return one random draw as the subset, and others of the bank as the random ones."""
    generator = np.random.default_rng([bank, trial])
    others = generator.permutation(np.delete(np.arange(BANK), trial))[:seeds]
    by_class = generator.permutation(len(right[BY_CLASS]))[:seeds]
    return {
        SUBSET: right[RANDOM][trial : trial + 1],
        ALL_ROWS: right[ALL_ROWS],
        RANDOM: right[RANDOM][others],
        BY_CLASS: right[BY_CLASS][by_class],
    }


def drawn(pool: SubsetPool, arguments: argparse.Namespace, trial: int) -> SubsetPool:
    """Return some rows of either side, of which a random share is the subset."""
    generator = np.random.default_rng([trial, 99])
    stays = np.zeros(len(pool.row), bool)
    for rows in (pool.trainable, pool.tests):
        stays[generator.permutation(rows)[: arguments.of_each]] = True
    part = pool.part(stays)
    return replace(part, kept=(generator.random(len(part.row)) < arguments.share) & ~part.tested)


def models(pool: SubsetPool, seed: int) -> dict[str, Train]:
    """Return what trains either model on rows of a pool."""
    held, truth, n_classes = pool.vectors[pool.tests], pool.label[pool.tests], len(pool.classes)

    def linear(rows: NDArray[np.int64], number: int) -> NDArray[np.bool_]:
        train = pool.vectors[rows], pool.label[rows]
        return right_by_linear(*train, held, truth, n_classes, seed=seed + number)[0]

    def neighbours(rows: NDArray[np.int64], number: int) -> NDArray[np.bool_]:
        return right_by_neighbours(pool.vectors[rows], pool.label[rows], held, truth)

    return {"linear": linear, "kNN": neighbours}


def held_out(pool: SubsetPool, sides: TrainingSides) -> HeldOutRows:
    """Return the rows that are tested on, all with labels that are believed."""
    counts = [np.bincount(pool.label[rows], minlength=len(pool.classes)) for rows in (sides.subset, sides.all_rows)]
    everything = np.ones(len(pool.tests), bool)
    return HeldOutRows(pool.label[pool.tests], pool.classes, ~everything, everything, *counts)


def cost(arguments: argparse.Namespace) -> None:
    """Time the whole command on rows that are made."""
    generator = np.random.default_rng(0)
    label = generator.integers(0, arguments.classes, arguments.rows)
    rows = generator.normal(size=(arguments.classes, arguments.width))[label] * 0.3
    rows += generator.normal(size=rows.shape)
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)
    wrong = generator.random(arguments.rows) < 1 / 3
    labels = np.where(wrong, generator.integers(0, arguments.classes, arguments.rows), label)
    keys = [f"{number:07d}" for number in range(arguments.rows)]
    flat = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), arguments.width)
    with tempfile.TemporaryDirectory() as folder:
        table, subset = Path(folder) / "scores.parquet", Path(folder) / "kept.parquet"
        pq.write_table(pa.table({"key": keys, "label": labels, "embedding": flat}), table)
        kept = np.flatnonzero(generator.random(arguments.rows) < arguments.kept)
        pq.write_table(pa.table({"key": [keys[row] for row in kept]}), subset)
        begun = time.perf_counter()
        started = time.process_time()
        evaluation = curate.evaluate(
            table,
            subset=subset,
            label="label",
            seeds=arguments.seeds,
            sample=arguments.sample,
            announce=lambda text: print(f"{time.perf_counter() - begun:7.1f} s  {text}", flush=True),
        )
        seconds, busy = time.perf_counter() - begun, time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{seconds:7.1f} s, {busy:.1f} s of processor, peak {peak:.2f} GiB")
    print(*evaluation.verdict(), sep="\n")


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["null", "cost"])
    parser.add_argument("table", type=Path, nargs="?")
    parser.add_argument("--label", default="label")
    parser.add_argument("--test")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--share", type=float, default=0.5, help="of the rows that a random subset keeps")
    parser.add_argument("--of-each", type=int, default=2000, help="rows to train on, and to test on, in a trial")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--kept", type=float, default=0.5)
    arguments = parser.parse_args()
    {"null": null, "cost": cost}[arguments.what](arguments)


if __name__ == "__main__":
    main()
