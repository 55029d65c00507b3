"""How near `curate score` comes to its ceilings: decoding alone, the model alone, and the whole command, in one run.

    python benchmarks/score.py [--images 2000] [--model world] [--backend openvino] [--device cpu] [--source FOLDER]

Without --source it writes JPEGs of about 500 x 375, made from the photographs in examples/. On a GPU decoding and
model run beside one another, and the ceiling is the slower of the two. On a CPU they share the cores: what can be
reached at all is 1 / (1/decoding + 1/model), and the share of that is what the engine loses. Where other programs use
the machine, only the images for each second of processor time (of all threads together) can be compared.
"""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "0")

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from curate.engines.run import ScoreProgress
from curate.engines.score import score
from curate.engines.settings import ScoreSettings
from curate.engines.shard import Decoded, spans
from curate.manifest import Manifest, open_manifest
from scoring.backends import BACKENDS, TORCH
from scoring.checkpoint import DEFAULT, load_model
from scoring.runner import BATCH_SIZE, Runner, select_device, select_precision

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


def rate(n: int, work: Callable[[], object]) -> tuple[float, float]:
    """Return images per second by the clock, and per second of processor time."""
    started, busy = time.perf_counter(), time.process_time()
    work()
    return n / (time.perf_counter() - started), n / (time.process_time() - busy)


def decode_all(manifest: Manifest, runner: Runner, workers: int, batch_size: int) -> list[np.ndarray]:
    """Decode everything the way the engine does, with no model behind it."""
    settings = ScoreSettings()
    todo = spans(manifest.n_rows, settings.shard_rows)
    preprocessing = runner.model.spec.preprocessing
    with (
        tempfile.TemporaryDirectory() as folder,
        Decoded(
            manifest, todo, preprocessing, settings, workers=workers, batch_size=batch_size, folder=Path(folder)
        ) as decoded,
    ):
        return [image.pixels for image in decoded.take(manifest.n_rows) if image.pixels is not None]


def main() -> None:
    """Print rates and shares, with the median of the repeats."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", help="what to score instead")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--backend", default=TORCH, choices=list(BACKENDS))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    device = select_device(arguments.device)
    model = load_model(arguments.model)[0]
    precision = select_precision(arguments.precision, device, model.spec.cpu_precision)
    batch_size = BATCH_SIZE[device.type]
    runner = Runner(model, device, precision, backend=arguments.backend)
    with tempfile.TemporaryDirectory() as scratch:
        source = arguments.source
        if source is None:
            source = str(Path(scratch) / "photos")
            Path(source).mkdir()
            make_photos(Path(source), arguments.images)
        manifest = open_manifest(source)
        n = manifest.n_rows
        pixels = np.stack(decode_all(manifest, runner, arguments.workers, batch_size))
        batches = [pixels[at : at + batch_size] for at in range(0, len(pixels), batch_size)]
        runner.submit(batches[0]).result()  # warm up
        found: dict[str, list[tuple[float, float]]] = {"decoding": [], "model": [], "whole": []}
        settings = ScoreSettings(device=arguments.device, precision=arguments.precision, backend=arguments.backend)
        for repeat in range(arguments.repeats):  # in turn, so that a drifting machine drifts for all three
            found["decoding"].append(rate(n, lambda: decode_all(manifest, runner, arguments.workers, batch_size)))

            def model_alone() -> None:
                waiting = [runner.submit(batch) for batch in batches]
                for one in waiting:
                    one.result()

            found["model"].append(rate(n, model_alone))
            out = Path(scratch) / f"{repeat}.parquet"

            begun: list[tuple[float, float]] = []  # at each report; the first comes when the model is open

            def saw(_: ScoreProgress, begun: list[tuple[float, float]] = begun) -> None:
                begun.append((time.perf_counter(), time.process_time()))

            score(source, out, model=arguments.model, settings=settings, workers=arguments.workers, report=saw)
            found["whole"].append((n / (time.perf_counter() - begun[0][0]), n / (time.process_time() - begun[0][1])))
    by = f"{device} in {precision} by {arguments.backend}"
    print(f"{arguments.model}: {n:,} images, {by}, {arguments.workers} decoding threads, {arguments.repeats} repeats")
    for at, what in enumerate(("by the clock", "of processor time")):
        print(f"images for each second {what}")
        report({name: [pair[at] for pair in pairs] for name, pairs in found.items()})


def report(found: dict[str, list[float]]) -> None:
    """Print the median rates, and the whole as shares of what decoding and model would allow."""
    for name, values in found.items():
        print(f"  {name:<9} {statistics.median(values):8,.0f}  (from {min(values):,.0f} to {max(values):,.0f})")
    slower = [w / min(d, m) for d, m, w in zip(*found.values(), strict=True)]
    shared = [w * (1 / d + 1 / m) for d, m, w in zip(*found.values(), strict=True)]
    print(f"  whole / slower of the two       {statistics.median(slower):.2f}")
    print(f"  whole / both on the same cores  {statistics.median(shared):.2f}")


if __name__ == "__main__":
    main()
