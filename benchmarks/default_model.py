"""What the shipped model's columns are worth, beside baselines and random weights, in one run, on images it never saw.

    python benchmarks/default_model.py --data ../shared/data [--model CHECKPOINT]

Reads cifar10_train/test, cifar10h_test_0-1999, tinyimagenet_train_a/b/val and caltech_subset as Parquet (columns
`image`, `label`). The images of all three test sets are new to the model; so are the classes of the last.

For every column, their rank average, and the baselines: R-AUROC, AUROC of a kNN vote being right, Spearman with minus
the entropy of human votes, and how often a worse copy of an image is less certain than the image (the first 2,000 of
a set). The baselines are the entropy of a linear classifier that was fitted on the embeddings and labels of the
training images (for Caltech: of tiny-imagenet's), the norm of the features, and the variance of the Laplacian. Every
number has a 95 % bootstrap interval over images; differences are paired, column minus baseline on the same resamples.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from scoring import metrics
from scoring.checkpoint import DEFAULT, load_model
from scoring.images import Preprocessing, decode
from scoring.metrics.classifier import LinearClassifier, fit_linear
from scoring.metrics.degradations import WORSE, laplacian_variance
from scoring.model import ScoringModel

SETS = {
    "CIFAR-10": (("cifar10_train",), "cifar10_test"),
    "tiny-imagenet": (("tinyimagenet_train_a", "tinyimagenet_train_b"), "tinyimagenet_val"),
    "Caltech": ((), "caltech_subset"),
}
BASELINES = ("class entropy", "feature norm", "Laplacian")
REPEATS = 300
WORSE_ROWS = 2000


@dataclass(frozen=True)
class Said:
    """What a model says of N images: embeddings (N, D), and name -> certainty (N,), higher is more certain."""

    embedding: Tensor
    certainty: dict[str, np.ndarray]


def images_of(path: Path, preprocessing: Preprocessing) -> tuple[Tensor, Tensor]:
    """Return pixels as the model sees them, (N, 3, S, S) uint8, and the number of each label, (N,)."""
    table = pq.read_table(path, columns=["image", "label"])
    found = [decode(data.as_py(), preprocessing).pixels for data in table["image"]]
    pixels = np.stack([pixels for pixels in found if pixels is not None])
    labels = np.unique(np.array(table["label"].to_pylist()), return_inverse=True)[1]
    return torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.from_numpy(labels)


@torch.inference_mode()
def ask(model: ScoringModel, pixels: Tensor, classifier: LinearClassifier | None = None) -> Said:
    """Return what the model and the baselines say of images at the model's size."""
    embeddings, parts = [], []
    for part in pixels.split(256):
        part = part.float().round().contiguous(memory_format=torch.channels_last)
        features = model.features(part)
        outputs = model.read(features)
        kappas = {name: value for name, value in outputs.columns.items() if name.startswith("kappa_")}
        others = [name for name in outputs.columns if f"kappa_{name.removeprefix('unc_')}" not in outputs.columns]
        said = kappas | {name: -outputs.columns[name] for name in others if name not in kappas}
        if classifier is not None:
            share = classifier.logits(outputs.embedding).softmax(1)
            said["class entropy"] = -torch.from_numpy(metrics.entropy(share.numpy()))
        said |= {"feature norm": features.norm(dim=1), "Laplacian": laplacian_variance(part)}
        embeddings.append(outputs.embedding)
        parts.append(said)
    certainty = {name: torch.cat([part[name] for part in parts]).double().numpy() for name in parts[0]}
    columns = [values for name, values in certainty.items() if name not in BASELINES]
    return Said(torch.cat(embeddings), {"rank average": metrics.rank_average(np.stack(columns)), **certainty})


def resampled(measure: str, scores: dict[str, np.ndarray], target: np.ndarray) -> dict[str, np.ndarray]:
    """Return name -> the measure on all rows, then on the same resamples of them for every name."""
    statistic = {"auroc": metrics.auroc, "spearman": metrics.spearman}[measure]
    generator = np.random.default_rng(0)
    rows = [np.arange(len(target)), *generator.integers(0, len(target), (REPEATS, len(target)))]
    return {name: np.array([statistic(values[at], target[at]) for at in rows]) for name, values in scores.items()}


