"""Do filters with a guarantee keep their promise, and how many rows do they keep: verdicts drawn again and again.

    python benchmarks/audit.py checked.parquet --bad 'worse_label != clean_label' --column label_quality
    python benchmarks/audit.py --data DATA --set 'PACS photo' --share 0.1 --folder planted/

The truth of every row is known here, so each resample draws rows as ``curate review plan`` does, answers by the truth,
cuts as ``curate filter --max-bad-rate`` does, and looks whether the kept rows hold more bad ones than promised. Next to
each column is one of random numbers, and the most rows that any cut of the column could keep at that rate.
"""

import argparse
from pathlib import Path

import numpy as np
from named_data import add_data, open_data
from numpy.typing import NDArray
from transfer_datasets import DEVELOPMENT, development
from transfer_junk import DOMAIN

import curate
from curate.policies.audit.draw import Population
from curate.statistics.guarantee import Sampled, guaranteed_cut
from curate.tables.needs import Needs
from curate.tables.rows import read_rows
from curate.tables.table import open_table
from scoring.metrics.proportions import wilson

RATES = (0.02, 0.05, 0.10)
CHANCE = "chance"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", type=Path, nargs="?", help="scored table; else one is made of --set")
    parser.add_argument("--bad", default="kind != 'clean'", help="condition that is true of bad rows")
    parser.add_argument("--column", action="append", help="score (repeatable)")
    parser.add_argument("--images", type=int, action="append", help="judged images (repeatable) [500, 1000]")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--confidence", type=float, default=0.95)
    add_data(parser)
    parser.add_argument("--set", default="PACS photo", choices=list(DEVELOPMENT), help="to plant junk in")
    parser.add_argument("--share", type=float, default=0.1, help="of junk")
    parser.add_argument("--folder", type=Path, default=Path(), help="where tables that are made are kept")
    options = parser.parse_args()
    table = options.table or plant(folder_of(options), options.set, options.share, options.folder)
    columns = options.column or ["unc_fitted"]
    rows = read_rows(open_table(table), Needs(exact=tuple(columns), conditions=(("--bad", options.bad),)))
    bad = (rows.truths[options.bad] == 1)[rows.ok]
    print(
        f"{table}: {len(bad):,} rows, {bad.mean():.2%} bad; {options.resamples:,} resamples, {options.confidence:.0%}"
    )
    print("column, rate, judged: broken (95 % interval) | kept of all, kept of the good | best possible | none found")
    orders = {name: ordered(Population.of(rows, name), rows.exact[name].values[rows.ok], bad) for name in columns}
    orders[CHANCE] = np.random.default_rng(0).permutation(bad), np.arange(1, len(bad) + 1)
    for name, (in_order, cuts) in orders.items():
        for rate in RATES:
            for n in options.images or [500, 1000]:
                print(f"{name}, {rate:.0%}, {n}: {measured(in_order, cuts, rate, n, options)}", flush=True)


def folder_of(options: argparse.Namespace) -> Path:
    """Return the folder with the set that junk is planted in, and with the domain that some of the junk is from."""
    data = open_data(options.data, dict.fromkeys(file for file, _ in DEVELOPMENT.values()))
    return data.need(DEVELOPMENT[options.set][0], DEVELOPMENT[DOMAIN[options.set]][0])


def plant(data: Path, name: str, share: float, folder: Path) -> Path:
    """Return the scored table of a set with junk among it, made once."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from transfer_junk import planted

    stem = f"{name.replace(' ', '_')}_{share:g}"
    out = folder / f"{stem}.parquet"
    if not out.exists():
        images = planted(development(data, name)[1](), development(data, DOMAIN[name])[1](), share)
        source = folder / f"{stem}.source.parquet"
        keys = [f"{i:06}" for i in range(len(images.data))]
        pq.write_table(
            pa.table({"key": keys, "kind": images.kind, "image": pa.array(images.data, pa.binary())}), source
        )
        curate.score(str(source), out)
    return out


def ordered(population: Population, values: NDArray, bad: NDArray[np.bool_]) -> tuple[NDArray, NDArray]:
    """Return whether each row is bad, the most certain first, and the ranks at which no equal rows are parted."""
    order = np.argsort(population.ranks(values), kind="stable")
    return bad[order], np.unique(population.ranks(values))


def measured(bad: NDArray[np.bool_], allowed: NDArray, rate: float, n: int, options: argparse.Namespace) -> str:
    """Return one line: how often the promise was broken, and how much was kept."""
    n = min(n, len(bad))
    so_far = np.cumsum(bad)
    share = so_far / np.arange(1, len(bad) + 1)
    generator = np.random.default_rng([n, int(1000 * rate)])
    kept = np.zeros(options.resamples, np.int64)
    ends = np.array([len(bad)])
    for at in range(options.resamples):
        rows = generator.choice(len(bad), n, replace=False)
        ranks = allowed[np.searchsorted(allowed, rows + 1)]
        sampled = Sampled(ends, ranks, bad[rows].astype(np.float64))
        kept[at] = guaranteed_cut(
            sampled, rate, options.confidence, snap=lambda ranks: allowed[np.searchsorted(allowed, ranks)]
        ).kept
    any_kept = kept > 0
    broken = any_kept & (share[np.maximum(kept - 1, 0)] > rate)
    at_best = allowed[share[allowed - 1] <= rate]
    best = int(at_best[-1]) if len(at_best) else 0
    interval = wilson(int(broken.sum()), options.resamples)
    good = np.concatenate([[0], np.cumsum(~bad)])
    return (
        f"{interval.value:.1%} ({interval.low:.1%} to {interval.high:.1%}) | {kept.mean() / len(bad):.1%}, "
        f"{good[kept].mean() / max(good[-1], 1):.1%} | {best / len(bad):.1%}, {good[best] / max(good[-1], 1):.1%} | "
        f"{1 - any_kept.mean():.1%}"
    )


if __name__ == "__main__":
    main()
