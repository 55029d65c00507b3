"""How near `curate score` comes to its ceilings: decoding, the model, arithmetic, and the whole command, in one run.

    python benchmarks/score.py [--images 2000] [--models world trio] [--backend openvino] [--source FOLDER]
    python benchmarks/score.py --device cuda --images 20000 --models world random:resnet50 random:vit_base_patch16_224


*decoding*: from files to pixels in memory, hashes and image quality too. *model*: pixels in memory to scores in
memory. *resident*: the model alone, on pixels that are on its device already. *arithmetic*: what the device would do if
all of the network's multiplications went as fast as one large product of matrices does in that precision, measured
here. *whole*: `curate score`.

Without --source it writes JPEGs of about 500 x 375, made from the photographs in examples/. On a GPU decoding and
model run next to one another, and the ceiling is the slower of the two. On a CPU they share the cores: what can be
reached at all is 1 / (1/decoding + 1/model), and the share of that is what the engine loses. Where other programs use
the machine, only the images for each second of processor time (of all threads together) can be compared.
"""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "0")

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode

from curate.engines.decoded import Decoded
from curate.engines.run import ScoreProgress
from curate.engines.score import score
from curate.engines.settings import ScoreSettings
from curate.engines.shard import spans
from curate.manifest.contract import Manifest
from curate.manifest.sources import open_manifest
from scoring.backbones import create_backbone, published_preprocessing, size_options
from scoring.backends import BACKENDS, TORCH
from scoring.checkpoint import load_model, save_checkpoint
from scoring.model import ModelSpec, ScoringModel
from scoring.model_names import DEFAULT
from scoring.runner import BATCH_SIZE, Runner, select_device, select_precision

RANDOM = "random:"
RESIDENT = 8  # batches on the device
Rates = tuple[float, float]  # images a second: by the clock, and of processor time
PHOTOS = Path(__file__).parents[1] / "examples" / "photos"


def make_photos(folder: Path, n: int) -> None:
    """Write n different JPEGs: random windows of the example photographs at 500 x 375, quality 90."""
    generator = np.random.default_rng(0)
    photos = [Image.open(path).convert("RGB") for path in sorted(PHOTOS.glob("*.jpg"))]
    for i in range(n):
        photo = photos[i % len(photos)]
        share = generator.uniform(0.5, 1.0)
        w, h = int(photo.width * share), int(photo.height * share)
        x, y = generator.integers(0, photo.width - w + 1), generator.integers(0, photo.height - h + 1)
        photo.crop((x, y, x + w, y + h)).resize((500, 375)).save(folder / f"{i:06}.jpg", quality=90)


def rate(n: int, work: Callable[[], object]) -> Rates:
    """Return images per second by the clock, and per second of processor time."""
    started, busy = time.perf_counter(), time.process_time()
    work()
    return n / (time.perf_counter() - started), n / (time.process_time() - busy)


def decode_all(manifest: Manifest, runner: Runner, workers: int, batch_size: int) -> list[np.ndarray]:
    """Decode everything the way the engine does, with no model behind it."""
    settings = ScoreSettings(white=65535)
    todo = spans(manifest.n_rows, settings.shard_size)
    preprocessing = runner.model.spec.preprocessing
    with (
        tempfile.TemporaryDirectory() as folder,
        Decoded(
            manifest, todo, preprocessing, settings, workers=workers, batch_size=batch_size, folder=Path(folder)
        ) as decoded,
    ):
        return [image.pixels for image in decoded.take(manifest.n_rows) if image.pixels is not None]


def resident(runner: Runner, batches: list[np.ndarray]) -> Callable[[], None]:
    """Return what runs the model on as many batches, a few of which are on the device already."""
    few = [torch.from_numpy(batch).to(runner.device).permute(0, 3, 1, 2) for batch in batches[:RESIDENT]]

    @torch.inference_mode()
    def run() -> None:
        for at in range(len(batches)):
            with torch.autocast(runner.device.type, torch.bfloat16, enabled=runner.precision == "bf16"):
                outputs = runner.model(few[at % len(few)])
        outputs.embedding.cpu()  # waits for all that was sent before

    return run


