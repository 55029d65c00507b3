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
from scoring.model import ScoringModel
from trainers.augment import gaussian_blur

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


def crop(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random tenth to half of the area, at full size again."""
    out = []
    for image in images:
        side = image.shape[-1]
        part = int(side * (0.1 + 0.4 * torch.rand((), generator=generator).item()) ** 0.5)
        x, y = (int(torch.randint(side - part + 1, (), generator=generator)) for _ in "xy")
        piece = image[:, y : y + part, x : x + part].float()[None]
        out.append(torch.nn.functional.interpolate(piece, side, mode="bicubic", antialias=True)[0])
    return torch.stack(out).clamp(0, 255)


def blur(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return the images blurred by a Gaussian of 3 % of the side."""
    return gaussian_blur(images.float(), torch.full((len(images),), 0.03 * images.shape[-1]))


def noise(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return the images with Gaussian noise of 25 grey levels."""
    return (images + 25 * torch.randn(images.shape, generator=generator)).clamp(0, 255)


def gray_box(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return the images with a mid-grey box over a quarter of the area, at a random place."""
    out = images.float().clone()
    half = images.shape[-1] // 2
    for image in out:
        x, y = (int(torch.randint(half + 1, (), generator=generator)) for _ in "xy")
        image[:, y : y + half, x : x + half] = 127.5
    return out


WORSE: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "crop": crop,
    "blur": blur,
    "noise": noise,
    "grey box": gray_box,
}


def laplacian(pixels: Tensor) -> np.ndarray:
    """Return the variance of the Laplacian, the usual sharpness score: a baseline for kappa."""
    gray = pixels.float().mean(1, keepdim=True)
    kernel = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]]).view(1, 1, 3, 3)
    return torch.nn.functional.conv2d(gray, kernel).flatten(1).var(1).numpy()


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
        sharpness = laplacian(pixels)
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
            votes = np.array(counts["counts"].to_pylist(), float)
            share = votes / votes.sum(1, keepdims=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                entropy = -np.where(share > 0, share * np.log(share), 0).sum(1)
            ids = counts["id"].to_numpy()
            for score_name, values in (("kappa", kappa), ("Laplacian", sharpness)):
                record(
                    f"CIFAR-10H Spearman of {score_name} and -entropy",
                    len(ids),
                    lambda rows, v=values[ids], h=entropy: metrics.spearman(v[rows], -h[rows]),
                )
        for kind, change in WORSE.items():
            worse = change(pixels[:2000], torch.Generator().manual_seed(0))
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
