"""Images, human votes and frozen features for `cifar10h.py`: computed once, kept in one safetensors file a backbone."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from curate.statistics.degradations import resize
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.images import decode_rgb
from scoring.metrics import ranking
from scoring.model import ScoringModel
from trainers.augment import Draw, random_resized_crop
from trainers.start import backbone_digest

CLASSES = 10
LEAST_CROP = 0.25  # share of width and height that a test crop keeps at least; of the area, in training views
BATCH = 100  # 25 % faster on a CPU than 500
FIRST = 25_000  # the backbone learned from the labels of the CIFAR-10 train images before this one; they are left out
FORMAT = "3"


@dataclass(frozen=True)
class Votes:
    """The verdicts on the images.

    Attributes:
        train: CIFAR-10N, counts of three annotators, shape (25000, 10), of train images 25000-49999.
        clean: their labels, shape (25000,), int64.
        aggregate: CIFAR-10N's own majority label, shape (25000,), int64.
        test: CIFAR-10H, counts of about 51 annotators, shape (2000, 10), of test images 0-1999.
        test_labels: of CIFAR-10 test, shape (10000,), int64.
    """

    train: Tensor
    clean: Tensor
    aggregate: Tensor
    test: Tensor
    test_labels: Tensor


@dataclass(frozen=True)
class Features:
    """Pooled features of one frozen backbone, float32, all divided by the root mean square of the plain training ones.

    Attributes:
        train: view 0 is the plain image, the others are random crops: shape (V, 25000, D).
        test: of the plain images, shape (10000, D).
        crops: of one crop of each test image, shape (10000, D).
        shares: of the width and height that each test crop shows, in [0.25, 1], shape (10000,).
        scale: what they were divided by.
    """

    train: Tensor
    test: Tensor
    crops: Tensor
    shares: np.ndarray
    scale: float


def read_votes(data: Path) -> Votes:
    """Read labels and votes of a folder that holds the four Parquet files.

    Raises:
        InputError: if a file is missing, or its rows are not images 0, 1, 2, ... in order.
    """
    people = _columns(data / "cifar10n_train.parquet", 50_000)
    counts = _columns(data / "cifar10h_test_0-1999.parquet", 2_000)
    train = sum(torch.nn.functional.one_hot(_numbers(people[f"random_label{k}"]), CLASSES).float() for k in (1, 2, 3))
    return Votes(
        torch.as_tensor(train)[FIRST:],
        _numbers(_columns(data / "cifar10_train.parquet", 50_000)["label"])[FIRST:],
        _numbers(people["aggre_label"])[FIRST:],
        torch.tensor(counts["counts"].to_pylist(), dtype=torch.float32),
        _numbers(_columns(data / "cifar10_test.parquet", 10_000)["label"]),
    )


def _columns(path: Path, n: int) -> dict[str, object]:
    if not path.is_file():
        raise InputError(f"expected the file {path.name} in {path.parent}, found none; name its folder with --data")
    names = [name for name in pq.read_schema(path).names if name != "image"]
    table = pq.read_table(path, columns=names)
    if table["id"].to_pylist() != list(range(n)):
        raise InputError(f"expected ids 0 to {n - 1} in order in column id of {path.name}, got {len(table)} others")
    return {name: table[name] for name in names}


def _numbers(column: object) -> Tensor:
    return torch.tensor(column.to_pylist())  # type: ignore[attr-defined]


def square_crops(images: Tensor, shares: np.ndarray, generator: torch.Generator, side: int) -> Tensor:
    """Return a square at a random place of each image, enlarged to side x side.

    Args:
        images: shape (N, 3, S, S), in [0, 255].
        shares: of the width and the height that are shown, shape (N,), in (0, 1].
        generator: for the places.
        side: of the result.
    """
    full = images.shape[-1]
    out = torch.empty(len(images), 3, side, side)
    for row, share in enumerate(shares.tolist()):
        part = max(1, round(full * share))
        y, x = torch.randint(full - part + 1, (2,), generator=generator).tolist()
        out[row] = resize(images[row : row + 1, :, y : y + part, x : x + part], side)[0]
    return out


def open_features(data: Path, cache: Path, backbone: str, *, n_crops: int) -> Features:
    """Return the features of a backbone, from the cache folder, where they are put first if need be.

    Args:
        data: folder of the images.
        cache: folder for the features, outside the repository: 26 MB a view and backbone.
        backbone: "trained" for the model that ships, "random" for the same network with random weights.
        n_crops: random crops of each training image.

    Raises:
        InputError: if the file there is of another backbone or of fewer crops.
    """
    model, _ = load_model("trio")
    if backbone == "random":
        torch.manual_seed(0)
        model = ScoringModel(model.spec)
    model.eval()
    about = {"format": FORMAT, "trunk": backbone_digest(model), "crops": str(n_crops)}
    path = cache / f"{backbone}.safetensors"
    if not path.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        save_file(_compute(model, data, n_crops), path, metadata=about)
    with safe_open(path, "pt") as file:
        got = file.metadata() or {}
        if got != about:
            raise InputError(f"{path} holds features of {json.dumps(got)}, expected {json.dumps(about)}; remove it")
        held = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    scale = float(held["train"][0].square().mean().sqrt())
    train, test, crops = (held[name].div_(scale) for name in ("train", "test", "test_crops"))
    return Features(train, test, crops, held["shares"].double().numpy(), scale)


def _compute(model: ScoringModel, data: Path, n_crops: int) -> dict[str, Tensor]:
    """Return float16 features of all views, and the shares of the test crops."""
    train, test = (_pixels(data / name) for name in ("cifar10_train.parquet", "cifar10_test.parquet"))
    train = train[FIRST:]
    side = model.spec.preprocessing.size
    views = [_features(model, train)]
    for crop in range(n_crops):
        draw = Draw(BATCH, torch.device("cpu"), 1000 + crop)
        views.append(_features(model, train, draw=draw))
        print(f"  crop {crop + 1} of {n_crops} of the training images", flush=True)
    generator = torch.Generator().manual_seed(7)
    shares = LEAST_CROP + (1 - LEAST_CROP) * torch.rand(len(test), generator=generator)
    crops = [
        _features(model, square_crops(images, some.numpy(), generator, side))
        for images, some in zip(test.split(2000), shares.split(2000), strict=True)
    ]
    return {
        "train": torch.stack(views),
        "test": _features(model, test),
        "test_crops": torch.cat(crops),
        "shares": shares,
    }


def _pixels(path: Path) -> Tensor:
    if not path.is_file():
        raise InputError(f"expected the file {path.name} in {path.parent}, found none; name its folder with --data")
    images = pq.read_table(path, columns=["image"])["image"]
    return torch.from_numpy(np.stack([decode_rgb(image.as_py()) for image in images])).permute(0, 3, 1, 2)


@torch.inference_mode()
def _features(model: ScoringModel, pixels: Tensor, *, draw: Draw | None = None) -> Tensor:
    """Return features (N, D), float16, of images; with ``draw``, of a random crop of each, mirrored at random."""
    side, out = model.spec.preprocessing.size, []
    for part in pixels.split(BATCH):
        images = resize(part, side).round()
        if draw is not None:
            images = random_resized_crop(images, side, (LEAST_CROP, 1.0), draw)
        with torch.autocast("cpu", torch.bfloat16):
            out.append(model.features(images.contiguous(memory_format=torch.channels_last)).half())
    return torch.cat(out)


def entropies(votes: Tensor) -> np.ndarray:
    """Return the entropy of each row's votes, nats, shape (N,), float64; equal ones tie whatever the order of votes."""
    return ranking.entropy(votes.numpy())
