"""Which strategy to label with? Rounds of labelling replayed on CIFAR-10, on frozen embeddings of the shipped model.

    python examples/active_learning_cifar10.py --data DATA [--work FOLDER] [--seeds 5] [--strategies auto margin ...]
    python examples/active_learning_cifar10.py --data DATA --noisy worse     # CIFAR-10N's labels as the annotator
    python examples/active_learning_cifar10.py --data DATA --junk            # a fifth of the pool is junk

DATA holds cifar10_train.parquet, cifar10_test.parquet (`image`, `label`) and cifar10n_train.parquet. Images are
scored once, into FOLDER; every strategy and seed is a small file there, so a study that was cut off goes on, and
several can run at once. Prints accuracy by number of labels with 95 % intervals, each strategy against random on the
same pools, the area under the curve, and what follows from the numbers. `docs/studies/active_learning.md` has ours.

Each seed draws its own pool of 10,000 from the 25,000 training images whose labels the shipped model's backbone did not
see; accuracy is on the 10,000 test images. Selectors look at whole embeddings, the probe learns from their first
128 principal components (of the pool, without labels), which costs a third and no accuracy.

Cost: 40,000 images to score (three minutes on two idle cores), then 10 to 40 seconds for each strategy and seed.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from study_data import (
    JUNK_SHARE,
    PEOPLE,
    PICTURES,
    Scored,
    add_data,
    cifar_junk,
    cifar_pool,
    junk_rows,
    labelled,
    open_data,
)
from study_features import principal
from study_junk import junk_report
from study_results import LOW_REGIME, Ledger, accuracy_table, advice, against_table, curves_of, half_width

from curate.policies.select.request import SAFE_GATE, guard
from curate.rounds.simulation.replay import Curves, Replay, replay
from curate.selectors.contract import Pool, Selection, Selector
from curate.selectors.table import SELECTORS
from curate.sheets.chart import Curve, Panel, draw_chart
from curate.sheets.style import save_chart

BUDGETS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
POOL = 10_000
FEATURES = 128
NOISY = {"worse": ("worse_label",), "random": ("random_label1", "random_label2", "random_label3")}
LEFT_OUT = {
    "small-loss": "needs the labels of the rows it chooses from: examples/subset_training.py has it",
    "score": "by a column; here as `score:COLUMN`, the least certain first",
}
SCORED = ("score:unc_losspred", "score:kappa_mcinfonce")
DRAWN = ("random", "auto", "herding", "typiclust", "margin", "entropy", "k-center")
JUNK_STRATEGIES = ("random", "margin", "entropy", "auto")


@dataclass(frozen=True)
class Guarded(Selector):
    """A strategy that heeds quality: a gate, a discount, or both.

    Attributes:
        name: of the strategy.
        least: the gate; 0 for none.
        discount: whether quality lowers ranks and weights.
    """

    name: str
    least: float
    discount: bool
    prefix = False
    cost = ""

    @property
    def needs(self) -> tuple[str, ...]:
        """What the strategy needs of a pool."""
        return (*SELECTORS[self.name].needs, "quality")

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows."""
        left, selector, _ = guard(pool, self.name, SELECTORS[self.name](), least=self.least, discount=self.discount)
        return selector(left, budget, seed=seed)


