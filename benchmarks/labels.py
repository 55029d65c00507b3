"""How well `curate labels` finds wrong labels, next to cleanlab on the same embeddings and the same probabilities.

    python benchmarks/labels.py [--data DATA] --scores SCORES [--cleanlab SITE] [--json FILE]

DATA holds the labelled sets and CIFAR-10N as Parquet; SCORES is a folder with what `curate score` makes of each set by
the shipped model (NAME.parquet), scored here where it is missing: 50,000 images of CIFAR-10 take half an hour on a busy
machine. SITE is where `pip install --target SITE cleanlab` put cleanlab; without it its rows are left out, and that is
said. Planted: symmetric mistakes; asymmetric ones, to the class with the nearest mean; and instance-dependent ones (Xia
et al. 2020, arXiv:2006.07836, algorithm 2). CIFAR-10N: rows 25,000 on, whose right labels the backbone was not taught.
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from named_data import add_data, open_data
from numpy.typing import NDArray

import curate
from curate.probes.crossed import LabelEvidence, crossed
from curate.probes.linear import softmax
from curate.statistics.noise.quality import Mistakes, confident_joint, judge
from curate.statistics.noise.share import shares
from scoring.metrics.ranking import auroc
from scoring.metrics.resampling import percentiles
from scoring.relative.space import centred, mean_of

CHOSEN = ("rsscn7_160", "grocery_160", "pacs_160")  # what the method was chosen on, with CIFAR-10N's random_label1
REPORTED = ("monkeys10_160", "caltech_subset", "tinyimagenet_val")
RATES = (0.1, 0.4)
KINDS = ("symmetric", "asymmetric", "instance")
CIFAR, PEOPLE = "cifar10_train", "cifar10n_train"
VOTES = ("worse_label", "aggre_label", "random_label2", "random_label1", "random_label3")
FIRST = 25_000  # the backbone learned from the right labels of the rows before
METHODS = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
RESAMPLES = 200
MOST_NUMBERS = 120_000  # rows times classes beyond which scikit-learn's regression takes too long here


@dataclass(frozen=True)
class Case:
    """A set with wrong labels: embeddings, labels given and right, and columns of certainty."""

    name: str
    noise: str
    rate: float
    vectors: NDArray
    labels: NDArray[np.int64]
    right: NDArray[np.int64]
    columns: dict[str, NDArray[np.float64]]


def scored(name: str, data: Path, scores: Path) -> pa.Table:
    """Return the scored table of a set, made where it is missing."""
    path = scores / f"{name}.parquet"
    if not path.is_file():
        keyed = {"key": "id"} if name == CIFAR else {}
        curate.score([str(data / f"{name}.parquet")], path, fit=False, **keyed)
    table = pq.read_table(path)
    return table.filter(pa.array([status == "ok" for status in table["status"].to_pylist()]))


def parts(table: pa.Table) -> tuple[NDArray, dict[str, NDArray[np.float64]]]:
    """Return embeddings and score columns; a higher value is less certain."""
    column = table["embedding"].combine_chunks()
    vectors = column.flatten().to_numpy().reshape(len(column), -1)
    columns = {name: table[name].to_numpy().astype(np.float64) for name in table.schema.names if name[:4] == "unc_"}
    return vectors, columns


def planted(right: NDArray[np.int64], vectors: NDArray, kind: str, rate: float, seed: int) -> NDArray[np.int64]:
    """Return labels of which about a share ``rate`` was made wrong."""
    generator = np.random.default_rng([seed, 17])
    n, n_classes = len(right), int(right.max()) + 1
    labels, x = right.copy(), vectors.astype(np.float64)
    moved = generator.random(n) < rate
    if kind == "symmetric":
        labels[moved] = (right[moved] + generator.integers(1, n_classes, int(moved.sum()))) % n_classes
    elif kind == "asymmetric":
        means = np.stack([x[right == label].mean(0) for label in range(n_classes)]) - x.mean(0)
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        alike = means @ means.T
        np.fill_diagonal(alike, -2)
        labels[moved] = alike.argmax(1)[right[moved]]
    else:
        flips, x = np.clip(generator.normal(rate, 0.1, n), 0, 1), (x - x.mean(0)) / x.std()
        for label in range(n_classes):
            rows = np.flatnonzero(right == label)
            logits = x[rows] @ generator.normal(size=(x.shape[1], n_classes))
            logits[:, label] = -np.inf
            chance = softmax(logits) * flips[rows, None]
            chance[:, label] = 1 - flips[rows]
            drawn = (generator.random((len(rows), 1)) > chance.cumsum(1)).sum(1)
            labels[rows] = np.minimum(drawn, n_classes - 1)
    return labels


def cases(data: Path, scores: Path, sets: list[str], rates: list[float], seeds: int) -> Iterator[Case]:
    """Yield what is measured."""
    for name in sets:
        table = scored(name, data, scores)
        vectors, columns = parts(table)
        if name == CIFAR:
            yield from people(table, vectors, columns, data)
            continue
        right = np.unique(np.array(table["label"].to_pylist()), return_inverse=True)[1].astype(np.int64)
        yield Case(name, "none", 0.0, vectors, right, right, columns)
        for kind in KINDS:
            for rate in rates:
                for seed in range(seeds):
                    yield Case(name, kind, rate, vectors, planted(right, vectors, kind, rate, seed), right, columns)


def people(table: pa.Table, vectors: NDArray, columns: dict[str, NDArray], data: Path) -> Iterator[Case]:
    """Yield CIFAR-10 with the labels that annotators gave."""
    noisy = pq.read_table(data / f"{PEOPLE}.parquet")
    order = np.argsort(noisy["id"].to_numpy())
    ids = table["id"].to_numpy()
    at = order[np.searchsorted(noisy["id"].to_numpy()[order], ids)]
    late = ids >= FIRST
    right = table["label"].to_numpy().astype(np.int64)[late]
    for vote in VOTES:
        labels = noisy[vote].to_numpy().astype(np.int64)[at][late]
        rate = float((labels != right).mean())
        yield Case(CIFAR, vote, rate, vectors[late], labels, right, {k: v[late] for k, v in columns.items()})


def all_classes(evidence: LabelEvidence, labels: NDArray[np.int64], n_classes: int) -> NDArray[np.float64]:
    """Return probabilities of all classes: what is kept of each row; the rest of 1 spread over the others."""
    kept = evidence.probabilities
    n, k = kept.index.shape
    filled = np.full((n, n_classes), -1.0)
    filled[np.arange(n)[:, None], kept.index] = kept.probability
    filled[np.arange(n), labels] = np.nan_to_num(kept.of_label, nan=0.0)
    rest = np.clip(1 - np.where(filled < 0, 0, filled).sum(1), 0, 1) / max(n_classes - k, 1)
    filled = np.where(filled < 0, rest[:, None], filled)
    return filled / filled.sum(1, keepdims=True)


def logistic(vectors: NDArray, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return out-of-fold probabilities of a logistic regression of scikit-learn, as the guide of cleanlab has it."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    model = LogisticRegression(max_iter=200)
    return np.asarray(cross_val_predict(model, vectors.astype(np.float64), labels, cv=5, method="predict_proba"))


def average_precision(doubt: NDArray, wrong: NDArray[np.bool_]) -> float:
    """Return the mean precision at each wrong label, the most doubtful first; ties at their last row."""
    order = np.argsort(-doubt, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(doubt[order])), len(order) - 1)
    hits = np.cumsum(wrong[order])[ends]
    return float((np.diff(np.concatenate([[0], hits])) * hits / (ends + 1)).sum() / max(hits[-1], 1))


def measured(doubt: NDArray, wrong: NDArray[np.bool_]) -> dict[str, float]:
    """Return AUROC, average precision, and the precision of as many rows as are wrong."""
    first = np.argsort(-doubt, kind="stable")[: int(wrong.sum())]
    return {
        "auroc": float(auroc(doubt, wrong)),
        "ap": average_precision(doubt, wrong),
        "at_k": float(wrong[first].mean()),
    }


def difference(ours: NDArray, other: NDArray, wrong: NDArray[np.bool_], seed: int = 0) -> dict[str, list[float]]:
    """Return how much higher ours are, with 95 % intervals over rows, paired."""

    def of(at: NDArray[np.int64]) -> list[float]:
        mine, two = measured(ours[at], wrong[at]), measured(other[at], wrong[at])
        return [mine[name] - two[name] for name in ("auroc", "ap")]

    generator = np.random.default_rng(seed)
    low, high = percentiles(np.array([of(generator.integers(0, len(wrong), len(wrong))) for _ in range(RESAMPLES)]))
    value = of(np.arange(len(wrong)))
    return {name: [value[i], float(low[i]), float(high[i])] for i, name in enumerate(("auroc", "ap"))}


def sets_of(flagged: NDArray[np.bool_], wrong: NDArray[np.bool_]) -> dict[str, float]:
    """Return precision, recall and F1 of the rows that are called wrong."""
    hit = float((flagged & wrong).sum())
    precision, recall = hit / max(flagged.sum(), 1), hit / max(wrong.sum(), 1)
    return {"precision": precision, "recall": recall, "f1": 2 * hit / max(flagged.sum() + wrong.sum(), 1)}


def run(case: Case, cleanlab: Any) -> dict[str, Any]:
    """Measure one case."""
    wrong, n_classes = case.labels != case.right, int(max(case.labels.max(), case.right.max())) + 1
    start = time.perf_counter()
    evidence = crossed(centred(case.vectors, mean_of(case.vectors)), case.labels, n_classes)
    joint = confident_joint(evidence.probabilities, case.labels, n_classes)
    judged = judge(evidence.probabilities, case.labels, Mistakes.of(joint))
    suspected = judged.quality < 0.5
    share = shares(evidence.probabilities, case.labels, joint, suspected, judged.suggested)
    seconds = time.perf_counter() - start
    of_class = [
        each.low <= float(wrong[case.labels == label].mean()) <= each.high
        for label, each in enumerate(share.of_class)
        if (case.labels == label).any()
    ]
    result: dict[str, Any] = {
        "set": case.name,
        "noise": case.noise,
        "rate": case.rate,
        "rows": len(wrong),
        "classes": n_classes,
        "wrong": float(wrong.mean()),
        "seconds": seconds,
        "share": list(share.overall),
        "covered": bool(share.overall.low <= wrong.mean() <= share.overall.high),
        "covered_classes": [int(sum(of_class)), len(of_class)],
    }
    if not wrong.any():
        return result
    scores = {"curate": 1 - judged.quality.astype(np.float64)}
    flagged = {"curate": suspected}
    if cleanlab is not None:
        inputs = {"same probabilities": all_classes(evidence, case.labels, n_classes)}
        if len(wrong) * n_classes <= MOST_NUMBERS:
            inputs["its logistic regression"] = logistic(case.vectors, case.labels)
        for what, chances in inputs.items():
            for method in METHODS:
                quality = cleanlab["rank"].get_label_quality_scores(case.labels, chances, method=method)
                scores[f"cleanlab {method}, {what}"] = 1 - quality
            flagged[f"cleanlab, {what}"] = cleanlab["filter"].find_label_issues(case.labels, chances, n_jobs=1)
    scores |= case.columns
    result["scores"] = {name: measured(doubt, wrong) for name, doubt in scores.items()}
    result["sets"] = {name: sets_of(np.asarray(each), wrong) for name, each in flagged.items()}
    result["corrected"] = float((judged.suggested == case.right)[suspected & wrong].mean()) if suspected.any() else 0.0
    same_input = {name: each for name, each in result["scores"].items() if "same probabilities" in name}
    if same_input:
        best = max(same_input, key=lambda name: same_input[name]["ap"])
        result["best"] = best
        result["difference"] = difference(scores["curate"], scores[best], wrong)
    return result


def line(result: dict[str, Any]) -> str:
    """Return a case in one line."""
    low, high = 100 * result["share"][1], 100 * result["share"][2]
    text = f"{result['set']} {result['noise']} {result['rate']:.2f}: {100 * result['wrong']:.1f} % wrong"
    text += f", reported {100 * result['share'][0]:.1f} ({low:.1f} to {high:.1f}), {result['seconds']:.0f} s"
    for name, each in result.get("scores", {}).items():
        if not name.startswith("unc_"):
            text += f"\n    {name}: AUROC {each['auroc']:.4f} AP {each['ap']:.4f} at k {each['at_k']:.3f}"
    for name, each in result.get("sets", {}).items():
        text += f"\n    called wrong by {name}: " + " ".join(f"{k} {v:.3f}" for k, v in each.items())
    for name, (value, below, above) in result.get("difference", {}).items():
        text += f"\n    {name} above {result['best']}: {value:+.4f} [{below:+.4f}, {above:+.4f}]"
    return text


def main() -> None:
    """Measure all cases, and say so as it goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--scores", type=Path, required=True)
    parser.add_argument("--cleanlab", type=Path)
    parser.add_argument("--sets", nargs="*", help="names of files; by default yours, or all of the layout")
    parser.add_argument("--rates", nargs="*", type=float, default=RATES)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.cleanlab is not None:
        sys.path.append(str(options.cleanlab))
    try:
        cleanlab: Any = {name: importlib.import_module(f"cleanlab.{name}") for name in ("rank", "filter")}
    except ImportError as error:
        cleanlab = None
        print(f"without cleanlab: {error}; pip install --target SITE cleanlab, and give --cleanlab SITE")
    rows = []
    data = open_data(options.data, (*CHOSEN, *REPORTED, CIFAR, PEOPLE), sets=True)
    sets = list(options.sets or data.added or [*CHOSEN, *REPORTED, CIFAR])
    folder = data.need(*sets, *([PEOPLE] if CIFAR in sets else []))
    for case in cases(folder, options.scores, sets, options.rates, options.seeds):
        rows.append(run(case, cleanlab))
        print(line(rows[-1]), flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
