"""Decoding a JPEG: Pillow's full decode and resize against ours, in one run.

    python benchmarks/decode.py                  photographs drawn here: 500 x 375 and 4000 x 3000
    python benchmarks/decode.py FOLDER           your own JPEGs, as they are and grouped by size
    python benchmarks/decode.py --parquet FILE   photographs from a table's `image` column, enlarged to both sizes
    python benchmarks/decode.py --supervised     what it costs to separate plain files from others, and to read those
    apart

Times are CPU time of the thread (`time.thread_time`), so a busy machine disturbs them little; ratios are of the two
roads run in turns on the same files. Pillow: open, convert, resize (bicubic), crop, to an array. Ours: `decode_rgb`
and crop, which is the same work; `decode` adds the sha256 and the perceptual hash.
"""

import argparse
import io
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from scoring.images import Preprocessing, decode, decode_rgb
from scoring.images.decoding import opened
from scoring.images.geometry import centre_crop
from scoring.images.raster import DecodeOptions, LocalImage

SMALL, LARGE = (500, 375), (4000, 3000)
Road = Callable[[bytes, int], object]


def pillow_road(data: bytes, side: int) -> np.ndarray:
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    short = min(picture.size)
    size = (int(picture.width * side / short), int(picture.height * side / short))
    picture = picture.resize(size, Image.Resampling.BICUBIC)
    left, top = round((picture.width - side) / 2), round((picture.height - side) / 2)
    return np.asarray(picture.crop((left, top, left + side, top + side)))


def our_road(data: bytes, side: int) -> np.ndarray:
    return np.ascontiguousarray(centre_crop(decode_rgb(data, short_side=side), side))


def with_hashes(data: bytes, side: int) -> object:
    return decode(data, Preprocessing(size=side, resize=side)).pixels


def drawn(width: int, height: int, seed: int) -> bytes:
    """An image with edges at every scale, in the spectrum of natural ones, and a sensor's noise."""
    rng = np.random.default_rng(seed)
    total = np.zeros((height, width, 3), dtype=np.float32)
    for octave in range(1, 9):
        layer = Image.fromarray(rng.integers(0, 256, (2**octave, 2**octave, 3), dtype=np.uint8))
        total += np.asarray(layer.resize((width, height), Image.Resampling.BICUBIC), dtype=np.float32) / 2**octave
    return jpeg(Image.fromarray(total.clip(0, 255).astype(np.uint8)), seed)