@dataclass(frozen=True)
class ByScore(Selector):
    """The rows that a column calls the least certain."""

    uncertainty: NDArray[np.float32]
    needs = ()
    prefix = True
    cost = ""

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows."""
        return SELECTORS["score"]()(replace(pool, uncertainty=self.uncertainty), budget, seed=seed)


@dataclass(frozen=True)
class Pictures:
    """What a study looks at: the pool to draw from, its junk, and the test rows."""

    pool: Scored
    test: Scored
    junk: Scored | None


def draw_pool(images: Pictures, size: int, seed: int) -> tuple[Scored, NDArray[np.bool_]]:
    """Return the pool of a seed, and which of its rows are junk; without junk, the same rows as they were.

    Args:
        images: to draw from.
        size: rows; ``JUNK_SHARE`` of them are rows that have a junk version, in every study.
        seed: of the draw.
    """
    generator = np.random.default_rng([seed, 2])
    bad = junk_rows(len(images.pool))
    good = np.setdiff1d(np.arange(len(images.pool)), bad)
    n_bad = round(JUNK_SHARE * size)
    at = np.sort(generator.choice(len(bad), n_bad, replace=False))
    rows = np.concatenate([bad[at], generator.choice(good, size - n_bad, replace=False)])
    order = generator.permutation(size)
    pool = images.pool.take(rows)
    is_junk = np.arange(size) < n_bad
    if images.junk is None:
        return pool.take(order), np.zeros(size, bool)
    spoilt = images.junk.take(at)
    vectors, columns = pool.vectors.copy(), {name: values.copy() for name, values in pool.columns.items()}
    vectors[is_junk] = spoilt.vectors
    for name in pool.certainty_columns:
        columns[name][is_junk] = spoilt.columns[name]
    return Scored(vectors, columns).take(order), is_junk[order]


def annotator(pool: Scored, noisy: str | None, seed: int) -> NDArray[np.int64] | None:
    """Return the labels that are given when a row is requested; None for the true ones."""
    if noisy is None:
        return None
    labels = np.stack([pool.columns[name] for name in NOISY[noisy]])  # (A, N)
    annotator_of = np.random.default_rng([seed, 3]).integers(0, len(labels), labels.shape[1])
    return labels[annotator_of, np.arange(labels.shape[1])].astype(np.int64)


def run_strategy(images: Pictures, name: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Replay a strategy with one seed.

    Args:
        images: what to draw the pool from.
        name: ``STRATEGY``, ``STRATEGY + gate COLUMN``, ``STRATEGY + discount COLUMN``, ``STRATEGY + guard COLUMN``
            (both) or ``score:COLUMN``.
        seed: of pool, annotator and strategy.
        arguments: as parsed.
    """
    pool, is_junk = draw_pool(images, min(arguments.pool, len(images.pool)), seed)
    turn = principal(pool.vectors, arguments.features)
    selector, quality, first = parse(name, pool)
    data = Replay(
        (pool.vectors @ turn).astype(np.float32),
        pool.columns["label"].astype(np.int64),
        (images.test.vectors @ turn).astype(np.float32),
        images.test.columns["label"].astype(np.int64),
        vectors=pool.vectors,
        annotated=annotator(pool, arguments.noisy, seed),
        quality=quality,
    )
    start = time.perf_counter()
    curves = replay(data, selector, budgets=arguments.budgets, seeds=[seed], first=first)
    bought = [float(is_junk[curves.picks[0, :budget]].mean()) for budget in curves.budgets]
    return {
        "budgets": list(arguments.budgets),
        "accuracy": curves.accuracy[0].tolist(),
        "junk": bought,
        "seconds": time.perf_counter() - start,
    }


def parse(name: str, pool: Scored) -> tuple[Any, NDArray[np.float32] | None, Any]:
    """Return a strategy by name, the quality it heeds, and what picks its first batch where it cannot."""
    base, _, guarding = name.partition(" + ")
    if base.startswith("score:"):
        return ByScore(1 - pool.quality(base.removeprefix("score:"))), None, None
    if base not in SELECTORS:
        raise SystemExit(f"unknown strategy {base!r} (known: {', '.join(SELECTORS)}, score:COLUMN)")
    if not guarding:
        return SELECTORS[base](), None, None
    kind, column = guarding.split()
    least = SAFE_GATE if kind in ("gate", "guard") else 0.0
    guarded = Guarded(base, least, kind in ("discount", "guard"))
    return guarded, pool.quality(column), Guarded("random", least, False)


def default_strategies(pool: Scored, *, junk: bool) -> list[str]:
    """Return the names to run where none are given."""
    if not junk:
        return [*(name for name in SELECTORS if name not in LEFT_OUT), *SCORED]
    names = list(JUNK_STRATEGIES)
    for column in pool.certainty_columns:
        names += [f"{base} + guard {column}" for base in ("margin", "entropy", "auto")]
    return names + [f"margin + {kind} unc_losspred" for kind in ("gate", "discount")]