def arithmetic(model: ScoringModel, device: torch.device, precision: str) -> float:
    """Return the images a second at which multiplying alone would go as fast as one large product of matrices."""
    side = model.spec.preprocessing.size
    with torch.inference_mode(), FlopCounterMode(display=False) as counted:
        model(torch.zeros(1, 3, side, side, dtype=torch.uint8))
    n = 8192 if device.type == "cuda" else 2048
    factor = torch.ones(n, n, device=device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    best = float("inf")
    for _ in range(5):  # the first warms up
        started = time.perf_counter()
        (factor @ factor)[0, 0].item()  # waits for the product
        best = min(best, time.perf_counter() - started)
    return 2 * n**3 / best / counted.get_total_flops()


def random_model(name: str, folder: Path) -> Path:
    """Write a checkpoint of a network of timm's with random weights, which cost what trained ones do."""
    torch.manual_seed(0)
    backbone = create_backbone(name)
    spec = ModelSpec(name, size_options(name, None), {}, published_preprocessing(backbone))
    card = {"method": "none", "training": {"data": "none"}, "metrics": {}, "data_licence": "none"}
    save_checkpoint(folder / f"{name}.safetensors", ScoringModel(spec).eval(), card)
    return folder / f"{name}.safetensors"


def measure(model: str | Path, source: str, scratch: Path, options: argparse.Namespace) -> dict[str, list[Rates]]:
    """Return the rates of decoding, the model and the whole command, in turn in each repeat."""
    settings = {"device": options.device, "precision": options.precision, "backend": options.backend}
    device, network = select_device(options.device), load_model(model)[0]
    precision = select_precision(options.precision, device, network.spec.cpu_precision)
    batch_size = BATCH_SIZE[device.type]
    most = arithmetic(network, device, precision)
    runner = Runner(network, device, precision, backend=options.backend)
    manifest = open_manifest(source)
    n = manifest.n_rows
    pixels = np.stack(decode_all(manifest, runner, options.workers, batch_size))
    batches = [pixels[at : at + batch_size] for at in range(0, len(pixels) - batch_size + 1, batch_size)] or [pixels]
    of_batches = sum(map(len, batches))  # whole ones, so that each image costs the same
    resident_alone = resident(runner, batches)
    resident_alone()
    runner.submit(batches[0]).result()  # warm up
    print(f"{model}: {n:,} images, {device} in {precision} by {options.backend}, {options.workers} decoding threads")
    print(f"  arithmetic would allow {most:,.0f} images a second by the clock")
    rates: dict[str, list[Rates]] = {"decoding": [], "model": [], "resident": [], "whole": []}

    def model_alone() -> None:
        for waiting in [runner.submit(batch) for batch in batches]:
            waiting.result()

    for repeat in range(options.repeats):  # in turn, so that a drifting machine drifts for all
        rates["decoding"].append(rate(n, lambda: decode_all(manifest, runner, options.workers, batch_size)))
        rates["model"].append(rate(of_batches, model_alone))
        rates["resident"].append(rate(of_batches, resident_alone))
        out = scratch / f"{Path(model).stem}-{repeat}.parquet"
        rates["whole"].append(command_rates(model, source, out, settings, options.workers))
    return rates


def command_rates(model: str | Path, source: str, out: Path, settings: Mapping[str, Any], workers: int) -> Rates:
    """Return the rates of the whole command, from when the model is open."""
    begun: list[tuple[float, float]] = []  # at each report; the first comes when the model is open

    def saw(_: ScoreProgress) -> None:
        begun.append((time.perf_counter(), time.process_time()))

    n = score(source, out, model=model, **settings, workers=workers, report=saw).rows
    clock, busy = begun[0]
    return n / (time.perf_counter() - clock), n / (time.process_time() - busy)


def main() -> None:
    """Print rates and shares of each model, with the median of the repeats."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", help="what to score instead")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--models", nargs="+", default=[DEFAULT], help="as --model of score, or random:NAME of timm's")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--backend", default=TORCH, choices=list(BACKENDS))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        source = options.source
        if source is None:
            source = str(scratch / "photos")
            Path(source).mkdir()
            make_photos(Path(source), options.images)
        for name in options.models:
            is_random = name.startswith(RANDOM)
            model = random_model(name.removeprefix(RANDOM), scratch) if is_random else name
            rates = measure(model, source, scratch, options)
            for at, what in enumerate(("by the clock", "of processor time")):
                print(f"images for each second {what}, medians of {options.repeats}")
                report({kind: [pair[at] for pair in pairs] for kind, pairs in rates.items()})


def report(rates: dict[str, list[float]]) -> None:
    """Print the median rates, and the whole as shares of what decoding and model would allow."""
    for name, values in rates.items():
        print(f"  {name:<9} {statistics.median(values):8,.0f}  (from {min(values):,.0f} to {max(values):,.0f})")
    rounds = list(zip(rates["decoding"], rates["model"], rates["whole"], strict=True))
    slower = [w / min(d, m) for d, m, w in rounds]
    shared = [w * (1 / d + 1 / m) for d, m, w in rounds]
    limit = "decoding" if statistics.median(d / m for d, m, _ in rounds) < 1 else "the model"
    print(f"  the slower of decoding and model: {limit}")
    print(f"  whole / slower of the two       {statistics.median(slower):.2f}")
    print(f"  whole / both on the same cores  {statistics.median(shared):.2f}")


if __name__ == "__main__":
    main()
