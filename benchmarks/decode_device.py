"""JPEGs decoded on a device against `decode`: pixels, hashes, scores and time, in one run.

    python benchmarks/decode_device.py SOURCE...                  on the CPU: how far two decoders are apart
    python benchmarks/decode_device.py SOURCE... --device cuda    on a GPU

A source is what `curate score` reads. Pixels and scores are a model's, in float32. Times: what each JPEG costs
the CPU on either road (`time.thread_time`, one thread; hashes included, reading and SHA-256 not), and by the clock how
many a second the device decodes and reduces, in batches as the engine sends them.
"""

import argparse
import statistics
import time

import numpy as np
import torch
from scipy.stats import spearmanr

from curate.engines.decoded import MOST
from curate.manifest.contract import SourceOptions
from curate.manifest.sources import open_manifest
from scoring.checkpoint import load_model
from scoring.images import DecodedImage, Preprocessing, decode, hamming, perceptual_hash
from scoring.images.device_jpegs import DeviceJpegs, Reduced, SoundJpeg, sound_jpeg
from scoring.images.signature import signature
from scoring.model_names import DEFAULT
from scoring.runner import Runner, Scores, select_device

MOST_PIXELS = 100_000_000


def sound_ones(source: list[str], preprocessing: Preprocessing, limit: int | None) -> tuple[int, list[SoundJpeg]]:
    """Return how many images there are, and those that a device may decode; spread over the source with a limit."""
    manifest = open_manifest(source, SourceOptions())
    readers = list(manifest.readers(0, manifest.n_rows))
    chosen = readers[:: max(1, len(readers) // limit)][:limit] if limit else readers
    jpegs = [sound_jpeg(read(), preprocessing.resize, max_pixels=MOST_PIXELS) for read in chosen]
    return len(chosen), [jpeg for jpeg in jpegs if jpeg is not None]


def by_cpu(jpegs: list[SoundJpeg], preprocessing: Preprocessing) -> tuple[list[DecodedImage], float]:
    began = time.thread_time()
    images = [decode(jpeg.data, preprocessing, sha256="0" * 64) for jpeg in jpegs]
    return images, (time.thread_time() - began) / len(jpegs)


def left_to_cpu(jpegs: list[SoundJpeg], made: list[Reduced], preprocessing: Preprocessing) -> float:
    """Return seconds of the CPU for each that goes through the device: the check, the hash and the signature."""
    began = time.thread_time()
    for jpeg, reduced in zip(jpegs, made, strict=True):
        sound_jpeg(jpeg.data, preprocessing.resize, max_pixels=MOST_PIXELS)
        perceptual_hash(reduced.small)
        signature(reduced.small)
    return (time.thread_time() - began) / len(jpegs)


def by_device(jpegs: list[SoundJpeg], device: DeviceJpegs) -> tuple[list[Reduced], float]:
    device.decode(jpegs[:MOST])  # warms up
    began = time.perf_counter()
    made = [image for at in range(0, len(jpegs), MOST) for image in device.decode(jpegs[at : at + MOST])]
    return made, len(jpegs) / (time.perf_counter() - began)


def scored(pixels: list[np.ndarray], runner: Runner) -> Scores:
    parts = [runner.submit(np.stack(pixels[at : at + MOST])).result() for at in range(0, len(pixels), MOST)]
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in runner.columns}
    return Scores(np.concatenate([part.embedding for part in parts]), columns)


def compare_pixels(images: list[DecodedImage], made: list[Reduced]) -> None:
    apart = [image.pixels.astype(float) - other.pixels for image, other in zip(images, made, strict=True)]
    psnr = [10 * np.log10(255**2 / max(1e-9, np.mean(difference**2))) for difference in apart]
    bits = [hamming(image.phash, perceptual_hash(other.small)) for image, other in zip(images, made, strict=True)]
    print(
        f"pixels: {np.mean(np.abs(apart)):.3f} levels apart in the mean, {np.max(np.abs(apart)):.0f} at most; ", end=""
    )
    print(f"PSNR {min(psnr):.1f} dB at least, {statistics.median(psnr):.1f} in the median")
    print(f"phash: another in {sum(n > 0 for n in bits)} of {len(bits)}, by {max(bits)} bits at most")


def compare_scores(first: Scores, other: Scores) -> None:
    cosine = (first.embedding * other.embedding).sum(axis=1)
    ranks = {name: spearmanr(first.columns[name], other.columns[name]).statistic for name in first.columns}
    print(f"embedding: cosine {cosine.mean():.4f} in the mean, {cosine.min():.4f} at least")
    print("Spearman: " + ", ".join(f"{name} {value:.4f}" for name, value in ranks.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="+")
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit", type=int, help="images, spread over the source")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = select_device(options.device)
    runner = Runner(load_model(options.model)[0], device)
    preprocessing = runner.model.spec.preprocessing
    n, jpegs = sound_ones(options.source, preprocessing, options.limit)
    print(f"{n:,} images, {len(jpegs):,} of them JPEGs that a device may decode, on {device}")
    images, seconds = by_cpu(jpegs, preprocessing)
    made, rate = by_device(jpegs, DeviceJpegs(device, preprocessing))
    left = left_to_cpu(jpegs, made, preprocessing)
    compare_pixels(images, made)
    compare_scores(scored([image.pixels for image in images], runner), scored([image.pixels for image in made], runner))
    print(f"CPU: {seconds * 1e3:.2f} ms each by decode, {left * 1e3:.2f} ms where the device decodes", end="")
    print(f" ({seconds / left:.1f} times less); the device: {rate:,.0f} a second")


if __name__ == "__main__":
    main()