def shown(values: np.ndarray) -> str:
    """Return a value and the interval of its resamples."""
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return f"{values[0]:7.3f} [{low:6.3f}, {high:6.3f}]"


def relations(name: str, said: Said, labels: Tensor, right: np.ndarray | None, data: Path) -> Iterator[tuple]:
    """Yield (what, measure, target) of each relation that is measured on a set."""
    yield f"{name} R-AUROC", "auroc", metrics.recall_at_1(said.embedding, labels)
    if right is not None:
        yield f"{name} AUROC for kNN right", "auroc", right
    if name == "CIFAR-10":
        counts = pq.read_table(data / "cifar10h_test_0-1999.parquet")
        target = np.full(len(labels), np.nan)
        target[counts["id"].to_numpy()] = -metrics.entropy(np.array(counts["counts"].to_pylist(), float))
        yield "CIFAR-10H Spearman with -vote entropy", "spearman", target


def evaluate(model: ScoringModel, data: Path) -> dict[str, dict[str, float]]:
    """Print every number of one model, and return measure -> name -> value."""
    found: dict[str, dict[str, float]] = {}
    preprocessing = model.spec.preprocessing
    classifier: LinearClassifier | None = None  # where a set has no training images: that of the set before
    for name, (train, test) in SETS.items():
        pixels, labels = images_of(data / f"{test}.parquet", preprocessing)
        right = None
        if train:
            known, classes = zip(*(images_of(data / f"{file}.parquet", preprocessing) for file in train), strict=True)
            references, of_references = ask(model, torch.cat(known)).embedding, torch.cat(classes)
            del known
            classifier = fit_linear(references, of_references, int(of_references.max()) + 1)
        said = ask(model, pixels, classifier)
        if train:
            right = (metrics.knn_predict(said.embedding, references, of_references) == labels).numpy()
            found[f"{name} kNN accuracy"] = {"embedding": float(right.mean())}
        same = metrics.recall_at_1(said.embedding, labels)
        found[f"{name} recall@1"] = {"embedding": float(same.mean())}
        for what, measure, target in relations(name, said, labels, right, data):
            rows = ~np.isnan(target.astype(float))
            results = resampled(measure, {key: v[rows] for key, v in said.certainty.items()}, target[rows])
            found[what] = {key: float(values[0]) for key, values in results.items()}
            _print(what, results)
        for kind, change in WORSE.items():
            worse = change(pixels[:WORSE_ROWS].float(), torch.Generator().manual_seed(0))
            after = ask(model, worse, classifier).certainty
            shares = {
                key: (after[key] < before[: len(worse)]).astype(float)
                for key, before in said.certainty.items()
                if key != "rank average"  # ranks are among the images of one call
            }
            found[f"{name} less certain under {kind}"] = {key: float(values.mean()) for key, values in shares.items()}
            line = ", ".join(f"{key} {_share(values)}" for key, values in shares.items())
            print(f"  {name} less certain under {kind}: {line}", flush=True)
    for what in (key for key in found if "embedding" in found[key]):
        print(f"  {what}: {found[what]['embedding']:.3f}")
    return found


def _share(values: np.ndarray) -> str:
    half = 1.96 * np.sqrt(values.mean() * (1 - values.mean()) / len(values))
    return f"{values.mean():.3f} ± {half:.3f}"


def _print(what: str, results: dict[str, np.ndarray]) -> None:
    print(f"  {what}")
    ours = [key for key in results if key not in BASELINES]
    best = max(ours, key=lambda key: results[key][0])
    for key, values in results.items():
        less = f"   {best} is ahead by {shown(results[best] - values)}" if key in BASELINES else ""
        print(f"    {key:<18}{shown(values)}{less}", flush=True)


def main() -> None:
    """Print the numbers of the model and of random weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--json", type=Path, help="write the numbers here, too")
    arguments = parser.parse_args()
    trained, card = load_model(arguments.model)
    torch.manual_seed(0)
    found = {}
    for name, model in (("trained", trained), ("random weights", ScoringModel(trained.spec).eval())):
        print(f"\n{name}: {card['backbone']['name']} at {trained.spec.preprocessing.size} px", flush=True)
        found[name] = evaluate(model, arguments.data)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
