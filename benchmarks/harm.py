"""What the defaults do to clean datasets of unlike domains, and what they find of junk that was planted there.

    python benchmarks/harm.py [--data DATA] [--model NAME] [--work FOLDER] [--set NAME] [--only SECTION] [--json OUT]

Reads the development sets as Parquet (columns `image`, `label`; PACS also `domain`), draws a handwriting-like set, and
mixes photographs with cartoons 92 : 8. Every table is scored by `curate score` as shipped, and kept in --work.

- clean: share flagged by p_junk and by every kind of issue, what `issues --drop unusable` drops, what the worst class
  keeps of --keep-top 80% and 50%, with classes known and unknown, and what a probe learns from the subset.
- truth: R-AUROC of unc_fitted against what it is made of, without labels and with 5 % of them.
- planted: junk of ten kinds at 1, 10 and 30 % of the rows: AUROC, recall and false alarms of p_junk at its threshold.
- groups: another domain mixed in at 5 and 10 %: the share of it that is in listed groups.
- crawl: 310 copies of three placeholder tiles among 697 images.

Intervals are 95 %: Wilson's for shares, a bootstrap over rows for AUROC, Student's t over splits for probes.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from harm_sets import CLEAN, KINDS, PAIRS, PLANTED, SETS, UNSEEN, clean_images, crawl, data_and_sets, mixed, planted
from named_data import add_data
from transfer_datasets import Images

import curate
from scoring.cards import find_checkpoint, read_header
from scoring.metrics.classifier import fit_linear
from scoring.metrics.proportions import wilson
from scoring.metrics.ranking import auroc
from scoring.metrics.resampling import percentiles
from scoring.model_names import DEFAULT

SHARES = (0.01, 0.1, 0.3)
KEPT = ("80%", "50%")
PROBED = (0.7, 0.3, 0.1)
SPLITS, TEST = 32, 0.3  # 8 splits are too few: the sign of a small difference changes with the draw
T_SPLITS = 2.040  # Student's t of 31 degrees of freedom, 97.5 %
LEAST_CLASS = 20  # rows of a class that counts
LABELLED, DRAWS = 0.05, 3
RESAMPLES = 200


@dataclass(frozen=True)
class Run:
    """Where data and scored tables are, and the model that scores."""

    data: Path
    work: Path
    model: str
    sets: tuple[str, ...]

    def table(self, name: str, make: Callable[[], Images]) -> Path:
        """Return the scored table of some images; it is made where the folder does not hold it yet."""
        out = self.work / f"{name.replace(' ', '_').replace(':', '-')}.parquet"
        if not out.exists():
            images = make()
            keys = [f"{row:06d}" for row in range(len(images.data))]
            columns = {"key": keys, "label": images.label, "kind": images.kind, "image": images.data}
            source = out.with_suffix(".images.parquet")
            pq.write_table(pa.table(columns), source, row_group_size=1000)
            curate.score(source, out, model=self.model, key="key")
        return out

    def clean(self, name: str) -> Path:
        """Return the scored table of a clean set."""
        return self.table(name, lambda: clean_images(self.data, name))


def flagged(path: Path) -> dict[str, Any]:
    """Return the share that p_junk flags, that each kind of issue flags, and that ``--drop unusable`` drops."""
    issues = curate.issues(path, drop="unusable")
    frame = pl.read_parquet(path, columns=["p_junk"])
    junk = (frame["p_junk"] > 0.5).fill_null(False)
    kinds = {name: round(each["n"] / issues.n_rows, 4) for name, each in issues.kinds.items() if each["n"]}
    off = {name: round(each["off"] / issues.n_rows, 4) for name, each in issues.kinds.items() if "off" in each}
    return {
        "rows": issues.n_rows,
        "applies": bool(frame["p_junk"].is_not_null().any()),
        "p_junk": wilson(int(junk.sum()), issues.n_rows),
        "unusable": wilson(issues.dropped, issues.n_rows),
        "groups": len(issues.groups),
        "unlike": round(issues.n_unlike / issues.n_rows, 3),
        "kinds": kinds,
        "off": off,
    }


def retention(path: Path, work: Path) -> dict[str, float]:
    """Return the least share of a class of 20 rows or more that amounts keep, with classes known and unknown."""
    unknown = work / "without-classes.parquet"
    frame = pl.read_parquet(path)
    label = frame["label"].to_numpy()
    metadata = pq.read_schema(path).metadata
    pq.write_table(pq.read_table(path).drop_columns(["label"]).replace_schema_metadata(metadata), unknown)
    least = {}
    for way, table in (("known", path), ("unknown", unknown)):
        for amount in KEPT:
            out = work / "kept.parquet"
            curate.filter(table, out, keep_top=amount, overwrite=True)
            kept = np.isin(frame["key"].to_numpy(), pl.read_parquet(out, columns=["key"])["key"].to_numpy())
            sizes = np.bincount(label)
            large = np.flatnonzero(sizes >= LEAST_CLASS)
            shares = (np.bincount(label[kept], minlength=len(sizes)) / np.maximum(sizes, 1))[large]
            least[f"{way} {amount}"] = float(shares.min()) if len(shares) else float("nan")
    return least


def probes(path: Path, work: Path) -> dict[str, tuple[float, float, float]]:
    """Return accuracy of a probe on what --keep-top keeps, less it on as many random rows: mean and interval."""
    import torch

    rows, label, keys = _centred(path)
    table = pq.read_table(path)
    gains: dict[str, list[float]] = {f"{share:.0%}": [] for share in PROBED}
    for split in range(SPLITS):
        draw = np.random.default_rng(split)
        test = draw.permutation(len(label))[: round(TEST * len(label))]
        pool = np.setdiff1d(np.arange(len(label)), test)
        inside, out = work / "pool.parquet", work / "kept.parquet"
        pq.write_table(table.take(pa.array(pool)), inside)
        for share in PROBED:
            curate.filter(inside, out, keep_top=f"{share:.0%}", overwrite=True)
            kept = np.flatnonzero(np.isin(keys, pl.read_parquet(out, columns=["key"])["key"].to_numpy()))
            random = draw.permutation(pool)[: len(kept)]
            reached = [_accuracy(rows, label, each, test, torch) for each in (kept, random)]
            gains[f"{share:.0%}"].append(reached[0] - reached[1])
    return {share: _by_splits(values) for share, values in gains.items()}


def _by_splits(values: list[float]) -> tuple[float, float, float]:
    mean, half = float(np.mean(values)), T_SPLITS * float(np.std(values, ddof=1)) / np.sqrt(len(values))
    return mean, mean - half, mean + half


def _accuracy(rows: Any, label: np.ndarray, known: np.ndarray, test: np.ndarray, torch: Any) -> float:
    classes = torch.from_numpy(label)
    probe = fit_linear(rows[known], classes[known], int(label.max()) + 1, c=1.0, tolerance=1e-3)
    return float((probe.logits(rows[test]).argmax(1) == classes[test]).double().mean())


def _centred(path: Path) -> tuple[Any, np.ndarray, np.ndarray]:
    import torch

    frame = pl.read_parquet(path, columns=["key", "label", "embedding"])
    rows = torch.from_numpy(np.stack(frame["embedding"].to_numpy()).astype(np.float32))
    rows = torch.nn.functional.normalize(rows - rows.mean(0))
    return rows, np.unique(frame["label"].to_numpy(), return_inverse=True)[1], frame["key"].to_numpy()


def truth(path: Path, work: Path) -> dict[str, Any]:
    """Return R-AUROC of scores: which rows' nearest other row is of another class."""
    _, label, keys = _centred(path)
    embedding = np.stack(pl.read_parquet(path, columns=["embedding"])["embedding"].to_numpy()).astype(np.float32)
    unit = embedding / np.linalg.norm(embedding, axis=1, keepdims=True)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -1)
    wrong = label[cosine.argmax(1)] != label
    names = ["unc_neighbour", "unc_ambiguous", "unc_fitted"]
    scores = {name: pl.read_parquet(path, columns=[name])[name].to_numpy().astype(float) for name in names}
    result: dict[str, Any] = {name: _interval(score, wrong) for name, score in scores.items()}
    with_labels = []
    for seed in range(DRAWS):
        labelled = np.random.default_rng(seed).permutation(len(label))[: max(60, round(LABELLED * len(label)))]
        known, out = work / "known.csv", work / "fitted.parquet"
        known.write_text("key,label\n" + "".join(f"{keys[row]},{label[row]}\n" for row in labelled))
        try:
            curate.fit(path, apply=out, labelled=known, label="label", overwrite=True)
        except curate.InputError:
            continue
        score = pl.read_parquet(out, columns=["unc_fitted"])["unc_fitted"].to_numpy().astype(float)
        rest = np.setdiff1d(np.arange(len(label)), labelled)
        with_labels.append(auroc(score[rest], wrong[rest]) - auroc(scores["unc_fitted"][rest], wrong[rest]))
    result["gain with 5 % labels"] = float(np.mean(with_labels)) if with_labels else float("nan")
    result["Recall@1"] = float(1 - wrong.mean())
    return result


