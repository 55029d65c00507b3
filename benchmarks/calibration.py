"""Are probabilities of being bad right on other rows: fitted on half of a table, tested on the other.

    python benchmarks/calibration.py checked.parquet --column label_quality --bad 'aggre_label != clean_label'
    python benchmarks/calibration.py tables/*.parquet --column unc_fitted --bad "kind != 'clean'"

The truth of every row is known. Halves are drawn by a hash of the keys, each with its share of bad rows. Next to the
maps stand a constant, the share of bad rows in the first half, and the score as it is where it lies between 0 and 1.
"""

import argparse
from pathlib import Path

import numpy as np

from curate.calibration.judged import JudgedRows, Truth, folds_of, judged_rows
from curate.statistics.calibration import Calibrated, calibrated
from curate.statistics.calibrators import CALIBRATORS
from curate.tables.table import open_table

CONSTANT, AS_IT_IS = "constant", "as it is"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", type=Path, nargs="+")
    parser.add_argument("--column", action="append", required=True, help="score (repeatable)")
    parser.add_argument("--bad", required=True, help="condition that is true of bad rows")
    parser.add_argument("--judged", type=int, action="append", help="rows to fit on (repeatable) [half of all]")
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("fitted on; map: ECE (by chance, up to) | debiased RMS | Brier | below the constant; 95 % intervals")
    for table in options.table:
        for column in options.column:
            rows = judged_rows(open_table(table), column, Truth(bad=options.bad))
            for n in options.judged or [len(rows.values) // 2]:
                for name, calibrated_half in halves(rows, n, options).items():
                    print(
                        f"{table.name}, {column}, {rows.rate:.1%} bad, {n:,}; {name}: {line(calibrated_half)}",
                        flush=True,
                    )


def halves(rows: JudgedRows, n: int, options: argparse.Namespace) -> dict[str, Calibrated]:
    """Return how good the maps of the first n rows of one half are on the other."""
    x, half = rows.score.doubt(rows.values), folds_of(rows, 2, options.seed)
    order = np.random.default_rng(options.seed).permutation(np.flatnonzero(half == 0))
    on, off = np.sort(order[:n]), np.flatnonzero(half == 1)
    maps = {name: kind.fit(x[on], rows.bad[on], rows.weights[on]).predict(x[off]) for name, kind in CALIBRATORS.items()}
    chance = x[off] if rows.score.sign > 0 else 1 + x[off]  # of being bad, if the score is one
    if chance.min() >= 0 and chance.max() <= 1:
        maps[AS_IT_IS] = chance
    maps[CONSTANT] = np.full(len(off), rows.bad[on].mean())
    weights = np.ones(len(off))
    return calibrated(maps, CONSTANT, rows.bad[off], weights, repeats=options.repeats, seed=options.seed)


def line(result: Calibrated) -> str:
    chance = f"{result.ece.value:.4f} ({result.by_chance.value:.4f}, {result.by_chance.high:.4f})"
    return " | ".join(
        [chance, *("{:.4f} [{:.4f}, {:.4f}]".format(*interval) for interval in (result.rms, result.brier, result.gain))]
    )


if __name__ == "__main__":
    main()
