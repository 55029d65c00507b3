"""Head training from images and from a cache of their features, in one run: images per second, and where the time goes.

    python benchmarks/cache.py --source DATA/tinyimagenet_val.parquet [--backbone trio] [--n 1500]
    python benchmarks/cache.py --source examples/photos --backbone vit_small_patch16_224 --n 2000 --device cuda

The head is losspred's, with its five classifiers; the training is the product's own, whole epochs of it. "From files"
decodes each image in each epoch, as a data loader does; "from images" decodes them once and holds the pixels, as
`curate train` does; "from the cache" reads features, as `curate train --cached` does, and its time holds the reading
of every epoch. A backbone that is no checkpoint has random weights: they are as fast as others. Fewer images than --n
are repeated, and labels that are missing are made up. Rates of one run can be compared with one another, and with
nothing else.
"""

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from curate.manifest.sources import open_manifest
from scoring.images import Preprocessing
from scoring.model import ModelSpec, ScoringModel
from scoring.runner import select_device, select_precision
from trainers.augment import Draw, view
from trainers.build import build, make_optimizer, set_mode
from trainers.cache import FORMAT, open_cache
from trainers.cache_writer import make_cache
from trainers.config import TrainConfig
from trainers.data import TrainingSet, load_training_set
from trainers.extract import CacheRecipe, Images, features
from trainers.loop import train
from trainers.methods.table import METHODS
from trainers.monitor import Monitor
from trainers.start import Start, find_start

REPEAT = 5