def _interval(score: np.ndarray, target: np.ndarray) -> tuple[float, float, float]:
    draw = np.random.default_rng(0)
    some = [draw.integers(0, len(target), len(target)) for _ in range(RESAMPLES)]
    low, high = percentiles(np.array([auroc(score[rows], target[rows]) for rows in some])[:, None])
    return auroc(score, target), float(low[0]), float(high[0])


def junk_accuracy(path: Path) -> dict[str, Any]:
    """Return AUROC, recall and false alarms of p_junk on a table with planted junk."""
    frame = pl.read_parquet(path, columns=["p_junk", "kind"])
    if frame["p_junk"].is_null().all():
        return {"applies": False}
    junk, kind = frame["p_junk"].to_numpy(), frame["kind"].to_numpy()
    bad = kind != CLEAN
    by_kind = {name: round(float((junk[kind == name] > 0.5).mean()), 3) for name in KINDS if (kind == name).any()}
    return {
        "applies": True,
        "auroc": _interval(junk.astype(float), bad),
        "recall": wilson(int((junk[bad] > 0.5).sum()), int(bad.sum())),
        "of kinds like corruptions": round(float(np.mean([by_kind[name] for name in PLANTED])), 3),
        "of other kinds": round(float(np.mean([by_kind[name] for name in UNSEEN])), 3),
        "false alarms": wilson(int((junk[~bad] > 0.5).sum()), int((~bad).sum())),
        "by kind": by_kind,
    }


