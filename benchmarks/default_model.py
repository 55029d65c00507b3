"""What the shipped model is worth: its numbers beside the same network with random weights, in one run.

    python benchmarks/default_model.py --data ../shared/data [--model CHECKPOINT]

Reads cifar10_train/test, cifar10h_test_0-1999 and tinyimagenet_train_a/b/val as Parquet (columns `image`, `label`).
Prints kNN accuracy, R-AUROC of kappa, the rank correlation of kappa with minus the entropy of human votes, and how
often a worse version of an image, made from its own pixels, gets a lower kappa than the image (the first 2,000 of each
test set); every number with a 95 % bootstrap interval over images.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from scoring import metrics
from scoring.checkpoint import load_model
from scoring.images import decode_rgb
from scoring.metrics.degradations import WORSE, laplacian_variance
from scoring.model import ScoringModel

Interval = tuple[float, float]


def images_of(files: list[Path]) -> tuple[Tensor, Tensor]:
    """Return pixels as stored (N, 3, S, S) uint8, of files whose images are all S x S, and labels (N,)."""
    pixels, labels = [], []
    for file in files:
        table = pq.read_table(file, columns=["image", "label"])
        pixels += [decode_rgb(data.as_py()) for data in table["image"]]
        labels += table["label"].to_pylist()
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2), torch.tensor(labels)


@torch.inference_mode()
def score(model: ScoringModel, pixels: Tensor) -> tuple[Tensor, np.ndarray]:
    """Return embeddings (N, D) and kappas (N,) of square images, brought to the model's size by bicubic resize."""
    size = model.spec.preprocessing.size
    outputs = []
    for part in pixels.split(256):
        if part.shape[-1] != size:
            part = torch.nn.functional.interpolate(part.float(), size, mode="bicubic", antialias=True).clamp(0, 255)
        outputs.append(model(part.float().round().contiguous(memory_format=torch.channels_last)))
    kappa = torch.cat([next(iter(one.kappas.values())) for one in outputs])
    return torch.cat([one.embedding for one in outputs]), kappa.numpy()


def evaluate(model: ScoringModel, data: Path, *, show: Callable[[str, float, Interval], None]) -> dict[str, float]:
    """Measure one model on everything."""
    found: dict[str, float] = {}

    def record(name: str, n: int, statistic: Callable[[np.ndarray], float]) -> None:
        found[name] = statistic(np.arange(n))
        show(name, found[name], metrics.bootstrap(statistic, n, repeats=300))

    sets = {
        "CIFAR-10": (["cifar10_train.parquet"], "cifar10_test.parquet"),
        "tiny-imagenet": (["tinyimagenet_train_a.parquet", "tinyimagenet_train_b.parquet"], "tinyimagenet_val.parquet"),
    }
    for name, (train, test) in sets.items():
        references, known = images_of([data / file for file in train])
        pixels, labels = images_of([data / test])
        reference, _ = score(model, references)
        del references
        embedding, kappa = score(model, pixels)
        right = (metrics.knn_predict(embedding, reference, known) == labels).numpy()
        same = metrics.recall_at_1(embedding, labels)
        sharpness = torch.cat([laplacian_variance(part) for part in pixels.split(1000)]).numpy()
        record(f"{name} kNN accuracy", len(right), lambda rows, right=right: float(right[rows].mean()))
        record(f"{name} recall@1", len(same), lambda rows, same=same: float(same[rows].mean()))
        for score_name, values in (("kappa", kappa), ("Laplacian", sharpness)):
            record(
                f"{name} R-AUROC of {score_name}",
                len(same),
                lambda rows, v=values, same=same: metrics.auroc(v[rows], same[rows]),
            )
            record(
                f"{name} AUROC of {score_name} for kNN right",
                len(right),
                lambda rows, v=values, right=right: metrics.auroc(v[rows], right[rows]),
            )
        if name == "CIFAR-10":
            counts = pq.read_table(data / "cifar10h_test_0-1999.parquet")
            entropy = metrics.entropy(np.array(counts["counts"].to_pylist(), float))
            ids = counts["id"].to_numpy()
            for score_name, values in (("kappa", kappa), ("Laplacian", sharpness)):
                record(
                    f"CIFAR-10H Spearman of {score_name} and -entropy",
                    len(ids),
                    lambda rows, v=values[ids], h=entropy: metrics.spearman(v[rows], -h[rows]),
                )
        for kind, change in WORSE.items():
            worse = change(pixels[:2000].float(), torch.Generator().manual_seed(0))
            lower = score(model, worse)[1] < kappa[:2000]
            record(f"{name} kappa falls under {kind}", len(lower), lambda rows, lower=lower: float(lower[rows].mean()))
    return found


def main() -> None:
    """Print the numbers of the model and of random weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="visimsiam")
    parser.add_argument("--json", type=Path, help="write the numbers here, too")
    arguments = parser.parse_args()
    trained, card = load_model(arguments.model)
    torch.manual_seed(0)
    random = ScoringModel(trained.spec).eval()
    found = {}
    for name, model in (("trained", trained), ("random weights", random)):
        print(f"\n{name}: {card['backbone']['name']} at {trained.spec.preprocessing.size} px")

        def show(what: str, value: float, interval: Interval) -> None:
            print(f"  {what:<48} {value:7.3f}  [{interval[0]:.3f}, {interval[1]:.3f}]", flush=True)

        found[name] = evaluate(model, arguments.data, show=show)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