def seconds(work: Callable[[], Any], device: torch.device, repeat: int = REPEAT) -> float:
    """Return the median time of some runs after one that is not counted."""
    work()
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return sorted(times)[len(times) // 2]


def with_weights(start: Start) -> ScoringModel:
    """Return the model of a start, or one with random weights."""
    if start.model is not None:
        return start.model
    size = start.size(None, frozen=True)
    return ScoringModel(ModelSpec(start.backbone, {}, {}, Preprocessing(size=size, resize=size)))


class Bench:
    """One set of images, one backbone, and the recipe that both ways share."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.device = select_device(options.device)
        self.precision = select_precision("auto", self.device)
        self.model = with_weights(find_start(options.backbone))
        size = self.model.spec.preprocessing.size
        manifest = open_manifest(options.source)
        readers = list(manifest.readers(0, manifest.n_rows))
        times = -(-options.n // len(readers))
        self.readers = (readers * times)[: options.n]
        self.labels = [at % 200 for at in range(options.n)]
        self.config = TrainConfig(
            "losspred",
            self.model.spec.backbone,
            size=size,
            freeze="trunk",
            precision=self.precision,
            batch_size=min(options.batch_size, options.n),
            **METHODS["losspred"].defaults,
        )
        self.n, self.folder = options.n, folder
        self.images: TrainingSet | None = None

    def decode(self) -> float:
        """Return the seconds that decoding takes; the images are kept."""
        started = time.perf_counter()
        self.images = load_training_set(
            self.readers, self.labels, n=self.n, preprocessing=self.model.spec.preprocessing
        )
        return time.perf_counter() - started

    def run(self, data: Any, epochs: int) -> float:
        """Train a head for some epochs; return the moment of the last step."""
        config = TrainConfig(**{**vars(self.config), "epochs": epochs})
        moments: list[float] = []
        start = build(config, 200, init=self.model)
        train(
            config,
            data,
            state=self.folder / f"state{time.monotonic_ns()}",
            device=self.device,
            start=start,
            monitor=Monitor(save_every=1e9, report=lambda progress: moments.append(time.perf_counter())),
        )
        return moments[-1]

    def timed(self, data: Any, epochs: int) -> float:
        """Return seconds an epoch: of a longer run less a shorter one, so that what comes once is in neither."""
        self.run(data, 1)
        started = time.perf_counter()
        short = self.run(data, 1) - started
        started = time.perf_counter()
        return (self.run(data, epochs + 1) - started - short) / epochs

    def cache(self, epochs: int) -> tuple[Any, float]:
        """Make a cache; return it and the seconds an epoch that it took."""
        recipe = CacheRecipe(self.config.augmentation, precision=self.precision, device=self.device.type)
        about = {
            "format": FORMAT,
            "model": {},
            "recipe": recipe.to_json(),
            "width": self.model.width,
            "epochs": epochs,
            "preprocessing": self.model.spec.preprocessing.to_json(),
            "columns": {"label": "label"},
            "data": "",
            "made_from": {},
        }
        keys = [f"k{at}" for at in range(self.n)]
        images = Images(lambda: self.readers, keys, pa.array(self.labels))
        self.model.to(self.device).eval()
        started = time.perf_counter()
        make_cache(self.folder / "cache", about, images, self.model, recipe)
        took = (time.perf_counter() - started) / epochs
        return open_cache(self.folder / "cache"), took

    def parts(self, cache: Any) -> dict[str, float]:
        """Return microseconds an image of each part of the work."""
        config, device = self.config, self.device
        if self.images is None:
            raise ValueError("decode first")
        block = self.images.pixels[: config.batch_size]
        held = block.to(device)
        recipe = CacheRecipe(config.augmentation, precision=self.precision, batch_size=min(256, len(block)))
        model, method = build(config, 200, init=self.model)
        model.to(device)
        method.to(device)
        set_mode(config, model, method)
        optimizer = make_optimizer(config, model, method)
        cached = cache.epoch(1)[: config.batch_size].float().to(device)
        labels = torch.tensor(self.labels[: config.batch_size], device=device)

        def head() -> None:
            loss = method(cached[None], model.heads["losspred"], labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        def augment() -> Tensor:
            return view(held, config.size, (0.08, 1.0), config.augmentation, Draw(len(held), device, 0))

        per_image = 1e6 / len(block)
        return {
            "augment": per_image * seconds(augment, device),
            "backbone": per_image * seconds(lambda: features(model, block, recipe, 0, 0), device),
            "head": per_image * seconds(head, device),
            "read": 1e6 / cache.n * seconds(lambda: cache.epoch(1), device),
        }


def main() -> None:
    """Measure, print a table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--backbone", default="trio")
    parser.add_argument("--n", type=int, default=1500)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=1, help="epochs to time from images; 20 times as many cached")
    parser.add_argument("--cached-epochs", type=int, default=3)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Bench(options, Path(folder)), options)


def measure(bench: Bench, options: argparse.Namespace) -> None:
    """Measure both ways and the parts, and print them."""
    decode = bench.decode()
    from_images = bench.timed(bench.images, options.epochs)
    cache, making = bench.cache(options.cached_epochs)
    from_cache = bench.timed(cache, 20 * options.epochs)
    used = bench.n // bench.config.batch_size * bench.config.batch_size  # a batch that is not full sits out
    rates = {
        "from files": used / (decode + from_images),
        "from images": used / from_images,
        "from the cache": used / from_cache,
        "making the cache": bench.n / making,
    }
    parts = {"decode": 1e6 * decode / bench.n, **bench.parts(cache)}
    threads = torch.get_num_threads()
    where = torch.cuda.get_device_name() if bench.device.type == "cuda" else f"{platform.machine()}, {threads} threads"
    print(f"{bench.model.spec.backbone} at {bench.config.size} px, {bench.n} images, {where}, {bench.precision}")
    for name, rate in rates.items():
        print(f"{name:18} {rate:12,.0f} images/s   {rate / rates['from images']:8.2f} x from images")
    for name, cost in parts.items():
        print(f"{name:18} {cost:12,.1f} us an image")
    print(json.dumps({"backbone": bench.model.spec.backbone, "device": where, "rates": rates, "us": parts}))


if __name__ == "__main__":
    main()