def in_groups(path: Path) -> dict[str, Any]:
    """Return the share of the mixed-in images that is in listed groups, and how many groups are listed."""
    frame = pl.read_parquet(path, columns=["unlike_group", "kind"])
    other = frame["kind"].to_numpy() != CLEAN
    listed = frame["unlike_group"].is_not_null().to_numpy()
    return {
        "listed": wilson(int(listed[other].sum()), int(other.sum())),
        "groups": int(frame["unlike_group"].n_unique() - frame["unlike_group"].has_nulls()),
        "of the rest": round(float(listed[~other].mean()), 3),
    }


def of_crawl(path: Path, work: Path) -> dict[str, Any]:
    """Return what becomes of 310 placeholders: flagged, dropped as unusable, kept by --keep-top 75%."""
    frame = pl.read_parquet(path, columns=["key", "kind", "p_junk", "copies"])
    tiles = set(frame.filter(pl.col("kind") != CLEAN)["key"].to_list())
    kept = curate.filter(path, work / "kept.parquet", keep_top="75%", overwrite=True)
    left = set(pl.read_parquet(kept.subset, columns=["key"])["key"].to_list())
    clean = curate.issues(path, work / "clean.parquet", drop="unusable", overwrite=True)
    cleaned = set(pl.read_parquet(clean.subset, columns=["key"])["key"].to_list())
    return {
        "tiles": len(tiles),
        "most copies": int(frame["copies"].max()),
        "p_junk of tiles": [
            round(float(value), 3) for value in frame.filter(pl.col("kind") != CLEAN)["p_junk"].unique()
        ],
        "kept by --keep-top 75%": len(tiles & left),
        "kept by --drop unusable": len(tiles & cleaned),
        "good images dropped as unusable": len(frame) - len(tiles) - len(cleaned - tiles),
    }


def sections(run: Run) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return what is measured, by name."""
    return {
        "clean": lambda: {
            name: {
                **flagged(run.clean(name)),
                **retention(run.clean(name), run.work),
                **probes(run.clean(name), run.work),
            }
            for name in run.sets
        },
        "truth": lambda: {name: truth(run.clean(name), run.work) for name in run.sets},
        "planted": lambda: {
            f"{name}, {share:.0%}": junk_accuracy(
                run.table(
                    f"{name} {share:.0%} junk",
                    lambda name=name, share=share: planted(clean_images(run.data, name), share),
                )
            )
            for name in run.sets
            for share in SHARES
        },
        "groups": lambda: {
            f"{base} + {share:.0%} {other}": in_groups(
                run.table(
                    f"{base} and {share:.0%} {other}",
                    lambda base=base, other=other, share=share: mixed(
                        clean_images(run.data, base), clean_images(run.data, other), share, kind=other
                    ),
                )
            )
            for base, other in PAIRS
            if base in run.sets
            for share in (0.05, 0.1)
        },
        "crawl": lambda: {
            name: of_crawl(run.table(f"{name} crawl", lambda name=name: crawl(clean_images(run.data, name))), run.work)
            for name in run.sets[:1]
        },
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--work", type=Path, default=Path("harm"))
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--set", action="append", choices=SETS, dest="sets")
    parser.add_argument("--only", action="append", choices=("clean", "truth", "planted", "groups", "crawl"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    digest = read_header(find_checkpoint(options.model))["digest"][:12]
    work = options.work / f"{options.model}-{digest}"
    work.mkdir(parents=True, exist_ok=True)
    data, sets = data_and_sets(options.data, options.sets, SETS)
    run = Run(data, work, options.model, sets)
    results = {}
    for name, measure in sections(run).items():
        if options.only and name not in options.only:
            continue
        results[name] = measure()
        print(f"\n## {name}")
        for what, numbers in results[name].items():
            print(f"{what}: " + "; ".join(f"{key} {_shown(value)}" for key, value in numbers.items()), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1, default=lambda value: list(value)))


def _shown(value: Any) -> str:
    if isinstance(value, tuple) or hasattr(value, "low"):
        middle, low, high = (value.value, value.low, value.high) if hasattr(value, "low") else value
        return f"{middle:.3f} ({low:.3f} to {high:.3f})"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