def parse_arguments(typed: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what was typed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--work", type=Path, default=Path("active-learning"), help="where tables and results go")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--strategies", nargs="+", help="names as printed; all that make sense by default")
    parser.add_argument("--noisy", choices=list(NOISY), help="whose labels: the worst of three, or one of three")
    parser.add_argument("--junk", action="store_true", help="a fifth of the pool is junk")
    parser.add_argument("--pool", type=int, default=POOL, help="rows of a pool")
    parser.add_argument("--features", type=int, default=FEATURES, help="numbers that the probe learns from")
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS))
    parser.add_argument("--limit", type=int, help="score the first rows only, to try the study out")
    parser.add_argument("--print", action="store_true", help="run nothing; print what is there")
    return parser.parse_args(typed)


def main(typed: Sequence[str] | None = None) -> None:
    """Run a study and print it."""
    arguments = parse_arguments(typed)
    arguments.work.mkdir(parents=True, exist_ok=True)
    data = open_data(arguments.data, (PICTURES, "cifar10_test", PEOPLE))
    pool = cifar_pool(data, arguments.work, arguments.limit)
    test = labelled(data.folder, ["cifar10_test.parquet"], arguments.work, "test", arguments.limit)
    junk = cifar_junk(arguments.work) if arguments.junk else None
    images = Pictures(pool, test, junk)
    names = arguments.strategies or default_strategies(pool, junk=arguments.junk)
    ledger = ledger_of(arguments)
    seeds = range(arguments.seeds)
    for seed in seeds if not arguments.print else ():
        for name in names:
            result = ledger.of(name, seed, lambda name=name, seed=seed: run_strategy(images, name, seed, arguments))
            print(f"seed {seed} {name}: {100 * result['accuracy'][-1]:.1f} ({result['seconds']:.0f} s)", flush=True)
    report(arguments, images, ledger.known(names, seeds))


def ledger_of(arguments: argparse.Namespace, **other: Any) -> Ledger:
    """Return where the results of a study are; ``other`` replaces what was typed."""
    options = {**vars(arguments), **other}
    settings = {name: options[name] for name in ("noisy", "junk", "pool", "features", "budgets", "limit")}
    return Ledger(arguments.work / "results", settings)


def report(arguments: argparse.Namespace, images: Pictures, results_of: Mapping[str, list[dict[str, Any]]]) -> None:
    """Print what a study found, and draw its curves."""
    curves = {name: curves_of(results) for name, results in results_of.items()}
    if "random" not in curves:
        raise SystemExit("nothing to compare with: `random` has not run with every seed")
    print(f"\nAccuracy in percent, {arguments.seeds} seeds, ± half of the 95 % interval over seeds\n")
    print("\n".join(accuracy_table(curves)))
    print("\nThe same less random, on the same pools: mean over budgets to 100, over those beyond, area (by labels)\n")
    print("\n".join(against_table(curves)))
    if images.junk is not None:
        clean = ledger_of(arguments, junk=False).known(list(results_of), range(arguments.seeds))
        print("\n".join(junk_report(images.pool, images.junk, results_of, clean)))
    else:
        print("\nWhat follows\n")
        print("\n".join(advice(curves)))
        print("\nNot among them\n")
        print("\n".join(f"- `{name}`: {reason}" for name, reason in LEFT_OUT.items()))
    kind = "junk" if arguments.junk else arguments.noisy or "clean"
    draw(curves, arguments.work, kind)


def draw(curves: Mapping[str, Curves], folder: Path, kind: str) -> None:
    """Draw the low and the high regime, each an image, of the strategies most spoken of."""
    for regime, last in (("low", True), ("high", False)):
        lines = []
        for name in [name for name in DRAWN if name in curves] or list(curves)[:8]:
            curve = curves[name]
            some = curve.budgets <= 2 * LOW_REGIME if last else curve.budgets >= LOW_REGIME
            mean, half = curve.mean[some], np.nan_to_num(half_width(curve.accuracy)[some])
            lines.append(Curve(name, curve.budgets[some].tolist(), mean.tolist(), list(mean - half), list(mean + half)))
        if any(line.x for line in lines):
            title = f"CIFAR-10, {kind} pool: probe on frozen embeddings"
            panel = Panel(lines, "labels (bands: 95 % intervals)", "accuracy", percent=True)
            save_chart(draw_chart([panel], title=title), folder / f"curves-{kind}-{regime}.png", overwrite=True)


if __name__ == "__main__":
    main()