def jpeg(picture: Image.Image, seed: int) -> bytes:
    """Encode at quality 90 (small) or 85 (large), with noise as a camera leaves it."""
    pixels = np.asarray(picture).astype(np.float32)
    pixels += np.random.default_rng(seed).normal(0, 4, (*pixels.shape[:2], 1)).astype(np.float32)
    stream = io.BytesIO()
    quality = 90 if picture.width < 1000 else 85
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def from_table(path: Path, size: tuple[int, int], n: int) -> list[bytes]:
    import pyarrow.parquet as pq

    rows = pq.read_table(path, columns=["image"])["image"].to_pylist()
    chosen = rows[:: max(1, len(rows) // n)][:n]
    pictures = [Image.open(io.BytesIO(row)).convert("RGB") for row in chosen]
    return [jpeg(picture.resize(size, Image.Resampling.LANCZOS), i) for i, picture in enumerate(pictures)]


def from_folder(folder: Path) -> dict[str, list[bytes]]:
    groups: dict[str, list[bytes]] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in (".jpg", ".jpeg") and path.is_file():
            data = path.read_bytes()
            width, height = Image.open(io.BytesIO(data)).size
            groups.setdefault("over 2 megapixels" if width * height > 2e6 else "up to 2 megapixels", []).append(data)
    return groups


def seconds_each(road: Road, files: list[bytes], side: int) -> float:
    began = time.thread_time()
    for data in files:
        road(data, side)
    return (time.thread_time() - began) / len(files)


def wall_of_two_threads(road: Road, files: list[bytes], side: int) -> float:
    """Wall seconds an image when two threads take half the files each."""
    halves = [files[0::2], files[1::2]]
    threads = [threading.Thread(target=lambda half=half: [road(data, side) for data in half]) for half in halves]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - began) / len(files)


def spread(values: list[float], unit: str) -> str:
    return f"{statistics.median(values):7.2f}{unit} (least {min(values):.2f})"


def compare(name: str, files: list[bytes], side: int, repeats: int) -> None:
    roads: dict[str, Road] = {"pillow": pillow_road, "ours": our_road, "ours + hashes": with_hashes}
    for road in roads.values():
        road(files[0], side)
    single: dict[str, list[float]] = {key: [] for key in roads}
    two: dict[str, list[float]] = {key: [] for key in roads}
    for _ in range(repeats):
        for key, road in roads.items():
            single[key].append(1e3 * seconds_each(road, files, side))
        for key, road in roads.items():
            two[key].append(1e3 * wall_of_two_threads(road, files, side))
    kilobytes = sum(map(len, files)) / len(files) / 1e3
    print(f"\n{name}, {len(files)} files of {kilobytes:.0f} KB, to {side} px")
    for key in roads:
        ratios = [base / mine for base, mine in zip(single["pillow"], single[key], strict=True)]
        pairs = [base / mine for base, mine in zip(two["pillow"], two[key], strict=True)]
        line = f"  {key:14s} one thread {spread(single[key], ' ms')}  x{spread(ratios, '')}"
        print(f"{line}   two threads x{spread(pairs, '')} of Pillow's two")


def supervision(repeats: int) -> None:
    """Three roads to the same pixels, in turns: without a look at the structure, with it, and in another process.

    The first two by CPU time of the thread; the third also by the wall clock, as another process works for it.
    """
    photos = [Image.open(io.BytesIO(drawn(*SMALL, seed))).convert("RGB") for seed in range(40)]
    for name in ("jpeg", "png", "webp", "gif", "bmp", "tiff", "avif"):
        files = []
        for photo in photos:
            stream = io.BytesIO()
            photo.save(stream, name, **({"quality": 90} if name in ("jpeg", "webp") else {}))
            files.append(stream.getvalue())

        def unlooked(data: bytes, side: int, name: str = name) -> object:
            return LocalImage(data, name, DecodeOptions()).raster(side)

        def looked(data: bytes, side: int) -> object:
            with opened(data, DecodeOptions()) as image:
                return image.raster(side)

        def apart(data: bytes, side: int) -> object:
            with opened(data, DecodeOptions(), supervised=True) as image:
                return image.raster(side)

        looks, waits = [], []
        apart(files[0], 224)
        for turn in range(repeats):
            pair = [unlooked, looked] if turn % 2 else [looked, unlooked]
            cost = {road: seconds_each(road, files, 224) for road in pair}
            looks.append(cost[looked] / cost[unlooked])
            waits.append(1e3 * (wall_each(apart, files, 224) - wall_each(unlooked, files, 224)))
        kind = "plain" if name in ("jpeg", "png", "webp") else "apart"
        look = f"telling costs x{spread(looks, '')}" if kind == "plain" else ""
        print(f"{name:5s} {kind}  apart adds {spread(waits, ' ms')} by the clock   {look}")


def wall_each(road: Road, files: list[bytes], side: int) -> float:
    began = time.perf_counter()
    for data in files:
        road(data, side)
    return (time.perf_counter() - began) / len(files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="folder of JPEGs")
    parser.add_argument("--parquet", type=Path, help="table with encoded photographs in the column `image`")
    parser.add_argument("--supervised", action="store_true", help="measure the supervision instead")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.supervised:
        supervision(arguments.repeats)
        return
    if arguments.folder:
        groups = from_folder(arguments.folder)
        if not groups:
            parser.error(f"expected JPEG files in {arguments.folder}, found none; name a folder that holds some")
    elif arguments.parquet:
        groups = {f"{w} x {h}": from_table(arguments.parquet, (w, h), 40 if w < 1000 else 4) for w, h in (SMALL, LARGE)}
    else:
        groups = {
            f"{width} x {height}": [drawn(width, height, seed) for seed in range(40 if width < 1000 else 4)]
            for width, height in (SMALL, LARGE)
        }
    for side in (224, 64):
        for name, files in groups.items():
            compare(name, files, side, arguments.repeats)


if __name__ == "__main__":
    main()
