"""Whether the intervals of `curate round status` hold at every look, and where a rule would have stopped.

    python benchmarks/round_looks.py scores.parquet --label domain --budget 10,20,30 --test 0.8 --holdout 300 \
        --seeds 200 --strategy auto,margin --stop 'accuracy >= 70%' 'lift <= 4%'

Strategies are replayed on a table whose labels are all known. Each run draws, of the images measured on, as many as
rounds would hold out. Printed are the runs in which the interval held the truth in all rounds, by the interval of every
look and by the exact interval of each round alone; then the median round, and the number of runs, in which a rule was
true, in which the interval of every look showed it, and in how many of these it was not true; the same alone.
"""

import argparse
import json
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from curate.policies.select.request import make_selector
from curate.probes.linear import fit_linear_probe, spread_of
from curate.rounds.measures.rules import LIFT, StopRule
from curate.rounds.simulation.replay import Curves, Replay, compare
from curate.rounds.simulation.run import BASELINE, replay_of
from curate.statistics.paired import level_of_look, paired_interval
from curate.tables.table import open_table
from scoring.metrics.proportions import clopper_pearson
from scoring.metrics.resampling import Interval

Bools = NDArray[np.bool_]
Ends = NDArray[np.float64]  # low, high of every look and low, high of each round alone, shape (4, runs, rounds)


def right_of(data: Replay, curves: Curves, holdout: int) -> Bools:
    """Return where the model of each round is right on the test rows that its run holds out, shape (S, B, H)."""
    spread, n_classes = spread_of(data.features), int(max(data.labels.max(), data.test_labels.max())) + 1
    right = np.zeros((len(curves.seeds), len(curves.budgets), holdout), bool)
    for run, seed in enumerate(curves.seeds):
        held_out = np.random.default_rng([seed, 5]).permutation(len(data.test_labels))[:holdout]
        for step, budget in enumerate(curves.budgets):
            picked = curves.picks[run, :budget]
            probe = fit_linear_probe(
                data.features[picked], data.labels[picked], n_classes, spread=spread, calibrate=False, seed=seed
            )
            predicted = probe.predict(data.test_features[held_out]).argmax(1)
            right[run, step] = predicted == data.test_labels[held_out]
    return right


def ends_of(shape: tuple[int, ...], confidence: float, interval: Callable[[tuple[int, ...], float], Interval]) -> Ends:
    """Return the ends of the intervals of every run and round."""
    ends = np.empty((4, *shape))
    for at in np.ndindex(shape):
        every, alone = interval(at, level_of_look(at[1] + 1, confidence)), interval(at, confidence)
        ends[(slice(None), *at)] = every.low, every.high, alone.low, alone.high
    return ends


def of_accuracy(right: Bools, confidence: float) -> Ends:
    counts, n = right.sum(2), right.shape[2]
    return ends_of(counts.shape, confidence, lambda at, level: clopper_pearson(int(counts[at]), n, level))


def of_lift(right: Bools, reference: Bools, confidence: float) -> Ends:
    better, worse, n = (right & ~reference).sum(2), (reference & ~right).sum(2), right.shape[2]
    return ends_of(
        better.shape, confidence, lambda at, level: paired_interval(int(better[at]), int(worse[at]), n, level)
    )


def held(truth: Ends, ends: Ends) -> list[int]:
    """Return in how many runs the truth was inside in every round: by every look's interval, and alone."""
    return [int(((ends[at] <= truth) & (truth <= ends[at + 1])).all(1).sum()) for at in (0, 2)]


def stops(rule: StopRule, truth: Ends, ends: Ends) -> Iterator[object]:
    """Yield the median round in which a rule is true; and shown, and how often wrongly, by either interval."""
    low, high, alone_low, alone_high = ends
    parts = (truth, low, alone_low) if rule.at_least else (truth, high, alone_high)
    true, *shown = (part >= rule.bound if rule.at_least else part <= rule.bound for part in parts)
    yield rounds(true)
    for each in shown:
        yield rounds(each)
        at_stop = np.take_along_axis(true, each.argmax(1)[:, None], 1)[:, 0]
        yield int((each.any(1) & ~at_stop).sum())


def rounds(shown: Bools) -> str:
    """Return the median of the first rounds in which something is shown, and in how many runs it ever is."""
    first = sorted((shown.argmax(1)[shown.any(1)] + 1).tolist())
    return f"{first[(len(first) - 1) // 2]} ({len(first)})" if first else "never"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("--label", required=True)
    parser.add_argument("--budget", required=True)
    parser.add_argument("--test", type=float, default=0.8)
    parser.add_argument("--holdout", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--strategy", default="auto,margin")
    parser.add_argument("--stop", nargs="*", default=[])
    parser.add_argument("--confidence", type=float, default=0.95)
    options = parser.parse_args()
    data, facts = replay_of(open_table(options.table), options.label, None, options.test, False)
    print(json.dumps(facts["rows"]))
    names = dict.fromkeys([*options.strategy.split(","), BASELINE])
    budgets = [int(each) for each in options.budget.split(",")]
    curves = compare(data, {name: make_selector(name) for name in names}, budgets=budgets, seeds=range(options.seeds))
    right = {name: right_of(data, each, options.holdout) for name, each in curves.items()}
    rules = [StopRule.parse(text) for text in options.stop]
    print("| strategy | accuracy, every look | alone | lift, every look | alone |\n|---|---|---|---|---|")
    stopped = []
    for name, each in curves.items():
        measures = {"accuracy": (each.accuracy, of_accuracy(right[name], options.confidence))}
        if name != BASELINE:
            ends = of_lift(right[name], right[BASELINE], options.confidence)
            measures[LIFT] = (each.accuracy - curves[BASELINE].accuracy, ends)
        cells = [count for measure in measures.values() for count in held(*measure)]
        print(f"| {name} | {' | '.join(str(cell) for cell in cells)} |")
        usable = [rule for rule in rules if rule.measure in measures]
        stopped += [(name, rule, *stops(rule, *measures[rule.measure])) for rule in usable]
    print("\n| strategy | rule | true | every look | wrongly | alone | wrongly |\n|---|---|---|---|---|---|---|")
    for line in stopped:
        print(f"| {' | '.join(str(cell) for cell in line)} |")


if __name__ == "__main__":
    main()
